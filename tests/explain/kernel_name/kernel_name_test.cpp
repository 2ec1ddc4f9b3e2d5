// SPDX-License-Identifier: Apache-2.0
// The decoder of kernel names, on names of real traces; unknown and hostile names; differences.
#include "epilogue/trace/kernel_name.h"

#include "explain/kernel_name/decode.h"
#include "support/test.h"

namespace epilogue::trace::kernel_name_test {

std::string text(bool value) { return value ? "yes" : "no"; }
std::string text(int64_t value) { return std::to_string(value); }
std::string text(const std::vector<std::string>& list) {
  std::string all;
  for (const std::string& item : list) all += (all.empty() ? "" : ", ") + item;
  return all;
}
template <class T>
std::string text(const std::optional<T>& value) {
  return value ? text(*value) : "";
}

// A typed fact of the matrix product.
std::string fact(const KernelName& k, std::string_view key) {
  if (!k.gemm) return "no product";
  const GemmFacts& g = *k.gemm;
  if (key == "a_type") return g.a_type;
  if (key == "c_type") return g.c_type;
  if (key == "accumulator") return g.accumulator;
  if (key == "math_type") return g.math_type;
  if (key == "instruction") return g.instruction;
  if (key == "tile_m") return text(g.tile_m);
  if (key == "tile_k") return text(g.tile_k);
  if (key == "stages") return text(g.stages);
  if (key == "splits_k") return text(g.splits_k);
  if (key == "uses_tensor_cores") return text(g.uses_tensor_cores);
  if (key == "is_column_major") return text(g.is_column_major);
  if (key == "epilogue") return text(g.epilogue);
  return "no such fact";
}

// "gemm.tile_m": a fact; "k.ops": KernelName::ops; else a field, "~5" if inferred, "" if absent.
std::string value_of(const KernelName& k, std::string_view key) {
  if (key == "family") return k.family;
  if (key == "kind") return std::string(kernel_kind_name(k.kind));
  if (key == "summary") return k.summary;
  if (key == "k.ops") return text(k.ops);
  if (key.starts_with("gemm.")) return fact(k, key.substr(5));
  const KernelField* found = k.find(key);
  return found == nullptr ? "" : (found->is_inferred ? "~" : "") + found->value;
}

struct NameCase {
  std::string_view name;
  std::string_view expected;  // "key=value; key=value"
};

constexpr NameCase kCases[] = {
    // The project's own kernels.
    {"epi_avx512_gemm_bf16bf16f32_12x32_tn_bias_batched",
     "family=epilogue CPU; kind=gemm; isa=avx512; types=bf16 x bf16 -> f32, f32 accumulation; "
     "tile=12x32; layout=tn; epilogue=bias; gemm.is_column_major=no"},
    {"epi_avx2_gemv_f32_4x512_nn", "kind=gemv"},
    {"epi_avx2_gelu_tanh_backward_bf16",
     "kind=elementwise; operation=gelu_tanh_backward; type=bf16"},
    {"epi_avx512_layer_norm_backward_f32", "kind=norm"},
    {"epi_avx512_log_softmax_f32", "kind=softmax"},
    {"epi_avx512_sum_columns_f32", "kind=reduce"},
    {"epi_avx512_cast_f32_bf16", "kind=copy"},
    // The ops of fused kernels.
    {"epi_avx512_row_chain__fused_rms_norm_mm_gelu_mm_mul_mm_add_bf16",
     "kind=gemm; k.ops=_fused_rms_norm, mm, gelu, mm, mul, mm, add; operation=row_chain; "
     "ops=_fused_rms_norm, mm, gelu, mm, mul, mm, add; type=bf16; gemm.a_type=bf16"},
    {"epi_avx2_row_chain_native_layer_norm_addmm_silu_addmm_f32",
     "k.ops=native_layer_norm, addmm, silu, addmm"},
    {"epi_baseline_fused_mul_add_tanh_f16", "kind=elementwise; k.ops=mul, add, tanh"},
    {"epi_avx512_row_chain_addmm_relu_addmm_etc_f32", "ops=addmm, relu, addmm, ...; type=f32"},
    // Verbose lines of oneDNN.
    {"onednn_verbose,exec,cpu,matmul,brg:avx512_core_amx_bf16,undef,src_bf16::blocked:ab:f0 "
     "wei_bf16::blocked:ba:f0 bia_f32::blocked:ab:f0_mask2 "
     "dst_f32::blocked:ab:f0,attr-post-ops:eltwise_gelu_tanh ,,64x64:64x64:64x64,0.109131",
     "family=oneDNN; kind=gemm; implementation=brg:avx512_core_amx_bf16; types=bf16 x bf16 -> "
     "f32; problem=64x64:64x64:64x64; gemm.uses_tensor_cores=yes"},
    {"onednn_verbose,v1,primitive,exec,cpu,eltwise,jit:avx2,forward,src_f32::b",
     "kind=elementwise"},
    {"onednn_verbose,info,cpu", "family=unknown"},
    // Batched gemms of TensorRT-LLM.
    {"bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_"
     "TN_transOut_schedP2x1x2x3_biasM_bN_tma_clmp_swiGlu_dynBatch_sm100f",
     "family=TensorRT-LLM; types=~mxfp4 x mxfp8_e4m3 -> bf16, f32 accumulation; tile=128x16x256; "
     "stages=~3; instruction=128x16x32; epilogue=bias+swiglu; arch=sm100f"},
    // Kernels of other libraries, known by name.
    {"std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
     "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
     "kind=norm"},
    {"void cub::DeviceRadixSortOnesweepKernel<X, false, long>(int*)", "kind=sort"},
    {"void at_cuda_detail::cub::DeviceScanKernel<X>(int)", "family=CUB"},
    {"_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "types=~bf16 x mxfp4 -> bf16"},
    // Own CUDA kernels.
    {"epi_cuda_fused_gelu_mul_threshold_backward_bf16",
     "family=epilogue CUDA; kind=elementwise; operation=fused; ops=gelu, mul, "
     "threshold_backward; isa="},
    {"void epilogue::cuda::(anonymous namespace)::pointwise_vector<epilogue::cuda::GeluTanh, "
     "epilogue::cuda::Bf16>(epilogue::cuda::Bf16*, long)",
     "family=epilogue CUDA; kind=elementwise; operation=gelu_tanh; type=bf16"},
    {"void epilogue::cuda::(anonymous namespace)::adam_"
     "kernel<float>(epilogue::cuda::ListTensors, epilogue::cuda::AdamStep)",
     "kind=optimizer; operation=adam"},
    {"void epilogue::cuda::(anonymous namespace)::pointwise_strided<epilogue::cuda::(anonymous "
     "namespace)::UpToTwo<epilogue::cuda::Add> >(epilogue::cuda::Walk, float)",
     "operation=add; access=element by element"},
    {"epilogue::cuda::(anonymous namespace)::norm_backward_"
     "kernel(epilogue::cuda::NormBackwardCall)",
     "kind=norm; operation=norm_backward"},
    // The Hopper gated MLP is a product with an epilogue.
    {"void epilogue::cuda::(anonymous namespace)::gated_mlp_sm90<(epilogue::PointwiseFn)5, "
     "epilogue::cuda::Bf16, 2>(CUtensorMap_st, CUtensorMap_st, CUtensorMap_st, "
     "epilogue::cuda::Bf16*, long, epilogue::cuda::(anonymous namespace)::Sizes)",
     "kind=gemm; tile=128x256x64; cluster=2x1; epilogue=gelu_tanh, mul; stages=4"},
    // Engines of convolutions need no namespace.
    {"wgrad_alg0_engine", "kind=conv"},
    {"void dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "kind=conv"},
    // Mma: reads a cutlass kernel inside its wrapper.
    {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_"
     "align8>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8::Params)",
     "family=CUTLASS 2.x; kind=gemm; arch=sm80; api=wmma; types=bf16 x bf16 -> bf16, f32 "
     "accumulation; instruction=16x16x16; tile=32x32; tile_k=128; stages=2; layout=tn; "
     "alignment=8; tensor_cores=yes; gemm.tile_m=32; gemm.tile_k=128; gemm.stages=2; "
     "gemm.accumulator=f32; gemm.uses_tensor_cores=yes; gemm.is_column_major=yes"},
    // Mma: reads a simt kernel as one without tensor cores.
    {"void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(x::Params)",
     "tensor_cores=no; instruction=; gemm.a_type=f32; gemm.math_type=; gemm.tile_k=8"},
    // Mma: infers tf32 of f32 on tensor cores.
    {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(x)",
     "types=~f32 x f32 -> f32, f32 accumulation, tf32 math; gemm.math_type=tf32; "
     "gemm.instruction=16x8x8"},
    // Mma: reads a tensor core kernel of cuBLAS.
    // The variant also serves a bias without an activation: no ReLU is claimed.
    {"ampere_bf16_s16816gemm_bf16_128x256_ldg8_relu_f2f_stages_64x3_tn",
     "family=cuBLAS SASS; arch=ampere; types=bf16 x bf16 -> bf16, f32 accumulation; "
     "instruction=16x8x16; tile=128x256; tile_k=~64; stages=~3; load_width=~8; "
     "converts_output=~yes; epilogue=~relu; gemm.epilogue=; summary=GEMM bf16 x bf16 -> bf16, "
     "tensor cores, tile 128x256x64, 3 stages, tn"},
    // Mma: reads a plain SGEMM.
    {"volta_sgemm_64x32_sliced1x4_nn",
     "tile=64x32; k_slices=~1x4; layout=nn; tensor_cores=no; tile_k=; gemm.tile_k=; gemm.stages="},
    // Mma: reads Volta's tensor cores.
    {"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
     "gemm.a_type=f16; gemm.accumulator=f32; gemm.instruction=8x8x4"},
    // Mma: calls cuDNN's kernels convolutions.
    {"volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1",
     "kind=conv; family=cuDNN SASS; split_k=yes"},
    {"void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_"
     "32x4_nhwc_align8>(x::Params)",
     "kind=conv; direction=fprop; iterator=optimized; image_layout=nhwc; tile=256x64"},
    // Mma: leaves a name without arithmetic alone.
    {"ampere_something_else", "family=unknown"},
    {"volta_q999gemm_64x64_nn", "family=unknown"},
    {"volta_s999gemm_64x64_nn", "family=unknown"},
    // Cutlass3: reads types, tile, cluster and schedule.
    // 0: chosen by the library
    {"cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_f16_f16_128x128x64_2x1x1_0_tnt_align8_"
     "warpspecialized_cooperative_epi_tma",
     "family=CUTLASS 3.x; types=bf16 x bf16 -> f16, f32 accumulation; instruction=64x128x16; "
     "tile=128x128x64; cluster=2x1x1; stages=; layout=tn; schedule=warpspecialized_cooperative"},
    // Xmma: reads types as input, output and math.
    {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_"
     "segment_k_off_kernel__5x_cublas",
     "family=cuBLAS xmma; types=~bf16 x bf16 -> bf16, f32 accumulation; tile=128x64x64; "
     "warp_groups=1x1x1; layout=tn; gemm.uses_tensor_cores=yes"},
    {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_"
     "segment_k_off_kernel__5x_cublas",
     "gemm.a_type=f32; gemm.math_type=tf32"},
    {"sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_cgasize2x1x1_stage4_"
     "warpsize2x2x1_tensor16x8x32_bias_bf16_gelu_execute_split_k_kernel__5x_cublas",
     "gemm.a_type=e4m3; gemm.c_type=bf16; cluster=2x1x1; stages=4; warps=2x2x1; "
     "instruction=16x8x32; epilogue=bias+gelu; split_k=yes"},
    // Xmma: calls implicit GEMMs convolutions.
    {"sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_stage3_"
     "warpsize4x1x1_g1_tensor16x8x16_execute_kernel_cudnn_infer",
     "kind=conv; family=cuDNN xmma; direction=dgrad; tile=256x64x32"},
    // Nvjet: reads the form of both library generations.
    {"nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT",
     "family=cuBLAS nvjet; arch=sm103; types=bf16 x bf16 -> bf16, f32 accumulation; tile=512x8; "
     "tile_k=64; stages=3; cluster=2x1; raster=~vertical; beta=~zero; layout=nn"},
    {"nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
     "arch=; two_cta=yes; raster=~horizontal; epilogue=bias; stages=16"},
    // Nvjet: reads types of three and five letters.
    {"nvjet_hsh_128x128_64x6_2x1_v_bz_TNT", "gemm.a_type=f16"},
    {"nvjet_bii_128x128_64x6_2x1_v_bz_TNT", "gemm.c_type=i32"},
    {"nvjet_qrtst_128x128_128x6_2x1_v_badd_splitK_TNN",
     "types=~e4m3 x e5m2 -> bf16, f32 accumulation; split_k=yes; beta=~added"},
    {"nvjet_sss_tf32_128x64_32x6_2x1_v_bz_TNT", "gemm.math_type=tf32"},
    {"nvjet_xyz_128x128_64x6_2x1_v_bz_TNT", "family=unknown"},
    // Cublas: knows its kernels for small shapes.
    {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false, "
     "cublasGemvParams<cublasGemvTensorStridedBatched<float const>>>(x)",
     "kind=gemv; gemm.a_type=f32"},
    {"void gemvx::kernel<int, int, __nv_bfloat16, float>(x)", "kind=gemv"},
    {"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, X>(x)", "kind=gemm; layout=tn"},
    {"void gemmk1_kernel<int, float, 256, 5>(x)", "kind=gemm"},
    {"void dot_kernel<float, 128, 0, X>(x)", "kind=reduce"},
    {"void magma_sgemmEx_kernel<float, float, float, true>(int)", "family=MAGMA"},
    // Cublas: knows the separate epilogue of cuBLASLt.
    {"void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long)",
     "family=cuBLAS; kind=elementwise"},
    // Tensile: reads a hipBLASLt kernel.
    {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_AG0_"
     "AFEM1_GRVWA8_GSUAMBSK_GLS0_ISA942_IU1_K1_PGR2_PLR1_SK0_SKFTR0_WS64_WG64_4_1",
     "family=Tensile; kind=gemm; layout=tn; types=~bf16 x bf16 -> bf16, f32 accumulation; "
     "tile=256x192x64; instruction=16x16x1; arch=gfx942; prefetch_global=2; stream_k=0; "
     "bias=~supported; tensor_cores=yes; gemm.tile_k=64; gemm.splits_k="},
    // Tensile: reads types that are spelled apart.
    {"Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN",
     "gemm.a_type=bf16; gemm.c_type=bf16; gemm.accumulator=f32"},
    // Tensile: reads the old form without matrix instruction.
    {"Cijk_Ailk_Bjlk_SB_MT128x64x16_SE_GSU4_K1",
     "layout=nt; gemm.a_type=f32; tensor_cores=~no; gemm.splits_k=yes"},
    // Ck: reads a mangled convolution.
    {"_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_"
     "cshuffleINS_34GridwiseGemmMultipleD_xdl_cshuffleItttftNS_5TupleIJEEEtNS0_12element_"
     "wise11PassThroughES8_S8_Li1ELi256ELi128ELi256ELi32ELi8ELi8ELi32ELi32ELi2ELi4ENS_"
     "8SequenceIJLi4ELi64ELi1EEEE",
     "family=Composable Kernel; kind=conv; function=kernel_grouped_conv_fwd_multiple_abd_xdl_"
     "cshuffle; direction=fprop; block_size=256; tile=~128x256x32; instruction=~32x32; "
     "tensor_cores=yes; gemm.is_column_major=no"},
    // Ck: finds the work of a tile kernel in its arguments.
    {"_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_4FooEEEEEEvT0_",
     "kind=norm; operation=~RMS norm"},
    // Ck: claims nothing of another mangled name.
    {"_ZN3foo3barEv", "family=unknown"},
    {"_Z", "family=unknown"},
    {"_ZN99999999999999999999ck", "family=unknown"},
    {"_ZN2c", "family=unknown"},
    // Miopen: reads an implicit GEMM.
    {"igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8_ws2x1_wr2x2_ta1x4x1x4_1x4x1x64_"
     "tb1x4x1x2_1x4x1x64_gkgs",
     "kind=conv; direction=wgrad; image_layout=nhwc; tile=256x128x16; instruction=~32x32x8; "
     "split_k=~yes"},
    // Miopen: reads a transpose.
    {"batched_transpose_16x64_pack_1x4_ediv_1x2_half", "kind=copy; tile=16x64"},
    // Aten: reads a vectorised functor.
    {"void at::native::vectorized_elementwise_kernel<4, "
     "at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3> >(int, "
     "at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3>)",
     "family=ATen elementwise; kind=elementwise; operation=add; type=bf16; vector_width=4; "
     "summary=elementwise add bf16, 4 wide"},
    // Aten: reads the type of the innermost lambda.
    {"void at::native::vectorized_elementwise_kernel<8, "
     "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
     "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() "
     "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)",
     "operation=gelu; type=bf16; vector_width=8"},
    // Aten: unwraps a strided binary functor.
    {"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_"
     "impl<at::native::BinaryFunctor<float, float, float, "
     "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, "
     "at::native::BinaryFunctor<float, float, float, "
     "at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>(int)",
     "operation=mul; types=f32, f32, f32; threads_per_block=128; elements_per_thread=2; "
     "access=~strided; casts=~possible"},
    // Aten: tells copies, fills and indexing from arithmetic.
    // char* is an address, not the elements' type
    {"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_"
     "nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator"
     "()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(X)::{lambda(int)#"
     "1}>(int)",
     "kind=copy"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
     "at::detail::Array<char*, 1> >(int)",
     "kind=fill"},
    {"void at::native::index_elementwise_kernel<128, 4, "
     "at::native::gpu_index_kernel<at::native::index_kernel_impl<at::native::OpaqueType<8> "
     ">(X)::{lambda(char*, char*, long)#1}>(X)>(long)",
     "kind=index; type="},
    // Aten: reads a condition's type from its values.
    {"void at::native::vectorized_elementwise_kernel<4, "
     "at::native::where_kernel_impl(X)::{lambda()#1}::operator()() const::{lambda(bool, float, "
     "float)#1}, at::detail::Array<char*, 4> >(int)",
     "operation=where; types=bool, f32, f32; type=f32"},
    // Aten: reads reductions.
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
     "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, "
     "float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, "
     "4> >(X)",
     "family=ATen reduce; operation=sum; type=f32; threads_per_block=512"},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, "
     "at::native::MeanOps<c10::BFloat16, float, float, c10::BFloat16>, unsigned int, "
     "c10::BFloat16, 4> >(X)",
     "operation=mean; type=bf16"},
    // Aten: knows norms, softmax and concatenation.
    {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, "
     "float>(int, float)",
     "kind=norm; type=bf16"},
    {"void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*)",
     "kind=softmax; direction=backward"},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, "
     "1>(float*)",
     "kind=copy"},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
     "namespace)::TensorListMetadata<4>, at::native::(anonymous "
     "namespace)::FusedAdamMathFunctor<float, 4> >(X)",
     "kind=optimizer"},
    // Triton: cuts the ops by a dictionary.
    {"triton_poi_fused__unsafe_view_gelu_mul_0",
     "kind=triton; category=pointwise; number=0; k.ops=_unsafe_view, gelu, mul"},
    {"triton_red_fused_add_addmm_cat_mul_native_layer_norm_slice_split_unsqueeze_view_31",
     "k.ops=add, addmm, cat, mul, native_layer_norm, slice, split, unsqueeze, view; ops=add, "
     "addmm, cat, mul, native_layer_norm, slice, split, unsqueeze, view"},
    // Triton: marks ops that no dictionary has as inferred.
    {"triton_per_fused_add_frobnicate_mul_3", "ops=~add, frobnicate, mul"},
    // Triton: says that old names have no ops.
    {"triton__0d1d2d3de4de", "kind=triton; k.ops="},
    {"triton_poi_fused_0", "k.ops="},
    // Triton: calls a template of a product a GEMM.
    {"triton_tem_fused_addmm_relu_4", "kind=gemm"},
    {"triton_tem_fused_flex_attention_0", "kind=attention"},
    // Attention: reads flash attention's traits.
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, "
     "4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, "
     "cutlass::bfloat16_t> >, false, true, false, false, false, true, "
     "false>(pytorch_flash::Flash_fwd_params)",
     "family=flash attention; direction=forward; head_dim=64; tile=128x128; warps=4; type=bf16; "
     "causal=~yes; dropout=~no"},
    // Attention: reads the other backends.
    {"fmha_cutlassB_bf16_aligned_128x128_k128_sm80",
     "direction=backward; tile=128x128; max_head_dim=128"},
    {"cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_"
     "kernel0_0",
     "direction=forward; tile=128x64; head_dim=64; knob=6"},
    {"aiter::fmha_fwd_hd128_bf16_rtz", "head_dim=128; type=bf16"},
    {"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128Persiste"
     "ntContext",
     "type=e4m3; output_type=bf16; head_dim=64; tile=128x128; sliding_window=yes; phase=context "
     "(prefill)"},
    // Cudnn: knows batch norm, layout and convolutions.
    {"void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512>(float)", "kind=norm"},
    {"void cudnn::ops::nchwToNhwcKernel<float, float, float, false>(x)", "kind=copy"},
    {"void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", "kind=conv"},
    {"cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", "kind=conv"},
    {"void implicit_convolve_sgemm<float, float, 128, 5, 5, 3>(int)", "kind=conv"},
    // Collective: reads both orders of NCCL.
    {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
     "kind=collective; collective=AllReduce; algorithm=RING; protocol=LL; reduction=Sum; "
     "type=~f32"},
    {"ncclDevKernel_AllReduce_Sum_bf16_TREE_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
     "algorithm=TREE; type=~bf16"},
    {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "type=~i8"},
    {"ncclKernel_AllReduce", "kind=collective"},
    {"void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
     "kind=collective"},
    // Memory: reads copies and fills.
    {"Memcpy HtoD (Pageable -> Device)",
     "kind=copy; direction=host to device; host_memory=pageable"},
    {"Memcpy DtoD (Device -> Device)", "direction=device to device"},
    {"Memset (Device)", "kind=fill"},
    // cuDNN's own name may come before the architecture.
    {"cudnn_ampere_scudnn_128x64_relu_small_nn_v1", "kind=conv; gemm.tile_m=128"},
    {"cudnn_infer_ampere_scudnn_128x32_sliced1x4_ldg4_relu_small_nn_v1",
     "kind=conv; gemm.tile_m=128"},
    {"cudnn_ampere_scudnn_128x128_sliced1x4_ldg4_exp_interior_nhwc_tn_v1",
     "kind=conv; gemm.tile_m=128"},
    // A product, not a change of layout.
    {"cudnn_ampere_sliced1x4_exp_interior_nhwc_tn_v1", "kind=unknown"},
    // Reductions of split K are no GEMMs.
    {"void splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float>(x)",
     "kind=splitk-reduce"},
    {"void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(x)", "kind=splitk-reduce"},
};

TEST(KernelName, SaysWhatTheTableExpects) {
  for (const NameCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const KernelName k = decode_kernel_name(c.name);
    std::string_view rest = c.expected;
    ASSERT_FALSE(rest.empty());
    while (!rest.empty()) {
      const size_t end = rest.find("; ");
      const std::string_view item = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 2);
      const size_t equals = item.find('=');
      ASSERT_NE(equals, std::string_view::npos) << item;
      EXPECT_EQ(value_of(k, item.substr(0, equals)), item.substr(equals + 1)) << item;
    }
  }
}

TEST(FusedOps, UsesTheSortingOfTheNames) {
  using Ops = std::vector<std::string>;
  // "slice_scatter" is one op: "scatter" would sort before "slice".
  EXPECT_EQ(split_fused_ops("slice_scatter").ops, (Ops{"slice_scatter"}));
  EXPECT_EQ(split_fused_ops("add_native_layer_norm_backward_sum").ops,
            (Ops{"add", "native_layer_norm_backward", "sum"}));
  EXPECT_EQ(split_fused_ops("_to_copy_bitwise_and_lt").ops, (Ops{"_to_copy", "bitwise_and", "lt"}));
}

TEST(KernelName, ClaimsNothingOfAnUnknownName) {
  for (const char* name : {"", "Kernel", "my_own_kernel", "void foo<int>(bar)", "   ", "____"}) {
    const KernelName k = decode_kernel_name(name);
    EXPECT_EQ(k.family, "unknown") << name;
    EXPECT_EQ(value_of(k, "kind"), "unknown");
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

TEST(KernelNameDifference, SaysWhatTheTableExpects) {
  constexpr const char* kSmallTiles = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
  constexpr const char* kLargeTiles = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn";
  struct Case {
    const char* before;
    const char* after;
    const char* difference;
  };
  for (const Case& c : {
           Case{"volta_sgemm_128x32_nt", "volta_sgemm_128x32_nt", "same kernel"},
           Case{kSmallTiles, kLargeTiles, "tile 128x128x32 -> 128x256x64; stages 5 -> 3"},
           Case{"volta_sgemm_128x32_nt", "volta_sgemm_128x32_tn", "layout nt -> tn"},
           Case{kSmallTiles, "ampere_sgemm_128x128_tn", "bf16 -> f32; tensor cores -> CUDA cores"},
           Case{"ampere_sgemm_128x64_tn", "nvjet_tst_128x64_64x6_2x1_v_bz_TNT",
                "cuBLAS SASS -> cuBLAS nvjet; f32 -> bf16; CUDA cores -> tensor cores"},
           Case{"foo", "volta_sgemm_128x32_nt", "different kernels; not decoded: the first"},
           Case{"foo", "bar", "different kernels; not decoded: the first and the second"},
           Case{"triton_poi_fused_add_mul_0", "triton_poi_fused_add_0", "ops add, mul -> add"},
       }) {
    EXPECT_EQ(describe_difference(decode_kernel_name(c.before), decode_kernel_name(c.after)),
              c.difference)
        << c.before << ", " << c.after;
  }
}

}  // namespace epilogue::trace::kernel_name_test
