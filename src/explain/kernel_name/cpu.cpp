// SPDX-License-Identifier: Apache-2.0
// Kernels of CPUs: this project's own and oneDNN's.
//   epi_avx512bf16_gemm_bf16_6x64_tn_bias, epi_avx2_gelu_tanh_f32
//   epi_avx512_row_chain_mm_gelu_mm_mul_mm_bf16, epi_avx512_fused_mul_add_f32
//   onednn_verbose,exec,cpu,matmul,brg:avx512_core_amx_bf16,undef,src_bf16::blocked:ab:f0 ...
#include <algorithm>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

struct OwnKernel {
  std::string_view start;  // of what the kernel does
  KernelKind kind;
};
constexpr OwnKernel kOwnKernels[] = {
    {"layer_norm", KernelKind::norm}, {"rms_norm", KernelKind::norm},
    {"softmax", KernelKind::softmax}, {"log_softmax", KernelKind::softmax},
    {"sum_", KernelKind::reduce},     {"mean_", KernelKind::reduce},
    {"mse_loss", KernelKind::reduce}, {"nll_loss", KernelKind::other},
    {"copy", KernelKind::copy},       {"cast_", KernelKind::copy},
    {"cat", KernelKind::copy},        {"slice_backward", KernelKind::copy},
    {"fill", KernelKind::fill},
};

// Kernels that compile() makes: products with what surrounds them, or pointwise ops alone.
constexpr OwnKernel kFusedKernels[] = {{"row_chain_", KernelKind::gemm},
                                       {"fused_", KernelKind::elementwise}};

// {row_chain|fused}_{ops in the order in which they run}[_etc]
bool decode_own_fused(std::string_view what, std::string_view type, KernelName& out) {
  const auto* const found =
      std::find_if(std::begin(kFusedKernels), std::end(kFusedKernels),
                   [&](const OwnKernel& kernel) { return what.starts_with(kernel.start); });
  if (found == std::end(kFusedKernels)) return false;
  out.kind = found->kind;
  known(out, "operation", std::string(found->start.substr(0, found->start.size() - 1)));
  what.remove_prefix(found->start.size());
  const bool is_cut = what.ends_with("_etc");
  if (is_cut) what.remove_suffix(std::string_view("_etc").size());
  FusedOps fused = split_fused_ops(what, OpOrder::as_they_run);
  out.ops = std::move(fused.ops);
  const std::string list = join(out.ops, ", ") + (is_cut ? ", ..." : "");
  add_field(out, "ops", list, !fused.is_certain,
            is_cut ? "the ATen ops that it stands for; the trace lists those that are cut here"
                   : "the ATen ops that it stands for");
  if (!type.empty()) known(out, "type", std::string(type));
  if (out.kind == KernelKind::gemm) {
    GemmFacts& g = out.gemm.emplace();
    g.is_column_major = false;
    g.a_type = g.b_type = g.c_type = type;
    g.accumulator = "f32";
  }
  out.summary = "one kernel of " + list + (type.empty() ? "" : ", " + std::string(type));
  return true;
}

// epi_{isa}_{gemm|gemv}_{types}_{rows}x{columns}_{tn}[_bias|_add][_batched]
bool decode_own_gemm(std::span<const std::string_view> tokens, KernelName& out) {
  const std::vector<std::string_view> types = parse_type_list(tokens[3]);
  const std::vector<int64_t> tile = parse_sizes(tokens[4]);
  if (types.empty() || tile.size() != 2) return false;
  out.kind = tokens[2] == "gemm" ? KernelKind::gemm : KernelKind::gemv;
  GemmFacts& g = out.gemm.emplace();
  g.is_column_major = false;
  g.a_type = types.front();
  g.b_type = types.size() > 1 ? types[1] : types[0];
  g.c_type = types.back();
  g.accumulator = "f32";
  add_types_field(out, false);
  set_tile(out, tile, false, "rows x columns that registers hold");
  if (tokens[1] == "amx") g.uses_tensor_cores = true;
  for (const std::string_view token : tokens.subspan(5)) {
    if (token.size() == 2 && token.find_first_not_of("tn") == std::string_view::npos) {
      g.layout = token;
      known(out, "layout", std::string(token), "as a column-major library would be told");
    } else if (token == "bias" || token == "add") {
      g.epilogue.emplace_back(token);
      known(out, "epilogue", std::string(token));
    } else if (token == "batched") {
      known(out, "batched", "yes");
    }
  }
  out.summary = summarise_gemm(out);
  return true;
}

// The fields of a verbose line after "exec".
enum OneDnnField : size_t {
  kEngine = 1,
  kPrimitive,
  kImplementation,
  kPropagation,
  kMemory,
  kAttributes
};

struct OneDnnPrimitive {
  std::string_view name;
  KernelKind kind;
};
constexpr OneDnnPrimitive kPrimitives[] = {
    {"matmul", KernelKind::gemm},
    {"inner_product", KernelKind::gemm},
    {"convolution", KernelKind::conv},
    {"deconvolution", KernelKind::conv},
    {"eltwise", KernelKind::elementwise},
    {"binary", KernelKind::elementwise},
    {"prelu", KernelKind::elementwise},
    {"softmax", KernelKind::softmax},
    {"logsoftmax", KernelKind::softmax},
    {"reduction", KernelKind::reduce},
    {"reorder", KernelKind::copy},
    {"concat", KernelKind::copy},
    {"layer_normalization", KernelKind::norm},
    {"batch_normalization", KernelKind::norm},
    {"group_normalization", KernelKind::norm},
    {"sdpa", KernelKind::attention},
    {"pooling", KernelKind::other},
    {"sum", KernelKind::elementwise},
    {"rnn", KernelKind::other},
};

// "src_bf16::blocked:ab:f0 wei_bf16::... dst_bf16::..."
void set_onednn_types(KernelName& out, std::string_view memory) {
  const auto type_of = [&](std::string_view role) -> std::string {
    const size_t at = memory.find(role);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = memory.substr(at + role.size());
    return std::string(element_type(rest.substr(0, rest.find(':'))));
  };
  const std::string from = type_of("src_");
  const std::string to = type_of("dst_");
  if (out.kind == KernelKind::gemm || out.kind == KernelKind::conv) {
    GemmFacts& g = out.gemm.emplace();
    g.is_column_major = false;
    g.a_type = from;
    g.b_type = type_of("wei_");
    g.c_type = to;
    if (contains(memory, "bia_")) g.epilogue.emplace_back("bias");
    add_types_field(out, false);
  } else if (!from.empty()) {
    known(out, "type", from);
    if (!to.empty() && to != from) known(out, "output_type", to);
  }
}

bool decode_verbose(std::string_view text, KernelName& out) {
  const std::vector<std::string_view> all = split(text, ',');
  const auto exec = std::find(all.begin(), all.end(), "exec");
  const std::span<const std::string_view> fields(exec, all.end());
  if (fields.size() <= kMemory) return false;
  out.family = "oneDNN";
  out.kind = KernelKind::other;
  for (const OneDnnPrimitive& p : kPrimitives)
    if (fields[kPrimitive].starts_with(p.name)) {
      out.kind = p.kind;
      break;
    }
  known(out, "engine", std::string(fields[kEngine]));
  known(out, "primitive", std::string(fields[kPrimitive]));
  known(out, "implementation", std::string(fields[kImplementation]));
  known(out, "propagation", std::string(fields[kPropagation]));
  set_onednn_types(out, fields[kMemory]);
  if (fields.size() > kAttributes && !fields[kAttributes].empty())
    known(out, "attributes", std::string(fields[kAttributes]), "fused operations among them");
  if (fields.size() > kAttributes + 2) known(out, "problem", std::string(fields[kAttributes + 2]));
  if (out.gemm && contains(fields[kImplementation], "amx")) out.gemm->uses_tensor_cores = true;
  out.summary = std::string(fields[kPrimitive]) + " by " + std::string(fields[kImplementation]);
  return true;
}

}  // namespace

bool decode_own(const NameText& name, KernelName& out) {
  const std::vector<std::string_view> tokens = split(name.text, '_');
  if (tokens.size() < 4 || tokens[0] != "epi") return false;
  const bool is_cuda = tokens[1] == "cuda";
  out.family = is_cuda ? "epilogue CUDA" : "epilogue CPU";
  if (!is_cuda) known(out, "isa", std::string(tokens[1]), "instruction set it was compiled for");
  if ((tokens[2] == "gemm" || tokens[2] == "gemv") && tokens.size() >= 6 &&
      decode_own_gemm(tokens, out))
    return true;
  // epi_{isa}_{what}_{type}, and `what` has underscores of its own.
  const std::string_view type = element_type(tokens.back());
  std::string_view what = name.text.substr(tokens[0].size() + tokens[1].size() + 2);
  if (!type.empty()) what = what.substr(0, what.rfind('_'));
  if (decode_own_fused(what, type, out)) return true;
  out.kind = KernelKind::elementwise;
  for (const OwnKernel& kernel : kOwnKernels)
    if (what.starts_with(kernel.start)) out.kind = kernel.kind;
  known(out, "operation", std::string(what));
  out.ops = {std::string(what)};
  if (!type.empty()) known(out, "type", std::string(type));
  out.summary = std::string(what) + (type.empty() ? "" : " " + std::string(type));
  return true;
}

bool decode_onednn(const NameText& name, KernelName& out) {
  for (const std::string_view prefix : {"onednn_verbose,", "dnnl_verbose,"})
    if (name.text.starts_with(prefix)) return decode_verbose(name.text, out);
  // An implementation by itself: "brg:avx512_core_amx_bf16", "jit:avx2", "gemm:jit".
  for (const std::string_view prefix : {"brg:", "brgconv:", "brg_matmul:", "jit:", "gemm:jit"}) {
    if (!name.text.starts_with(prefix)) continue;
    out.family = "oneDNN";
    out.kind = prefix.starts_with("brg") && prefix != "brgconv:" ? KernelKind::gemm
               : prefix == "gemm:jit"                            ? KernelKind::gemm
               : prefix == "brgconv:"                            ? KernelKind::conv
                                                                 : KernelKind::other;
    known(out, "implementation", std::string(name.text));
    out.summary = "oneDNN " + std::string(name.text);
    return true;
  }
  return false;
}

}  // namespace epilogue::trace
