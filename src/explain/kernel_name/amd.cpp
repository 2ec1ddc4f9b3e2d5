// SPDX-License-Identifier: Apache-2.0
// AMD's libraries: Tensile (rocBLAS, hipBLASLt), Composable Kernel, MIOpen.
//   Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_..._WG64_4_1
//   _ZN2ck16tensor_operation6device..., igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_...
#include <algorithm>
#include <cctype>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

// Tensile's letters of element types, longest first.
constexpr std::pair<std::string_view, std::string_view> kTensileTypes[] = {
    {"F8N", "e4m3"}, {"B8N", "e5m2"}, {"F8", "e4m3"}, {"B8", "e5m2"}, {"I8", "i8"},
    {"H", "f16"},    {"B", "bf16"},   {"S", "f32"},   {"D", "f64"},   {"C", "c64"},
    {"Z", "c128"},   {"I", "i32"},    {"X", "xf32"}};

std::vector<std::string_view> tensile_types(std::string_view text) {
  std::vector<std::string_view> types;
  while (!text.empty()) {
    const auto* const it = std::find_if(std::begin(kTensileTypes), std::end(kTensileTypes),
                                        [&](const auto& t) { return text.starts_with(t.first); });
    if (it == std::end(kTensileTypes)) return {};
    types.push_back(it->second);
    text.remove_prefix(it->first.size());
  }
  return types;
}

// "BBS" = A and B, output, accumulator; "SB" = f32 with beta; "B_BS" spells the first apart.
void set_tensile_types(KernelName& out, std::string_view first, std::string_view second) {
  std::vector<std::string_view> types = tensile_types(first);
  if (types.size() == 1)
    for (const std::string_view type : tensile_types(second)) types.push_back(type);
  if (types.empty()) return;
  GemmFacts& g = *out.gemm;
  g.a_type = g.b_type = types[0];
  if (types.size() == 3) {
    g.c_type = types[1];
    g.accumulator = types[2];
  } else if (types.size() < 3) {
    g.c_type = types[0];
  }
  if (g.a_type == "xf32") {
    g.a_type = g.b_type = "f32";
    g.math_type = "xf32";
  }
  add_types_field(out, true, "A and B, output, accumulator");
}

void read_tensile_token(KernelName& out, std::string_view token) {
  GemmFacts& g = *out.gemm;
  if (const auto tile = parse_prefixed(token, "MT"); tile.size() >= 2) {
    if (!g.tile_m) set_tile(out, tile);
  } else if (const auto mi = parse_prefixed(token, "MI"); mi.size() >= 3) {
    g.uses_tensor_cores = true;
    g.instruction = format_sizes(mi);
    known(out, "instruction", g.instruction,
          mi.size() == 3 ? "M x N x blocks of one MFMA" : "M x N x K x blocks of one MFMA");
  } else if (token.starts_with("ISA") && parse_number(token.substr(3))) {
    known(out, "arch", "gfx" + std::string(token.substr(3)));
  } else if (token.starts_with("GSU") && parse_number(token.substr(3))) {
    g.splits_k = *parse_number(token.substr(3)) > 1;
    known(out, "global_split_u", std::string(token.substr(3)), "parts that K is split into");
  } else if (token.starts_with("SK") && parse_number(token.substr(2))) {
    known(out, "stream_k", std::string(token.substr(2)), "0: off");
  } else if (token.starts_with("PGR") && parse_number(token.substr(3))) {
    known(out, "prefetch_global", std::string(token.substr(3)), "K blocks loaded ahead");
  } else if (token.starts_with("DU") && parse_number(token.substr(2)) && !g.tile_k) {
    g.tile_k = parse_number(token.substr(2));
    known(out, "tile_k", std::string(token.substr(2)));
  } else if (token == "Bias") {
    inferred(out, "bias", "supported", "the kernel can add one; whether it does is an argument");
  }
}

// Ints of a Composable Kernel template after its GridwiseGemm: "Li256ELi128E..." -> 256, 128, ...
std::vector<int64_t> template_ints(std::string_view text) {
  constexpr size_t kMost = 16;
  std::vector<int64_t> values;
  while (text.starts_with("Li") && values.size() < kMost) {
    const size_t end = text.find('E');
    if (end == std::string_view::npos) break;
    const std::optional<int64_t> value = parse_number(text.substr(2, end - 2));
    if (!value) break;
    values.push_back(*value);
    text.remove_prefix(end + 1);
  }
  return values;
}

// Finds "...xdl_cshuffle" gridwise structs: [prefetch stages,] block size, M, N, K per block, AK1,
// BK1, M and N per MFMA, ...
void read_ck_gemm(KernelName& out, std::string_view text) {
  const size_t at = text.find("GridwiseGemm");
  if (at == std::string_view::npos) return;
  const size_t ints_at = text.find("ELi", at);  // an enum's end, or the last type's
  const size_t plain_at = text.find("Li", at);
  for (const size_t begin : {plain_at, ints_at == std::string_view::npos ? ints_at : ints_at + 1}) {
    if (begin == std::string_view::npos) continue;
    std::vector<int64_t> values = template_ints(text.substr(begin));
    if (values.size() > 1 && values[0] < 64) values.erase(values.begin());
    if (values.size() < 8) continue;
    known(out, "block_size", std::to_string(values[0]), "threads");
    set_tile(out, std::span(values).subspan(1, 3), true, "by their place in the template");
    inferred(out, "instruction", format_sizes(std::span(values).subspan(6, 2)),
             "M x N of one MFMA, by its place in the template");
    return;
  }
}

struct CkKind {
  std::string_view mark;
  KernelKind kind;
  std::string_view what;
};
constexpr CkKind kCkKinds[] = {
    {"conv", KernelKind::conv, "convolution"},
    {"fmha", KernelKind::attention, "attention"},
    {"attention", KernelKind::attention, "attention"},
    {"rmsnorm", KernelKind::norm, "RMS norm"},
    {"layernorm", KernelKind::norm, "layer norm"},
    {"norm", KernelKind::norm, "norm"},
    {"softmax", KernelKind::softmax, "softmax"},
    {"gemv", KernelKind::gemv, "matrix times vector"},
    {"gemm", KernelKind::gemm, "GEMM"},
    {"moe", KernelKind::gemm, "GEMM of a mixture of experts"},
    {"reduce", KernelKind::reduce, "reduction"},
    {"transpose", KernelKind::copy, "transposition"},
    {"elementwise", KernelKind::elementwise, "element by element"},
};

std::string conv_direction(std::string_view word) {
  if (contains(word, "fwd") || contains(word, "fprop")) return "fprop";
  if (contains(word, "bwd_weight") || contains(word, "wrw")) return "wgrad";
  if (contains(word, "bwd")) return "dgrad";
  return {};
}

}  // namespace

bool decode_tensile(const NameText& name, KernelName& out) {
  if (!name.text.starts_with("Cijk_")) return false;
  const std::vector<std::string_view> tokens =
      split(name.text.substr(0, name.text.find_first_of("<( ")), '_');
  if (tokens.size() < 4 || tokens[1].size() < 4 || tokens[2].size() < 4) return false;
  out.family = "Tensile";
  out.kind = KernelKind::gemm;
  out.gemm.emplace();
  // Indices are named fastest first: i of M, j of N, l of the sum. Ailk holds M contiguous: n.
  const char a = tokens[1].starts_with("Ai") ? 'n' : 't';
  const char b = tokens[2].starts_with("Bl") ? 'n' : 't';
  set_layout(out, std::string{a, b});
  set_tensile_types(out, tokens[3], tokens.size() > 4 ? tokens[4] : std::string_view());
  for (const std::string_view token : std::span(tokens).subspan(4)) read_tensile_token(out, token);
  if (!out.gemm->uses_tensor_cores) {
    out.gemm->uses_tensor_cores = false;
    inferred(out, "tensor_cores", "no", "no matrix instruction in the name");
  } else {
    known(out, "tensor_cores", "yes", "AMD's matrix cores (MFMA)");
  }
  out.summary = summarise_gemm(out);
  return true;
}

bool decode_ck(const NameText& name, KernelName& out) {
  const std::string mangled = mangled_function(name.text);
  const std::string_view function = mangled.empty() ? name.cpp.name : std::string_view(mangled);
  if (!function.starts_with("ck::") && !function.starts_with("ck_tile::")) return false;
  out.family = "Composable Kernel";
  out.kind = KernelKind::other;
  known(out, "function", std::string(base_name(function)));
  // ck_tile's entry point is generic: its work is in its template arguments.
  const bool is_generic = contains(function, "kentry");
  const std::string_view where = is_generic ? name.text : base_name(function);
  for (const CkKind& kind : kCkKinds) {
    if (!contains_ignoring_case(where, kind.mark)) continue;
    out.kind = kind.kind;
    inferred(out, "operation", std::string(kind.what), "by a word in the name");
    break;
  }
  if (out.kind == KernelKind::conv || out.kind == KernelKind::gemm) {
    out.gemm.emplace().is_column_major = false;
    if (contains(name.text, "xdl")) {
      out.gemm->uses_tensor_cores = true;
      known(out, "tensor_cores", "yes", "xdl: AMD's matrix cores");
    }
    if (out.kind == KernelKind::conv) known(out, "direction", conv_direction(function));
    read_ck_gemm(out, name.text);
    out.summary = summarise_gemm(out);
  } else {
    const KernelField* operation = out.find("operation");
    out.summary = operation == nullptr ? "Composable Kernel function" : operation->value;
  }
  return true;
}

bool decode_miopen(const NameText& name, KernelName& out) {
  const std::vector<std::string_view> tokens = split(name.text, '_');
  if (name.text.starts_with("batched_transpose_")) {
    out.family = "MIOpen";
    out.kind = KernelKind::copy;
    known(out, "operation", "transpose");
    if (tokens.size() > 2) known(out, "tile", std::string(tokens[2]));
    known(out, "element_size", std::string(tokens.back()), "half: any 2-byte type");
    out.summary = "transposes images between NCHW and NHWC";
    return true;
  }
  if (!name.text.starts_with("igemm_") || !contains(name.text, "_gtc")) return false;
  out.family = "MIOpen igemm";
  out.kind = KernelKind::conv;
  out.gemm.emplace().is_column_major = false;
  out.gemm->uses_tensor_cores = true;
  known(out, "direction", conv_direction(tokens[1]));
  for (const std::string_view token : tokens) {
    if (const auto type = element_type(token); !type.empty() && out.gemm->a_type.empty()) {
      out.gemm->a_type = out.gemm->b_type = out.gemm->c_type = type;
      add_types_field(out, false);
    } else if (const auto block = parse_prefixed(token, "bt"); block.size() == 3) {
      set_tile(out, block);
    } else if (const auto wave = parse_prefixed(token, "wt"); wave.size() == 3) {
      inferred(out, "instruction", format_sizes(wave), "M x N x K of one MFMA");
    } else if (token == "nhwc" || token == "nchw") {
      known(out, "image_layout", std::string(token));
    } else if (token == "gkgs") {
      out.gemm->splits_k = true;
      inferred(out, "split_k", "yes", "gkgs: global K split");
    }
  }
  inferred(out, "tensor_cores", "yes", "gtcx: tensor contraction with MFMA");
  out.summary = summarise_gemm(out);
  return true;
}

}  // namespace epilogue::trace
