// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM's batched GEMMs, and kernels that are known by name alone.
//   bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_..._cga1x1x1_..._TN_..._sm100f
#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

void read_bmm_token(KernelName& out, std::string_view token) {
  GemmFacts& g = *out.gemm;
  if (token.starts_with("t") && !g.tile_m) {
    const auto tile = parse_sizes(token.substr(1, token.find('u') - 1));
    if (tile.size() == 3) set_tile(out, tile);
  } else if (token.starts_with("s") && !g.stages && parse_number(token.substr(1))) {
    set_stages(out, *parse_number(token.substr(1)), true);
  } else if (const auto mma = parse_prefixed(token, "m"); mma.size() == 3) {
    g.instruction = format_sizes(mma);
    known(out, "instruction", g.instruction, "M x N x K of one MMA");
  } else if (const auto cluster = parse_prefixed(token, "cga"); cluster.size() == 3) {
    set_cluster(out, cluster);
  } else if (token == "TN" || token == "NN" || token == "NT" || token == "TT") {
    g.layout = {static_cast<char>(token[0] - 'A' + 'a'), static_cast<char>(token[1] - 'A' + 'a')};
    known(out, "layout", g.layout);
  } else if (token.starts_with("bias")) {
    g.epilogue.emplace_back("bias");
  } else if (token == "swiGlu" || token == "geGlu" || token == "relu2") {
    g.epilogue.emplace_back(token == "swiGlu" ? "swiglu" : token == "geGlu" ? "geglu" : "relu2");
  } else if (token.starts_with("sm1") || token.starts_with("sm9")) {
    known(out, "arch", std::string(token));
  }
}

struct Listed {
  std::string_view start;  // of the qualified name
  std::string_view family;
  KernelKind kind;
  std::string_view what;
};
// In order: the more special entry first.
constexpr Listed kListed[] = {
    {"vllm::fused_add_rms_norm", "vLLM", KernelKind::norm, "residual add and RMS norm"},
    {"vllm::rms_norm", "vLLM", KernelKind::norm, "RMS norm"},
    {"vllm::rotary_embedding", "vLLM", KernelKind::elementwise, "rotary position embedding"},
    {"vllm::reshape_and_cache", "vLLM", KernelKind::copy, "writes K and V to the paged cache"},
    {"vllm::scaled_fp8_quant", "vLLM", KernelKind::elementwise, "quantisation to fp8"},
    {"vllm::act_and_mul", "vLLM", KernelKind::elementwise, "activation times gate"},
    {"vllm::paged_attention", "vLLM", KernelKind::attention, "attention over a paged cache"},
    {"vllm::moe", "vLLM", KernelKind::other, "routing of a mixture of experts"},
    {"vllm::", "vLLM", KernelKind::other, "vLLM kernel"},
    {"moe::dev::routing", "TensorRT-LLM", KernelKind::sort, "routing of a mixture of experts"},
    {"moe::dev::finalize", "TensorRT-LLM", KernelKind::reduce, "adds up the experts' outputs"},
    {"moe::dev::activation", "TensorRT-LLM", KernelKind::elementwise, "activation of experts"},
    {"tensorrt_llm::kernels::quantize", "TensorRT-LLM", KernelKind::elementwise, "quantisation"},
    {"tensorrt_llm::", "TensorRT-LLM", KernelKind::other, "TensorRT-LLM kernel"},
    {"fbgemm_gpu::permute", "FBGEMM", KernelKind::index, "permutation of jagged data"},
    {"fbgemm_gpu::", "FBGEMM", KernelKind::other, "FBGEMM kernel"},
    {"split_embedding_backward", "FBGEMM", KernelKind::embedding, "embedding tables, backward"},
    {"split_embedding", "FBGEMM", KernelKind::embedding, "embedding tables"},
    {"dense_embedding", "FBGEMM", KernelKind::embedding, "embedding tables"},
    {"bounds_check_indices", "FBGEMM", KernelKind::index, "checks embedding indices"},
    {"vision::ops::", "torchvision", KernelKind::other, "torchvision op"},
    {"_matmul_ogs", "Triton (triton_kernels)", KernelKind::gemm, "GEMM of a mixture of experts"},
    {"_p_matmul_ogs", "Triton (triton_kernels)", KernelKind::gemm, "GEMM of a mixture of experts"},
    {"_finalize_matmul_scatter", "Triton (triton_kernels)", KernelKind::reduce,
     "adds up the experts' outputs"},
    {"_topk_forward", "Triton (triton_kernels)", KernelKind::sort, "top k"},
    {"_sum_bitmatrix_rows", "Triton (triton_kernels)", KernelKind::reduce, "tokens per expert"},
    {"_combined_routing", "Triton (triton_kernels)", KernelKind::sort,
     "routing of a mixture of experts"},
    {"kernel_unified_attention", "Triton (vLLM)", KernelKind::attention,
     "attention over a paged cache"},
    {"reduce_segments", "Triton (vLLM)", KernelKind::attention,
     "joins the parts of a split attention"},
    {"_copy_page_indices", "Triton (vLLM)", KernelKind::index, "page table of the cache"},
    {"attn_fwd", "Triton", KernelKind::attention, "attention, forward"},
    {"_attn_fwd", "Triton", KernelKind::attention, "attention, forward"},
    {"_attn_bwd", "Triton", KernelKind::attention, "attention, backward"},
    {"_fwd_kernel", "Triton", KernelKind::attention, "attention, forward"},
    {"_bwd_kernel", "Triton", KernelKind::attention, "attention, backward"},
    {"_geglu_tanh_forward_kernel", "Triton (Liger)", KernelKind::elementwise,
     "GELU(gate) times up"},
    {"_geglu_tanh_backward_kernel", "Triton (Liger)", KernelKind::elementwise,
     "GELU(gate) times up, backward"},
    {"_swiglu_forward_kernel", "Triton (Liger)", KernelKind::elementwise, "SiLU(gate) times up"},
    {"_swiglu_backward_kernel", "Triton (Liger)", KernelKind::elementwise,
     "SiLU(gate) times up, backward"},
    {"_rms_norm_forward_kernel", "Triton (Liger)", KernelKind::norm, "RMS norm"},
    {"_rms_norm_backward_kernel", "Triton (Liger)", KernelKind::norm, "RMS norm, backward"},
    {"flash::", "flash attention", KernelKind::attention, "attention"},
    {"aiter::", "AITER", KernelKind::other, "AITER kernel"},
};

struct CubMark {
  std::string_view mark;
  KernelKind kind;
  std::string_view what;
};
constexpr CubMark kCubMarks[] = {{"RadixSort", KernelKind::sort, "radix sort"},
                                 {"MergeSort", KernelKind::sort, "merge sort"},
                                 {"SegmentedSort", KernelKind::sort, "segmented sort"},
                                 {"Scan", KernelKind::reduce, "scan"},
                                 {"ReduceByKey", KernelKind::reduce, "reduction by key"},
                                 {"SegmentedReduce", KernelKind::reduce, "segmented reduction"},
                                 {"Reduce", KernelKind::reduce, "reduction"},
                                 {"Select", KernelKind::index, "selection"},
                                 {"Compact", KernelKind::index, "compaction"},
                                 {"Histogram", KernelKind::reduce, "histogram"},
                                 {"for_each", KernelKind::elementwise, "for each"},
                                 {"parallel_for", KernelKind::elementwise, "for each"},
                                 {"unique", KernelKind::index, "unique"}};

bool decode_cub(const NameText& name, KernelName& out) {
  const std::string_view function = name.cpp.name;
  const bool is_thrust = contains(function, "thrust::");
  if (!is_thrust && !contains(function, "cub::")) return false;
  out.family = is_thrust ? "Thrust" : "CUB";
  out.kind = KernelKind::other;
  out.summary = out.family + " kernel";
  const std::string_view base = base_name(function);
  known(out, "function", std::string(base));
  for (const CubMark& mark : kCubMarks) {
    if (!contains(base, mark.mark) && !(is_thrust && contains(name.text, mark.mark))) continue;
    out.kind = mark.kind;
    known(out, "operation", std::string(mark.what));
    out.summary = std::string(mark.what);
    break;
  }
  return true;
}

// _matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu
void read_matmul_ogs(std::string_view text, KernelName& out) {
  GemmFacts& g = out.gemm.emplace();
  g.is_column_major = false;
  for (const std::string_view token : split(text, '_')) {
    const std::vector<std::string_view> types = split(token, 'x');
    const std::vector<int64_t> sizes = parse_sizes(token);
    if (sizes.size() >= 3) {
      set_tile(out, std::span(sizes).first(3), true, "M x N x K");
      if (sizes.size() > 3) g.splits_k = sizes[3] > 1;
    } else if (token == "swiglu") {
      g.epilogue.emplace_back("swiglu");
    } else if (token.starts_with("bf16x") || token.starts_with("fp16x") ||
               token.starts_with("f16x")) {
      // "bf16xbf16xmxfp4": the last holds an x of its own.
      const size_t second = token.find('x') + 1;
      const size_t third = token.find('x', second);
      if (third == std::string_view::npos) continue;
      g.c_type = element_type(types[0]);
      g.a_type = element_type(token.substr(second, third - second));
      g.b_type = element_type(token.substr(third + 1));
      add_types_field(out, true, "output, A, B");
    }
  }
  if (!g.epilogue.empty()) known(out, "epilogue", join(g.epilogue, "+"));
  out.summary = summarise_gemm(out);
}

}  // namespace

bool decode_trtllm(const NameText& name, KernelName& out) {
  const std::vector<std::string_view> tokens = split(name.text, '_');
  if (tokens.size() < 5 || (tokens[0] != "bmm" && tokens[0] != "gemm")) return false;
  const std::vector<std::string_view> c = parse_type_list(tokens[1]);
  const std::vector<std::string_view> ab = parse_type_list(tokens[2]);
  const std::vector<std::string_view> accumulator = parse_type_list(tokens[3]);
  if (c.size() != 1 || ab.empty() || ab.size() > 2 || accumulator.size() != 1) return false;
  out.family = "TensorRT-LLM";
  out.kind = KernelKind::gemm;
  GemmFacts& g = out.gemm.emplace();
  g.c_type = c[0];
  g.a_type = ab[0];
  g.b_type = ab.back();
  g.accumulator = accumulator[0];
  g.uses_tensor_cores = true;
  known(out, "batched", tokens[0] == "bmm" ? "yes" : "no");
  add_types_field(out, true, "output, A and B, accumulator");
  for (const std::string_view token : std::span(tokens).subspan(4)) read_bmm_token(out, token);
  if (!g.epilogue.empty()) known(out, "epilogue", join(g.epilogue, "+"));
  inferred(out, "tensor_cores", "yes", "its MMA shape exists on tensor cores only");
  out.summary = summarise_gemm(out);
  return true;
}

bool decode_listed(const NameText& name, KernelName& out) {
  const std::string mangled = mangled_function(name.text);
  const std::string_view function = mangled.empty() ? name.cpp.name : std::string_view(mangled);
  for (const Listed& listed : kListed) {
    if (!function.starts_with(listed.start)) continue;
    out.family = std::string(listed.family);
    out.kind = listed.kind;
    known(out, "function", std::string(base_name(function)));
    known(out, "operation", std::string(listed.what));
    out.summary = std::string(listed.what);
    if (listed.start.ends_with("matmul_ogs")) read_matmul_ogs(function, out);
    return true;
  }
  return decode_cub(name, out);
}

}  // namespace epilogue::trace
