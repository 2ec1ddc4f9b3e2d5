// SPDX-License-Identifier: Apache-2.0
// Names of NVIDIA's GEMM libraries, from real traces where a family occurs in them.
#include "explain/kernel_name/kernel_name_testing.h"

namespace epilogue::trace::kernel_name_gemm_test {
namespace {

using testing::field;
using testing::kind;

TEST(KernelName, CudnnsOwnNameMayComeBeforeTheArchitecture) {
  for (const char* name : {"cudnn_ampere_scudnn_128x64_relu_small_nn_v1",
                           "cudnn_infer_ampere_scudnn_128x32_sliced1x4_ldg4_relu_small_nn_v1",
                           "cudnn_ampere_scudnn_128x128_sliced1x4_ldg4_exp_interior_nhwc_tn_v1"}) {
    const KernelName k = decode_kernel_name(name);
    EXPECT_EQ(k.kind, KernelKind::conv) << name;
    ASSERT_TRUE(k.gemm) << name;
    EXPECT_EQ(k.gemm->tile_m, 128) << name;
  }
  EXPECT_EQ(decode_kernel_name("cudnn_ampere_sliced1x4_exp_interior_nhwc_tn_v1").kind,
            KernelKind::unknown)
      << "a product, not a change of layout";
}

TEST(KernelName, EnginesOfConvolutionsNeedNoNamespace) {
  EXPECT_EQ(decode_kernel_name("wgrad_alg0_engine").kind, KernelKind::conv);
  EXPECT_EQ(decode_kernel_name("void dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)").kind,
            KernelKind::conv);
}

TEST(KernelNameMma, ReadsACutlassKernelInsideItsWrapper) {
  const KernelName k = decode_kernel_name(
      "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>("
      "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8::Params)");
  EXPECT_EQ(k.family, "CUTLASS 2.x");
  EXPECT_EQ(kind(k), "gemm");
  EXPECT_EQ(field(k, "arch"), "sm80");
  EXPECT_EQ(field(k, "api"), "wmma");
  EXPECT_EQ(field(k, "types"), "bf16 x bf16 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "instruction"), "16x16x16");
  EXPECT_EQ(field(k, "tile"), "32x32");
  EXPECT_EQ(field(k, "tile_k"), "128");
  EXPECT_EQ(field(k, "stages"), "2");
  EXPECT_EQ(field(k, "layout"), "tn");
  EXPECT_EQ(field(k, "alignment"), "8");
  EXPECT_EQ(field(k, "tensor_cores"), "yes");
  ASSERT_TRUE(k.gemm);
  EXPECT_EQ(k.gemm->tile_m, 32);
  EXPECT_EQ(k.gemm->tile_k, 128);
  EXPECT_EQ(k.gemm->stages, 2);
  EXPECT_EQ(k.gemm->accumulator, "f32");
  EXPECT_EQ(k.gemm->uses_tensor_cores, true);
  EXPECT_TRUE(k.gemm->is_column_major);
}

TEST(KernelNameMma, ReadsASimtKernelAsOneWithoutTensorCores) {
  const KernelName k = decode_kernel_name(
      "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(x::Params)");
  EXPECT_EQ(field(k, "tensor_cores"), "no");
  EXPECT_EQ(field(k, "instruction"), "");
  EXPECT_EQ(k.gemm->a_type, "f32");
  EXPECT_EQ(k.gemm->math_type, "");
  EXPECT_EQ(k.gemm->tile_k, 8);
}

TEST(KernelNameMma, InfersTf32OfF32OnTensorCores) {
  const KernelName k = decode_kernel_name(
      "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(x)");
  EXPECT_EQ(field(k, "types"), "~f32 x f32 -> f32, f32 accumulation, tf32 math");
  EXPECT_EQ(k.gemm->math_type, "tf32");
  EXPECT_EQ(k.gemm->instruction, "16x8x8");
}

TEST(KernelNameMma, ReadsATensorCoreKernelOfCublas) {
  const KernelName k =
      decode_kernel_name("ampere_bf16_s16816gemm_bf16_128x256_ldg8_relu_f2f_stages_64x3_tn");
  EXPECT_EQ(k.family, "cuBLAS SASS");
  EXPECT_EQ(field(k, "arch"), "ampere");
  EXPECT_EQ(field(k, "types"), "bf16 x bf16 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "instruction"), "16x8x16");
  EXPECT_EQ(field(k, "tile"), "128x256");
  EXPECT_EQ(field(k, "tile_k"), "~64");
  EXPECT_EQ(field(k, "stages"), "~3");
  EXPECT_EQ(field(k, "load_width"), "~8");
  EXPECT_EQ(field(k, "converts_output"), "~yes");
  // The variant also serves a bias without an activation: no ReLU is claimed.
  EXPECT_EQ(field(k, "epilogue"), "~relu");
  EXPECT_TRUE(k.gemm->epilogue.empty());
  EXPECT_EQ(k.summary, "GEMM bf16 x bf16 -> bf16, tensor cores, tile 128x256x64, 3 stages, tn");
}

TEST(KernelNameMma, ReadsAPlainSgemm) {
  const KernelName k = decode_kernel_name("volta_sgemm_64x32_sliced1x4_nn");
  EXPECT_EQ(field(k, "tile"), "64x32");
  EXPECT_EQ(field(k, "k_slices"), "~1x4");
  EXPECT_EQ(field(k, "layout"), "nn");
  EXPECT_EQ(field(k, "tensor_cores"), "no");
  EXPECT_EQ(field(k, "tile_k"), "");
  EXPECT_FALSE(k.gemm->tile_k);
  EXPECT_FALSE(k.gemm->stages);
}

TEST(KernelNameMma, ReadsVoltasTensorCores) {
  const KernelName k = decode_kernel_name("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn");
  EXPECT_EQ(k.gemm->a_type, "f16");
  EXPECT_EQ(k.gemm->accumulator, "f32");
  EXPECT_EQ(k.gemm->instruction, "8x8x4");
}

TEST(KernelNameMma, CallsCudnnsKernelsConvolutions) {
  const KernelName k = decode_kernel_name("volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1");
  EXPECT_EQ(kind(k), "conv");
  EXPECT_EQ(k.family, "cuDNN SASS");
  EXPECT_EQ(field(k, "split_k"), "yes");
  const KernelName c = decode_kernel_name(
      "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_"
      "nhwc_align8>(x::Params)");
  EXPECT_EQ(kind(c), "conv");
  EXPECT_EQ(field(c, "direction"), "fprop");
  EXPECT_EQ(field(c, "iterator"), "optimized");
  EXPECT_EQ(field(c, "image_layout"), "nhwc");
  EXPECT_EQ(field(c, "tile"), "256x64");
}

TEST(KernelNameMma, LeavesANameWithoutArithmeticAlone) {
  EXPECT_FALSE(decode_kernel_name("ampere_something_else").is_known());
  EXPECT_FALSE(decode_kernel_name("volta_q999gemm_64x64_nn").is_known());
  EXPECT_FALSE(decode_kernel_name("volta_s999gemm_64x64_nn").is_known());
}

TEST(KernelNameCutlass3, ReadsTypesTileClusterAndSchedule) {
  const KernelName k = decode_kernel_name(
      "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_f16_f16_128x128x64_2x1x1_0_tnt_align8_"
      "warpspecialized_cooperative_epi_tma");
  EXPECT_EQ(k.family, "CUTLASS 3.x");
  EXPECT_EQ(field(k, "types"), "bf16 x bf16 -> f16, f32 accumulation");
  EXPECT_EQ(field(k, "instruction"), "64x128x16");
  EXPECT_EQ(field(k, "tile"), "128x128x64");
  EXPECT_EQ(field(k, "cluster"), "2x1x1");
  EXPECT_EQ(field(k, "stages"), "");  // 0: chosen by the library
  EXPECT_EQ(field(k, "layout"), "tn");
  EXPECT_EQ(field(k, "schedule"), "warpspecialized_cooperative");
}

TEST(KernelNameXmma, ReadsTypesAsInputOutputAndMath) {
  const KernelName k = decode_kernel_name(
      "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_"
      "segment_k_"
      "off_kernel__5x_cublas");
  EXPECT_EQ(k.family, "cuBLAS xmma");
  EXPECT_EQ(field(k, "types"), "~bf16 x bf16 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "tile"), "128x64x64");
  EXPECT_EQ(field(k, "warp_groups"), "1x1x1");
  EXPECT_EQ(field(k, "layout"), "tn");
  EXPECT_EQ(k.gemm->uses_tensor_cores, true);
  const KernelName t = decode_kernel_name(
      "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_"
      "segment_k_"
      "off_kernel__5x_cublas");
  EXPECT_EQ(t.gemm->a_type, "f32");
  EXPECT_EQ(t.gemm->math_type, "tf32");
  const KernelName f = decode_kernel_name(
      "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_cgasize2x1x1_stage4_warpsize2x2x1_"
      "tensor16x8x32_bias_bf16_gelu_execute_split_k_kernel__5x_cublas");
  EXPECT_EQ(f.gemm->a_type, "e4m3");
  EXPECT_EQ(f.gemm->c_type, "bf16");
  EXPECT_EQ(field(f, "cluster"), "2x1x1");
  EXPECT_EQ(field(f, "stages"), "4");
  EXPECT_EQ(field(f, "warps"), "2x2x1");
  EXPECT_EQ(field(f, "instruction"), "16x8x32");
  EXPECT_EQ(field(f, "epilogue"), "bias+gelu");
  EXPECT_EQ(field(f, "split_k"), "yes");
}

TEST(KernelNameXmma, CallsImplicitGemmsConvolutions) {
  const KernelName k = decode_kernel_name(
      "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_stage3_"
      "warpsize4x1x1_g1_tensor16x8x16_execute_kernel_cudnn_infer");
  EXPECT_EQ(kind(k), "conv");
  EXPECT_EQ(k.family, "cuDNN xmma");
  EXPECT_EQ(field(k, "direction"), "dgrad");
  EXPECT_EQ(field(k, "tile"), "256x64x32");
}

TEST(KernelNameNvjet, ReadsTheFormOfBothLibraryGenerations) {
  const KernelName k = decode_kernel_name("nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT");
  EXPECT_EQ(k.family, "cuBLAS nvjet");
  EXPECT_EQ(field(k, "arch"), "sm103");
  EXPECT_EQ(field(k, "types"), "bf16 x bf16 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "tile"), "512x8");
  EXPECT_EQ(field(k, "tile_k"), "64");
  EXPECT_EQ(field(k, "stages"), "3");
  EXPECT_EQ(field(k, "cluster"), "2x1");
  EXPECT_EQ(field(k, "raster"), "~vertical");
  EXPECT_EQ(field(k, "beta"), "~zero");
  EXPECT_EQ(field(k, "layout"), "nn");
  const KernelName old = decode_kernel_name("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT");
  EXPECT_EQ(field(old, "arch"), "");
  EXPECT_EQ(field(old, "two_cta"), "yes");
  EXPECT_EQ(field(old, "raster"), "~horizontal");
  EXPECT_EQ(field(old, "epilogue"), "bias");
  EXPECT_EQ(field(old, "stages"), "16");
}

TEST(KernelNameNvjet, ReadsTypesOfThreeAndFiveLetters) {
  EXPECT_EQ(decode_kernel_name("nvjet_hsh_128x128_64x6_2x1_v_bz_TNT").gemm->a_type, "f16");
  EXPECT_EQ(decode_kernel_name("nvjet_bii_128x128_64x6_2x1_v_bz_TNT").gemm->c_type, "i32");
  const KernelName fp8 = decode_kernel_name("nvjet_qrtst_128x128_128x6_2x1_v_badd_splitK_TNN");
  EXPECT_EQ(field(fp8, "types"), "~e4m3 x e5m2 -> bf16, f32 accumulation");
  EXPECT_EQ(field(fp8, "split_k"), "yes");
  EXPECT_EQ(field(fp8, "beta"), "~added");
  EXPECT_EQ(decode_kernel_name("nvjet_sss_tf32_128x64_32x6_2x1_v_bz_TNT").gemm->math_type, "tf32");
  EXPECT_FALSE(decode_kernel_name("nvjet_xyz_128x128_64x6_2x1_v_bz_TNT").is_known());
}

TEST(KernelNameCublas, KnowsItsKernelsForSmallShapes) {
  const KernelName t = decode_kernel_name(
      "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false, "
      "cublasGemvParams<cublasGemvTensorStridedBatched<float const>>>(x)");
  EXPECT_EQ(kind(t), "gemv");
  EXPECT_EQ(t.gemm->a_type, "f32");
  EXPECT_EQ(kind(decode_kernel_name("void gemvx::kernel<int, int, __nv_bfloat16, float>(x)")),
            "gemv");
  const KernelName s =
      decode_kernel_name("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, X>(x)");
  EXPECT_EQ(kind(s), "gemm");
  EXPECT_EQ(field(s, "layout"), "tn");
  EXPECT_EQ(kind(decode_kernel_name("void gemmk1_kernel<int, float, 256, 5>(x)")), "gemm");
  EXPECT_EQ(kind(decode_kernel_name("void dot_kernel<float, 128, 0, X>(x)")), "reduce");
  EXPECT_EQ(decode_kernel_name("void magma_sgemmEx_kernel<float, float, float, true>(int)").family,
            "MAGMA");
}

TEST(KernelNameCublas, TellsSplitKReductionsFromGemms) {
  for (const char* name :
       {"void splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float>(x)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(x)"})
    EXPECT_EQ(kind(decode_kernel_name(name)), "splitk-reduce") << name;
}

TEST(KernelNameCublas, KnowsTheSeparateEpilogueOfCublasLt) {
  const KernelName k = decode_kernel_name(
      "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long)");
  EXPECT_EQ(k.family, "cuBLAS");
  EXPECT_EQ(kind(k), "elementwise");
}

}  // namespace
}  // namespace epilogue::trace::kernel_name_gemm_test
