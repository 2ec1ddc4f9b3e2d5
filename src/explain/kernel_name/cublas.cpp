// SPDX-License-Identifier: Apache-2.0
// cuBLAS and cuBLASLt:
//   sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_...
//   nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT
//   gemv2T_kernel_val<...>, splitKreduce_kernel<...>, gemmSN_TN_kernel<...>,
//   magma_sgemmEx_kernel<...>
#include <array>
#include <cctype>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kXmmaEpilogues[] = {"gelu",  "relu",   "dgelu",
                                               "drelu", "bgrada", "bgradb"};

// Of a convolution the same grammar has more words before the types.
void read_xmma_token(KernelName& out, std::string_view token, std::vector<std::string>& variant) {
  constexpr std::string_view kNote = "read off many names";
  if (const auto tile = parse_prefixed(token, "tilesize"); !tile.empty()) {
    set_tile(out, tile);
  } else if (const auto cluster = parse_prefixed(token, "cgasize"); !cluster.empty()) {
    set_cluster(out, cluster);
  } else if (const auto stages = parse_prefixed(token, "stage"); stages.size() == 1) {
    set_stages(out, stages[0]);
  } else if (const auto warps = parse_prefixed(token, "warpsize"); !warps.empty()) {
    known(out, "warps", format_sizes(warps), "warps of a block along M, N, K");
  } else if (const auto groups = parse_prefixed(token, "warpgroupsize"); !groups.empty()) {
    known(out, "warp_groups", format_sizes(groups), "groups of four warps along M, N, K");
  } else if (const auto mma = parse_prefixed(token, "tensor"); !mma.empty()) {
    out.gemm->uses_tensor_cores = true;
    out.gemm->instruction = format_sizes(mma);
    known(out, "instruction", out.gemm->instruction, "M x N x K of one MMA");
  } else if (token == "ffma") {
    out.gemm->uses_tensor_cores = false;
    known(out, "instruction", "ffma", "ordinary multiply-adds");
  } else if (is_one_of(token, kXmmaEpilogues) || token == "bias" || token == "aux") {
    out.gemm->epilogue.emplace_back(token);
  } else if (token.starts_with("align")) {
    inferred(out, token.substr(0, 6) == "aligna" ? "alignment_a" : "alignment_c",
             std::string(token.substr(6 < token.size() ? 6 : token.size())), std::string(kNote));
  } else if (!token.empty()) {
    variant.emplace_back(token);
  }
}

// "bf16bf16", "bf16f32", "f32": A[B]D, then A[B] or the math with the accumulator, then the scale.
void set_xmma_types(KernelName& out, const std::vector<std::string_view>& first,
                    const std::vector<std::string_view>& second) {
  GemmFacts& g = *out.gemm;
  g.a_type = first.front();
  g.b_type = first.size() > 2 ? first[1] : first.front();
  g.c_type = first.back();
  g.accumulator = second.back();
  if (second.front() != first.front()) g.math_type = second.front();
  if (g.a_type == "tf32") {
    g.a_type = g.b_type = "f32";
    g.math_type = "tf32";
  }
  add_types_field(out, true, "order of the types read off many names");
}

bool is_pair(std::string_view token) {
  return token.size() == 2 && token.find_first_not_of("tn") == std::string_view::npos;
}

// nvjet's letters: h f16, t bf16, s f32, b i8, i i32; of fp8 and fp4 q, r, o.
std::string_view nvjet_type(char letter, bool& is_inferred) {
  switch (letter) {
    case 'h': return "f16";
    case 't': return "bf16";
    case 's': return "f32";
    case 'd': return "f64";
    case 'b': return "i8";
    case 'i': return "i32";
    default: break;
  }
  is_inferred = true;
  switch (letter) {
    case 'q': return "e4m3";
    case 'r': return "e5m2";
    case 'o': return "e2m1";
    default: return {};
  }
}

// Three letters: in, accumulator, out. Five: A, B, C, accumulator, D.
bool set_nvjet_types(KernelName& out, std::string_view letters) {
  if (letters.size() != 3 && letters.size() != 5) return false;
  bool is_inferred = letters.size() == 5;
  std::array<std::string_view, 5> types;
  for (size_t i = 0; i < letters.size(); ++i) {
    types[i] = nvjet_type(letters[i], is_inferred);
    if (types[i].empty()) return false;
  }
  GemmFacts& g = *out.gemm;
  g.a_type = types[0];
  g.b_type = letters.size() == 5 ? types[1] : types[0];
  g.accumulator = letters.size() == 5 ? types[3] : types[1];
  g.c_type = letters.size() == 5 ? types[4] : types[2];
  return true;
}

void read_nvjet_token(KernelName& out, std::string_view token, std::vector<std::string>& variant) {
  GemmFacts& g = *out.gemm;
  const std::vector<int64_t> sizes = parse_sizes(token);
  if (sizes.size() == 2 && !g.tile_m) {
    set_tile(out, sizes);
  } else if (sizes.size() == 2 && !g.stages) {
    if (sizes[0] > 0) g.tile_k = sizes[0];
    known(out, "tile_k", std::to_string(sizes[0]));
    set_stages(out, sizes[1]);
  } else if (sizes.size() == 2) {
    set_cluster(out, sizes);
  } else if (token == "h" || token == "v") {
    inferred(out, "raster", token == "h" ? "horizontal" : "vertical", "order of the tiles");
  } else if (token == "bz" || token == "badd") {
    inferred(out, "beta", token == "bz" ? "zero" : "added", "whether C is read and added");
  } else if (token == "2cta") {
    known(out, "two_cta", "yes", "pairs of blocks share one MMA");
  } else if (token == "splitK") {
    g.splits_k = true;
    known(out, "split_k", "yes", "a reduction kernel follows");
  } else if (token == "tf32") {
    g.math_type = "tf32";
  } else if (token.ends_with("bias") || token.starts_with("aux") || token.ends_with("aux")) {
    for (const std::string_view part : {"relu", "gelu", "bias", "aux"})
      if (contains(token, part)) g.epilogue.emplace_back(part);
  } else if (token.size() == 3 && token.find_first_not_of("TN") == std::string_view::npos) {
    const std::string lower = {static_cast<char>(std::tolower(token[0])),
                               static_cast<char>(std::tolower(token[1]))};
    set_layout(out, lower);
  } else if (!token.empty()) {
    variant.emplace_back(token);
  }
}

struct CublasKernel {
  std::string_view start;  // of the name without its namespaces
  KernelKind kind;
  std::string_view what;
};
constexpr CublasKernel kCublasKernels[] = {
    {"splitKreduce_kernel", KernelKind::split_k_reduce, "adds up the parts of a split-K GEMM"},
    {"gemv2T", KernelKind::gemv, "matrix times vector, transposed"},
    {"gemv2N", KernelKind::gemv, "matrix times vector"},
    {"gemvNSP", KernelKind::gemv, "matrix times vector, small"},
    {"gemv", KernelKind::gemv, "matrix times vector"},
    {"gemmSN_NN", KernelKind::gemm, "GEMM with a small N"},
    {"gemmSN_TN", KernelKind::gemm, "GEMM with a small N, transposed"},
    {"gemmk1_kernel", KernelKind::gemm, "GEMM with K = 1: an outer product"},
    {"gemm_kernel", KernelKind::gemm, "GEMM"},
    {"dot_kernel", KernelKind::reduce, "dot product, first pass"},
    {"reduce_1Block_kernel", KernelKind::reduce, "dot product, last pass"},
    {"ger_kernel", KernelKind::gemm, "outer product"},
    {"scal_kernel", KernelKind::elementwise, "scales a vector"},
    {"axpy_kernel", KernelKind::elementwise, "adds a scaled vector"},
    {"magma_sgemm", KernelKind::gemm, "f32 GEMM of MAGMA"},
    {"magma_dgemm", KernelKind::gemm, "f64 GEMM of MAGMA"},
    {"magma_hgemm", KernelKind::gemm, "f16 GEMM of MAGMA"},
    {"magma_lds128_sgemm", KernelKind::gemm, "f32 GEMM of MAGMA"},
    {"magma_", KernelKind::other, "MAGMA"},
};

}  // namespace

bool decode_xmma(const NameText& name, KernelName& out) {
  const std::string_view text = name.text.substr(0, name.text.find_first_of("<( "));
  const std::vector<std::string_view> tokens = split(text, '_');
  if (tokens.size() < 5 || !tokens[0].starts_with("sm") || tokens[1] != "xmma") return false;
  size_t types_at = 3;
  while (types_at + 1 < tokens.size() && parse_type_list(tokens[types_at]).size() < 2) ++types_at;
  const auto first = parse_type_list(tokens[types_at]);
  const auto second = types_at + 1 < tokens.size() ? parse_type_list(tokens[types_at + 1])
                                                   : std::vector<std::string_view>();
  if (first.size() < 2 || second.empty()) return false;
  out.kind = tokens[2] == "gemm" ? KernelKind::gemm : KernelKind::conv;
  out.family = out.kind == KernelKind::gemm ? "cuBLAS xmma" : "cuDNN xmma";
  out.gemm.emplace();
  known(out, "arch", std::string(tokens[0]), "generation of the code, not of the device");
  if (out.kind == KernelKind::conv) known(out, "direction", std::string(tokens[2]));
  // Hopper's warp groups exist for its tensor cores only.
  if (contains(text, "warpgroupsize")) out.gemm->uses_tensor_cores = true;
  set_xmma_types(out, first, second);
  std::vector<std::string> variant;
  for (size_t i = types_at + 3; i < tokens.size() && tokens[i] != "kernel"; ++i) {
    if (is_pair(tokens[i]) && out.gemm->layout.empty() && out.kind == KernelKind::gemm) {
      set_layout(out, tokens[i]);
    } else if (tokens[i] == "split" && i + 1 < tokens.size() && tokens[i + 1] == "k") {
      out.gemm->splits_k = true;
      known(out, "split_k", "yes");
      ++i;
    } else if (tokens[i] != "execute") {
      read_xmma_token(out, tokens[i], variant);
    }
  }
  if (out.gemm->uses_tensor_cores)
    known(out, "tensor_cores", *out.gemm->uses_tensor_cores ? "yes" : "no");
  if (!out.gemm->epilogue.empty()) known(out, "epilogue", join(out.gemm->epilogue, "+"));
  if (!variant.empty()) known(out, "variant", join(variant, "_"), "not decoded further");
  out.summary = summarise_gemm(out);
  return true;
}

bool decode_nvjet(const NameText& name, KernelName& out) {
  if (!name.text.starts_with("nvjet_")) return false;
  const std::vector<std::string_view> tokens =
      split(name.text.substr(0, name.text.find_first_of("<( ")), '_');
  const bool has_arch = tokens[1].starts_with("sm");
  const size_t types_at = has_arch ? 2 : 1;
  if (tokens.size() < types_at + 3) return false;
  out.gemm.emplace();
  if (!set_nvjet_types(out, tokens[types_at])) {
    out.gemm.reset();
    return false;
  }
  out.family = "cuBLAS nvjet";
  out.kind = KernelKind::gemm;
  out.gemm->uses_tensor_cores = true;
  if (has_arch) known(out, "arch", std::string(tokens[1]));
  std::vector<std::string> variant;
  for (size_t i = types_at + 1; i < tokens.size(); ++i) read_nvjet_token(out, tokens[i], variant);
  bool has_inferred_type = tokens[types_at].size() == 5;
  add_types_field(out, has_inferred_type,
                  has_inferred_type ? "fp8 and fp4 letters read off many names" : "");
  inferred(out, "tensor_cores", "yes", "nvjet kernels are written for Hopper's and later ones");
  if (!out.gemm->epilogue.empty()) known(out, "epilogue", join(out.gemm->epilogue, "+"));
  if (!variant.empty()) known(out, "variant", join(variant, "_"), "not decoded further");
  out.summary = summarise_gemm(out);
  return true;
}

bool decode_cublas(const NameText& name, KernelName& out) {
  const bool is_lt_epilogue = name.cpp.name == "epilogue::impl::globalKernel";
  const std::string_view base =
      contains(name.cpp.name, "gemvx::") ? "gemv" : base_name(name.cpp.name);
  const CublasKernel* found = nullptr;
  for (const CublasKernel& kernel : kCublasKernels) {
    if (found == nullptr && base.starts_with(kernel.start)) found = &kernel;
  }
  if (found == nullptr && !is_lt_epilogue) return false;
  out.family = base.starts_with("magma") ? "MAGMA" : "cuBLAS";
  out.kind = is_lt_epilogue ? KernelKind::elementwise : found->kind;
  out.summary = is_lt_epilogue ? "epilogue (bias, activation) of a cuBLASLt GEMM, as its own kernel"
                               : std::string(found->what);
  known(out, "operation", out.summary);
  std::vector<std::string> types;
  for (const std::string_view arg : name.cpp.args) {
    // int is an index type here, bool a flag.
    const std::string_view type = element_type(arg);
    if (!type.empty() && type != "i32" && type != "bool" && type != "i64") types.emplace_back(type);
  }
  if (!types.empty()) {
    inferred(out, "types", join(types, ", "), "from the template arguments, in their order");
    out.summary += ", " + types.front();
  }
  if (out.kind == KernelKind::gemm || out.kind == KernelKind::gemv) {
    out.gemm.emplace();
    if (!types.empty()) out.gemm->a_type = out.gemm->b_type = types.front();
    if (base.starts_with("gemmSN_")) set_layout(out, base.starts_with("gemmSN_TN") ? "tn" : "nn");
    if (out.kind == KernelKind::gemv) out.gemm->uses_tensor_cores = false;
  }
  return true;
}

}  // namespace epilogue::trace
