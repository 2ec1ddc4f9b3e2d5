// SPDX-License-Identifier: Apache-2.0
// The decoder as a whole: CPU kernels, unknown and hostile names, differences.
#include "epilogue/trace/kernel_name.h"

#include <random>
#include <set>

#include "explain/kernel_name/kernel_name_testing.h"

namespace epilogue::trace::kernel_name_test {
namespace {

using testing::field;
using testing::kind;

TEST(KernelName, ReadsTheProjectsOwnKernels) {
  const KernelName gemm = decode_kernel_name("epi_avx512_gemm_bf16bf16f32_12x32_tn_bias_batched");
  EXPECT_EQ(gemm.family, "epilogue CPU");
  EXPECT_EQ(kind(gemm), "gemm");
  EXPECT_EQ(field(gemm, "isa"), "avx512");
  EXPECT_EQ(field(gemm, "types"), "bf16 x bf16 -> f32, f32 accumulation");
  EXPECT_EQ(field(gemm, "tile"), "12x32");
  EXPECT_EQ(field(gemm, "layout"), "tn");
  EXPECT_EQ(field(gemm, "epilogue"), "bias");
  EXPECT_FALSE(gemm.gemm->is_column_major);
  EXPECT_EQ(kind(decode_kernel_name("epi_avx2_gemv_f32_4x512_nn")), "gemv");
  const KernelName gelu = decode_kernel_name("epi_avx2_gelu_tanh_backward_bf16");
  EXPECT_EQ(kind(gelu), "elementwise");
  EXPECT_EQ(field(gelu, "operation"), "gelu_tanh_backward");
  EXPECT_EQ(field(gelu, "type"), "bf16");
  EXPECT_EQ(kind(decode_kernel_name("epi_avx512_layer_norm_backward_f32")), "norm");
  EXPECT_EQ(kind(decode_kernel_name("epi_avx512_log_softmax_f32")), "softmax");
  EXPECT_EQ(kind(decode_kernel_name("epi_avx512_sum_columns_f32")), "reduce");
  EXPECT_EQ(kind(decode_kernel_name("epi_avx512_cast_f32_bf16")), "copy");
}

TEST(KernelName, ReadsTheOpsOfFusedKernels) {
  const KernelName chain =
      decode_kernel_name("epi_avx512_row_chain__fused_rms_norm_mm_gelu_mm_mul_mm_add_bf16");
  EXPECT_EQ(kind(chain), "gemm");
  EXPECT_EQ(chain.ops,
            (std::vector<std::string>{"_fused_rms_norm", "mm", "gelu", "mm", "mul", "mm", "add"}));
  EXPECT_EQ(field(chain, "operation"), "row_chain");
  EXPECT_EQ(field(chain, "ops"), "_fused_rms_norm, mm, gelu, mm, mul, mm, add");
  EXPECT_EQ(field(chain, "type"), "bf16");
  EXPECT_EQ(chain.gemm->a_type, "bf16");
  const KernelName layer =
      decode_kernel_name("epi_avx2_row_chain_native_layer_norm_addmm_silu_addmm_f32");
  EXPECT_EQ(layer.ops, (std::vector<std::string>{"native_layer_norm", "addmm", "silu", "addmm"}));
  const KernelName pointwise = decode_kernel_name("epi_baseline_fused_mul_add_tanh_f16");
  EXPECT_EQ(kind(pointwise), "elementwise");
  EXPECT_EQ(pointwise.ops, (std::vector<std::string>{"mul", "add", "tanh"}));
  const KernelName cut = decode_kernel_name("epi_avx512_row_chain_addmm_relu_addmm_etc_f32");
  EXPECT_EQ(field(cut, "ops"), "addmm, relu, addmm, ...");
  EXPECT_EQ(field(cut, "type"), "f32");
}

TEST(KernelName, ReadsVerboseLinesOfOneDnn) {
  const KernelName k = decode_kernel_name(
      "onednn_verbose,exec,cpu,matmul,brg:avx512_core_amx_bf16,undef,src_bf16::blocked:ab:f0 "
      "wei_bf16::blocked:ba:f0 bia_f32::blocked:ab:f0_mask2 dst_f32::blocked:ab:f0,"
      "attr-post-ops:eltwise_gelu_tanh ,,64x64:64x64:64x64,0.109131");
  EXPECT_EQ(k.family, "oneDNN");
  EXPECT_EQ(kind(k), "gemm");
  EXPECT_EQ(field(k, "implementation"), "brg:avx512_core_amx_bf16");
  EXPECT_EQ(field(k, "types"), "bf16 x bf16 -> f32");
  EXPECT_EQ(field(k, "problem"), "64x64:64x64:64x64");
  EXPECT_EQ(k.gemm->uses_tensor_cores, true);
  EXPECT_EQ(kind(decode_kernel_name(
                "onednn_verbose,v1,primitive,exec,cpu,eltwise,jit:avx2,forward,src_f32::b")),
            "elementwise");
  EXPECT_FALSE(decode_kernel_name("onednn_verbose,info,cpu").is_known());
}

TEST(KernelName, ReadsBatchedGemmsOfTensorRtLlm) {
  const KernelName k = decode_kernel_name(
      "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_"
      "transOut_schedP2x1x2x3_biasM_bN_tma_clmp_swiGlu_dynBatch_sm100f");
  EXPECT_EQ(k.family, "TensorRT-LLM");
  EXPECT_EQ(field(k, "types"), "~mxfp4 x mxfp8_e4m3 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "tile"), "128x16x256");
  EXPECT_EQ(field(k, "stages"), "~3");
  EXPECT_EQ(field(k, "instruction"), "128x16x32");
  EXPECT_EQ(field(k, "epilogue"), "bias+swiglu");
  EXPECT_EQ(field(k, "arch"), "sm100f");
}

TEST(KernelName, KnowsKernelsOfOtherLibrariesByName) {
  EXPECT_EQ(
      kind(decode_kernel_name(
          "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
          "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)")),
      "norm");
  EXPECT_EQ(
      kind(decode_kernel_name("void cub::DeviceRadixSortOnesweepKernel<X, false, long>(int*)")),
      "sort");
  EXPECT_EQ(decode_kernel_name("void at_cuda_detail::cub::DeviceScanKernel<X>(int)").family, "CUB");
  EXPECT_EQ(
      field(decode_kernel_name("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu"), "types"),
      "~bf16 x mxfp4 -> bf16");
}

TEST(KernelName, ClaimsNothingOfAnUnknownName) {
  for (const char* name : {"", "Kernel", "my_own_kernel", "void foo<int>(bar)", "   ", "____"}) {
    const KernelName k = decode_kernel_name(name);
    EXPECT_EQ(k.family, "unknown") << name;
    EXPECT_EQ(kind(k), "unknown");
    EXPECT_TRUE(k.fields.empty());
    EXPECT_FALSE(k.gemm);
    EXPECT_EQ(k.summary, "unknown kernel");
  }
}

// Real names with bytes changed, cut and doubled: no crash (under sanitizers), keys stay unique.
TEST(KernelName, SurvivesChangedNames) {
  const std::string_view seeds[] = {
      "void "
      "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(x)",
      "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel",
      "nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT",
      "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_GSU4_ISA942",
      "_ZN2ck16tensor_operation6deviceINS_34GridwiseGemmMultipleD_xdl_"
      "cshuffleIttLi1ELi256ELi128ELi256E",
      "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
      "at::native::func_wrapper_t<float, "
      "at::native::sum_functor<float>::operator()(X&)::{lambda(float, float)#1}>, unsigned int, "
      "float, 4> >(X)",
      "triton_red_fused__to_copy_add_native_layer_norm_slice_3",
      "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
      "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_m128x16x32_cga1x1x1_TN_biasM",
      "onednn_verbose,exec,cpu,matmul,brg:avx512,undef,src_bf16::a wei_bf16::b,attr,,1x1",
      "epi_avx512_gemm_bf16_12x32_tn_bias"};
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string name(seeds[random() % std::size(seeds)]);
    for (int change = 0; change < 3 && !name.empty(); ++change) {
      const size_t at = random() % name.size();
      switch (random() % 4) {
        case 0: name[at] = static_cast<char>(random()); break;
        case 1: name.erase(at, random() % 8); break;
        case 2: name.insert(at, name.substr(at, random() % 16)); break;
        default: name.resize(at); break;
      }
    }
    const KernelName k = decode_kernel_name(name);
    std::set<std::string> keys;
    for (const KernelField& f : k.fields)
      EXPECT_TRUE(keys.insert(f.key).second) << f.key << " in " << name;
    EXPECT_EQ(describe_difference(k, k), "same kernel");
    EXPECT_FALSE(k.summary.empty()) << name;
  }
}

// Quadratic work on a megabyte would take hours, not a second: this test then times out.
TEST(KernelName, TakesLinearTimeOnLongNames) {
  constexpr size_t kBytes = 1 << 20;
  std::string nested = "void at::native::vectorized_elementwise_kernel<4, ";
  std::string joined = "triton_poi_fused";
  std::string mangled = "_ZN2ck";
  std::string sizes = "ampere_bf16_s16816gemm_bf16_";
  while (nested.size() < kBytes) nested += "at::native::gpu_kernel_impl<";
  while (joined.size() < kBytes) joined += "_add_frobnicate";
  while (mangled.size() < kBytes) mangled += "3foo";
  while (sizes.size() < kBytes) sizes += "128x";
  for (const std::string* name : {&nested, &joined, &mangled, &sizes})
    EXPECT_EQ(decode_kernel_name(*name).name.size(), name->size());
  EXPECT_EQ(decode_kernel_name(std::string(kBytes, '<')).family, "unknown");
  EXPECT_EQ(decode_kernel_name(std::string(kBytes, '_')).family, "unknown");
}

std::string difference(const char* a, const char* b) {
  return describe_difference(decode_kernel_name(a), decode_kernel_name(b));
}

TEST(KernelNameDifference, SaysWhichFieldsDiffer) {
  EXPECT_EQ(difference("volta_sgemm_128x32_nt", "volta_sgemm_128x32_nt"), "same kernel");
  EXPECT_EQ(difference("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
                       "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"),
            "tile 128x128x32 -> 128x256x64; stages 5 -> 3");
  EXPECT_EQ(difference("volta_sgemm_128x32_nt", "volta_sgemm_128x32_tn"), "layout nt -> tn");
}

TEST(KernelNameDifference, SaysWhenTypeAndUnitsChange) {
  EXPECT_EQ(difference("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
                       "ampere_sgemm_128x128_tn"),
            "bf16 -> f32; tensor cores -> CUDA cores");
}

TEST(KernelNameDifference, ComparesAcrossFamilies) {
  EXPECT_EQ(difference("ampere_sgemm_128x64_tn", "nvjet_tst_128x64_64x6_2x1_v_bz_TNT"),
            "cuBLAS SASS -> cuBLAS nvjet; f32 -> bf16; CUDA cores -> tensor cores");
}

TEST(KernelNameDifference, NamesTheOneThatIsNotDecoded) {
  EXPECT_EQ(difference("foo", "volta_sgemm_128x32_nt"),
            "different kernels; not decoded: the first");
  EXPECT_EQ(difference("foo", "bar"), "different kernels; not decoded: the first and the second");
}

TEST(KernelNameDifference, ComparesFieldsOfOtherKernels) {
  EXPECT_EQ(difference("triton_poi_fused_add_mul_0", "triton_poi_fused_add_0"),
            "ops add, mul -> add");
}

TEST(KernelName, OwnCudaKernels) {
  const KernelName fused = decode_kernel_name("epi_cuda_fused_gelu_mul_threshold_backward_bf16");
  EXPECT_EQ(fused.family, "epilogue CUDA");
  EXPECT_EQ(kind(fused), "elementwise");
  EXPECT_EQ(field(fused, "operation"), "fused");
  EXPECT_EQ(field(fused, "ops"), "gelu, mul, threshold_backward");
  EXPECT_EQ(field(fused, "isa"), "");

  const KernelName gelu = decode_kernel_name(
      "void epilogue::cuda::(anonymous namespace)::pointwise_vector<epilogue::cuda::GeluTanh, "
      "epilogue::cuda::Bf16>(epilogue::cuda::Bf16*, long)");
  EXPECT_EQ(gelu.family, "epilogue CUDA");
  EXPECT_EQ(kind(gelu), "elementwise");
  EXPECT_EQ(field(gelu, "operation"), "gelu_tanh");
  EXPECT_EQ(field(gelu, "type"), "bf16");

  const KernelName adam = decode_kernel_name(
      "void epilogue::cuda::(anonymous namespace)::adam_kernel<float>(epilogue::cuda::ListTensors, "
      "epilogue::cuda::AdamStep)");
  EXPECT_EQ(kind(adam), "optimizer");
  EXPECT_EQ(field(adam, "operation"), "adam");

  const KernelName add = decode_kernel_name(
      "void epilogue::cuda::(anonymous namespace)::pointwise_strided<epilogue::cuda::(anonymous "
      "namespace)::UpToTwo<epilogue::cuda::Add> >(epilogue::cuda::Walk, float)");
  EXPECT_EQ(field(add, "operation"), "add");
  EXPECT_EQ(field(add, "access"), "element by element");

  const KernelName norm = decode_kernel_name(
      "epilogue::cuda::(anonymous "
      "namespace)::norm_backward_kernel(epilogue::cuda::NormBackwardCall)");
  EXPECT_EQ(kind(norm), "norm");
  EXPECT_EQ(field(norm, "operation"), "norm_backward");
}

TEST(KernelName, TheHopperGatedMlpIsAProductWithAnEpilogue) {
  const KernelName name = decode_kernel_name(
      "void epilogue::cuda::(anonymous namespace)::gated_mlp_sm90<(epilogue::PointwiseFn)5, "
      "epilogue::cuda::Bf16, 2>(CUtensorMap_st, CUtensorMap_st, CUtensorMap_st, "
      "epilogue::cuda::Bf16*, long, epilogue::cuda::(anonymous namespace)::Sizes)");
  EXPECT_EQ(kind(name), "gemm");
  EXPECT_EQ(field(name, "tile"), "128x256x64");
  EXPECT_EQ(field(name, "cluster"), "2x1");
  EXPECT_EQ(field(name, "epilogue"), "gelu_tanh, mul");
  EXPECT_EQ(field(name, "stages"), "4");
}

}  // namespace
}  // namespace epilogue::trace::kernel_name_test
