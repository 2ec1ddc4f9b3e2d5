// SPDX-License-Identifier: Apache-2.0
// PyTorch's own kernels, Triton's, attention, cuDNN, collectives and copies: names of real traces.
#include "explain/kernel_name/decode.h"
#include "explain/kernel_name/kernel_name_testing.h"

namespace epilogue::trace::kernel_name_torch_test {
namespace {

using testing::field;
using testing::kind;
using Ops = std::vector<std::string>;

TEST(KernelNameAten, ReadsAVectorisedFunctor) {
  const KernelName k = decode_kernel_name(
      "void at::native::vectorized_elementwise_kernel<4, "
      "at::native::CUDAFunctor_add<c10::BFloat16>, "
      "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
      "at::detail::Array<char*, 3>)");
  EXPECT_EQ(k.family, "ATen elementwise");
  EXPECT_EQ(kind(k), "elementwise");
  EXPECT_EQ(field(k, "operation"), "add");
  EXPECT_EQ(field(k, "type"), "bf16");
  EXPECT_EQ(field(k, "vector_width"), "4");
  EXPECT_EQ(k.summary, "elementwise add bf16, 4 wide");
}

TEST(KernelNameAten, ReadsTheTypeOfTheInnermostLambda) {
  const KernelName k = decode_kernel_name(
      "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl("
      "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() "
      "const::{lambda()#4}::"
      "operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)");
  EXPECT_EQ(field(k, "operation"), "gelu");
  EXPECT_EQ(field(k, "type"), "bf16");
  EXPECT_EQ(field(k, "vector_width"), "8");
}

TEST(KernelNameAten, UnwrapsAStridedBinaryFunctor) {
  const KernelName k = decode_kernel_name(
      "void at::native::elementwise_kernel<128, 2, "
      "at::native::gpu_kernel_impl<at::native::BinaryFunctor<"
      "float, float, float, at::native::binary_internal::MulFunctor<float> > "
      ">(at::TensorIteratorBase&, "
      "at::native::BinaryFunctor<float, float, float, "
      "at::native::binary_internal::MulFunctor<float> > "
      "const&)::{lambda(int)#1}>(int)");
  EXPECT_EQ(field(k, "operation"), "mul");
  EXPECT_EQ(field(k, "types"), "f32, f32, f32");
  EXPECT_EQ(field(k, "threads_per_block"), "128");
  EXPECT_EQ(field(k, "elements_per_thread"), "2");
  EXPECT_EQ(field(k, "access"), "~strided");
  EXPECT_EQ(field(k, "casts"), "~possible");
}

TEST(KernelNameAten, TellsCopiesFillsAndIndexingFromArithmetic) {
  EXPECT_EQ(kind(decode_kernel_name(
                "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
                "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::"
                "operator()() "
                "const::{lambda()#12}::operator()() "
                "const::{lambda(c10::BFloat16)#1}>(X)::{lambda(int)#1}>("
                "int)")),
            "copy");
  EXPECT_EQ(kind(decode_kernel_name(
                "void at::native::vectorized_elementwise_kernel<4, "
                "at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)")),
            "fill");
  const KernelName index = decode_kernel_name(
      "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<"
      "at::native::index_kernel_impl<at::native::OpaqueType<8> >(X)::{lambda(char*, char*, "
      "long)#1}>(X)>(long)");
  EXPECT_EQ(kind(index), "index");
  EXPECT_EQ(field(index, "type"), "");  // char* is an address, not the elements' type
}

TEST(KernelNameAten, ReadsAConditionsTypeFromItsValues) {
  const KernelName k = decode_kernel_name(
      "void at::native::vectorized_elementwise_kernel<4, "
      "at::native::where_kernel_impl(X)::{lambda()#1}::"
      "operator()() const::{lambda(bool, float, float)#1}, at::detail::Array<char*, 4> >(int)");
  EXPECT_EQ(field(k, "operation"), "where");
  EXPECT_EQ(field(k, "types"), "bool, f32, f32");
  EXPECT_EQ(field(k, "type"), "f32");
}

TEST(KernelNameAten, ReadsReductions) {
  const KernelName sum = decode_kernel_name(
      "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
      "at::native::func_wrapper_t<float, "
      "at::native::sum_functor<float, float, "
      "float>::operator()(at::TensorIterator&)::{lambda(float, "
      "float)#1}>, unsigned int, float, 4> >(X)");
  EXPECT_EQ(sum.family, "ATen reduce");
  EXPECT_EQ(field(sum, "operation"), "sum");
  EXPECT_EQ(field(sum, "type"), "f32");
  EXPECT_EQ(field(sum, "threads_per_block"), "512");
  const KernelName mean = decode_kernel_name(
      "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, "
      "at::native::MeanOps<"
      "c10::BFloat16, float, float, c10::BFloat16>, unsigned int, c10::BFloat16, 4> >(X)");
  EXPECT_EQ(field(mean, "operation"), "mean");
  EXPECT_EQ(field(mean, "type"), "bf16");
}

TEST(KernelNameAten, KnowsNormsSoftmaxAndConcatenation) {
  const KernelName norm = decode_kernel_name(
      "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, "
      "float>(int, float)");
  EXPECT_EQ(kind(norm), "norm");
  EXPECT_EQ(field(norm, "type"), "bf16");
  const KernelName softmax = decode_kernel_name(
      "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*)");
  EXPECT_EQ(kind(softmax), "softmax");
  EXPECT_EQ(field(softmax, "direction"), "backward");
  EXPECT_EQ(
      kind(decode_kernel_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, "
                              "unsigned int, 2, 128, 1>(float*)")),
      "copy");
  EXPECT_EQ(kind(decode_kernel_name("void at::native::(anonymous "
                                    "namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
                                    "namespace)::TensorListMetadata<4>, at::native::(anonymous "
                                    "namespace)::FusedAdamMathFunctor<"
                                    "float, 4> >(X)")),
            "optimizer");
}

TEST(KernelNameTriton, CutsTheOpsByADictionary) {
  const KernelName k = decode_kernel_name("triton_poi_fused__unsafe_view_gelu_mul_0");
  EXPECT_EQ(kind(k), "triton");
  EXPECT_EQ(field(k, "category"), "pointwise");
  EXPECT_EQ(field(k, "number"), "0");
  EXPECT_EQ(k.ops, (Ops{"_unsafe_view", "gelu", "mul"}));
  const KernelName norm = decode_kernel_name(
      "triton_red_fused_add_addmm_cat_mul_native_layer_norm_slice_split_unsqueeze_view_31");
  EXPECT_EQ(norm.ops, (Ops{"add", "addmm", "cat", "mul", "native_layer_norm", "slice", "split",
                           "unsqueeze", "view"}));
  EXPECT_EQ(field(norm, "ops"),
            "add, addmm, cat, mul, native_layer_norm, slice, split, unsqueeze, view");
}

TEST(KernelNameTriton, UsesTheSortingOfTheNames) {
  // "slice_scatter" is one op: "scatter" would sort before "slice".
  EXPECT_EQ(split_fused_ops("slice_scatter").ops, (Ops{"slice_scatter"}));
  EXPECT_EQ(split_fused_ops("add_native_layer_norm_backward_sum").ops,
            (Ops{"add", "native_layer_norm_backward", "sum"}));
  EXPECT_EQ(split_fused_ops("_to_copy_bitwise_and_lt").ops, (Ops{"_to_copy", "bitwise_and", "lt"}));
}

TEST(KernelNameTriton, MarksOpsThatNoDictionaryHasAsInferred) {
  const KernelName k = decode_kernel_name("triton_per_fused_add_frobnicate_mul_3");
  EXPECT_EQ(field(k, "ops"), "~add, frobnicate, mul");
}

TEST(KernelNameTriton, SaysThatOldNamesHaveNoOps) {
  const KernelName k = decode_kernel_name("triton__0d1d2d3de4de");
  EXPECT_EQ(kind(k), "triton");
  EXPECT_TRUE(k.ops.empty());
  EXPECT_EQ(decode_kernel_name("triton_poi_fused_0").ops, Ops{});
}

TEST(KernelNameTriton, CallsATemplateOfAProductAGemm) {
  EXPECT_EQ(kind(decode_kernel_name("triton_tem_fused_addmm_relu_4")), "gemm");
  EXPECT_EQ(kind(decode_kernel_name("triton_tem_fused_flex_attention_0")), "attention");
}

TEST(KernelNameAttention, ReadsFlashAttentionsTraits) {
  const KernelName k = decode_kernel_name(
      "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, "
      "4, false, "
      "false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, "
      "cutlass::bfloat16_t> >,"
      " false, true, false, false, false, true, false>(pytorch_flash::Flash_fwd_params)");
  EXPECT_EQ(k.family, "flash attention");
  EXPECT_EQ(field(k, "direction"), "forward");
  EXPECT_EQ(field(k, "head_dim"), "64");
  EXPECT_EQ(field(k, "tile"), "128x128");
  EXPECT_EQ(field(k, "warps"), "4");
  EXPECT_EQ(field(k, "type"), "bf16");
  EXPECT_EQ(field(k, "causal"), "~yes");
  EXPECT_EQ(field(k, "dropout"), "~no");
}

TEST(KernelNameAttention, ReadsTheOtherBackends) {
  const KernelName efficient = decode_kernel_name("fmha_cutlassB_bf16_aligned_128x128_k128_sm80");
  EXPECT_EQ(field(efficient, "direction"), "backward");
  EXPECT_EQ(field(efficient, "tile"), "128x128");
  EXPECT_EQ(field(efficient, "max_head_dim"), "128");
  const KernelName cudnn = decode_kernel_name(
      "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_"
      "kernel0_0");
  EXPECT_EQ(field(cudnn, "direction"), "forward");
  EXPECT_EQ(field(cudnn, "tile"), "128x64");
  EXPECT_EQ(field(cudnn, "head_dim"), "64");
  EXPECT_EQ(field(cudnn, "knob"), "6");
  const KernelName aiter = decode_kernel_name("aiter::fmha_fwd_hd128_bf16_rtz");
  EXPECT_EQ(field(aiter, "head_dim"), "128");
  EXPECT_EQ(field(aiter, "type"), "bf16");
  const KernelName trtllm = decode_kernel_name(
      "fmhaSm100aKernel_"
      "QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext");
  EXPECT_EQ(field(trtllm, "type"), "e4m3");
  EXPECT_EQ(field(trtllm, "output_type"), "bf16");
  EXPECT_EQ(field(trtllm, "head_dim"), "64");
  EXPECT_EQ(field(trtllm, "tile"), "128x128");
  EXPECT_EQ(field(trtllm, "sliding_window"), "yes");
  EXPECT_EQ(field(trtllm, "phase"), "context (prefill)");
}

TEST(KernelNameCudnn, KnowsBatchNormLayoutAndConvolutions) {
  EXPECT_EQ(kind(decode_kernel_name(
                "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512>(float)")),
            "norm");
  EXPECT_EQ(
      kind(decode_kernel_name("void cudnn::ops::nchwToNhwcKernel<float, float, float, false>(x)")),
      "copy");
  EXPECT_EQ(kind(decode_kernel_name(
                "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)")),
            "conv");
  EXPECT_EQ(kind(decode_kernel_name(
                "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)")),
            "conv");
  EXPECT_EQ(
      kind(decode_kernel_name("void implicit_convolve_sgemm<float, float, 128, 5, 5, 3>(int)")),
      "conv");
}

TEST(KernelNameCollective, ReadsBothOrdersOfNccl) {
  const KernelName old = decode_kernel_name("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)");
  EXPECT_EQ(kind(old), "collective");
  EXPECT_EQ(field(old, "collective"), "AllReduce");
  EXPECT_EQ(field(old, "algorithm"), "RING");
  EXPECT_EQ(field(old, "protocol"), "LL");
  EXPECT_EQ(field(old, "reduction"), "Sum");
  EXPECT_EQ(field(old, "type"), "~f32");
  const KernelName now = decode_kernel_name(
      "ncclDevKernel_AllReduce_Sum_bf16_TREE_SIMPLE(ncclDevKernelArgsStorage<4096ul>)");
  EXPECT_EQ(field(now, "algorithm"), "TREE");
  EXPECT_EQ(field(now, "type"), "~bf16");
  EXPECT_EQ(field(decode_kernel_name("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)"), "type"),
            "~i8");
  EXPECT_EQ(kind(decode_kernel_name("ncclKernel_AllReduce")), "collective");
  EXPECT_EQ(kind(decode_kernel_name(
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, "
                "16>(c10::BFloat16*)")),
            "collective");
}

TEST(KernelNameMemory, ReadsCopiesAndFills) {
  const KernelName k = decode_kernel_name("Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(kind(k), "copy");
  EXPECT_EQ(field(k, "direction"), "host to device");
  EXPECT_EQ(field(k, "host_memory"), "pageable");
  EXPECT_EQ(field(decode_kernel_name("Memcpy DtoD (Device -> Device)"), "direction"),
            "device to device");
  EXPECT_EQ(kind(decode_kernel_name("Memset (Device)")), "fill");
}

}  // namespace
}  // namespace epilogue::trace::kernel_name_torch_test
