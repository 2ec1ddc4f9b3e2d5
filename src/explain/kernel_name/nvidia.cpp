// SPDX-License-Identifier: Apache-2.0
// Names of NVIDIA's libraries: CUTLASS, cuBLAS, cuDNN.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {

// CUTLASS 2.x and the libraries' own families that share its word for the arithmetic:
//   cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8
//   ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_32x5_tn
//   volta_sgemm_64x32_sliced1x4_nn, volta_scudnn_128x64_relu_interior_nn_v1

namespace {

constexpr std::string_view kArchs[] = {"maxwell", "pascal", "volta",  "turing",
                                       "ampere",  "ada",    "hopper", "blackwell"};
constexpr std::string_view kProducts[] = {"gemm", "cudnn", "fprop", "dgrad", "wgrad"};
constexpr std::string_view kMmaEpilogues[] = {"relu", "gelu",   "drelu", "dgelu",
                                              "bias", "bgrada", "bgradb"};
constexpr std::string_view kLayouts[] = {"nn", "nt", "tn", "tt"};
constexpr std::string_view kImageLayouts[] = {"nhwc", "nchw", "ndhwc"};
constexpr std::string_view kConvModes[] = {"optimized", "analytic", "fewchannels", "fixedchannels"};

// Digits of an MMA instruction, M N K run together.
constexpr std::pair<std::string_view, std::string_view> kInstructions[] = {
    {"884", "8x8x4"},     {"1684", "16x8x4"},     {"1688", "16x8x8"},     {"16816", "16x8x16"},
    {"16832", "16x8x32"}, {"16864", "16x8x64"},   {"8816", "8x8x16"},     {"8832", "8x8x32"},
    {"88128", "8x8x128"}, {"168128", "16x8x128"}, {"168256", "16x8x256"}, {"161616", "16x16x16"},
    {"32816", "32x8x16"}, {"83216", "8x32x16"},   {"16168", "16x16x8"}};

constexpr std::pair<char, std::string_view> kAccumulators[] = {
    {'s', "f32"}, {'h', "f16"}, {'i', "i32"}, {'d', "f64"}, {'c', "c64"}, {'z', "c128"}};

// "s16816gemm", "s1688tf32gemm", "gcgemm", "scudnn", "s16816fprop".
struct Arithmetic {
  std::string_view accumulator;  // a type
  std::string_view instruction;  // "" for none: no tensor cores
  std::string_view math;         // "tf32", "bf16": what inputs are rounded to
  std::string_view product;
};

std::optional<Arithmetic> parse_arithmetic(std::string_view word) {
  Arithmetic a;
  for (const std::string_view product : kProducts)
    if (word.ends_with(product)) a.product = product;
  if (a.product.empty()) return std::nullopt;
  word.remove_suffix(a.product.size());
  if (word.starts_with("gc") || word.starts_with("gz")) word.remove_prefix(1);  // 3M complex
  if (word.empty()) return std::nullopt;
  for (const auto& [letter, type] : kAccumulators)
    if (word.front() == letter) a.accumulator = type;
  if (a.accumulator.empty()) return std::nullopt;
  word.remove_prefix(1);
  size_t digits = 0;
  while (digits < word.size() && std::isdigit(static_cast<unsigned char>(word[digits])) != 0)
    ++digits;
  for (const auto& [joined, sizes] : kInstructions)
    if (word.substr(0, digits) == joined) a.instruction = sizes;
  if (digits > 0 && a.instruction.empty()) return std::nullopt;
  word.remove_prefix(digits);
  a.math = element_type(word);
  if (!word.empty() && a.math.empty()) return std::nullopt;
  return a;
}

// The tokens between the arithmetic and the end of the name.
class Suffix {
 public:
  Suffix(KernelName& out, bool is_cutlass) : out_(out), is_cutlass_(is_cutlass) {}

  void read(std::span<const std::string_view> tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == "stages" && i + 1 < tokens.size()) {
        read_depth(tokens[++i], "K of a block x stages, as read by users of these libraries");
      } else {
        read_token(tokens[i]);
      }
    }
    if (!other_.empty()) known(out_, "variant", join(other_, "_"), "not decoded further");
  }
  std::string_view input_type() const { return input_type_; }

 private:
  // "32x5": K of the tile and stages.
  void read_depth(std::string_view token, std::string_view note) {
    const std::vector<int64_t> sizes = parse_sizes(token);
    if (sizes.size() != 2 || sizes[0] == 0) return other_.push_back(std::string(token));
    out_.gemm->tile_k = sizes[0];
    const bool is_inferred = !is_cutlass_;
    add_field(out_, "tile_k", std::to_string(sizes[0]), is_inferred, std::string(note));
    set_stages(out_, sizes[1], is_inferred);
  }

  void read_token(std::string_view token) {
    const std::string_view type = element_type(token);
    const std::vector<int64_t> sizes = parse_sizes(token);
    if (!type.empty() && input_type_.empty()) {
      input_type_ = type;
    } else if (sizes.size() == 2 && !out_.gemm->tile_m) {
      set_tile(out_, sizes);
    } else if (sizes.size() == 2 && is_cutlass_) {
      read_depth(token, "K of a block");
    } else if (is_one_of(token, kMmaEpilogues)) {
      read_epilogue(token);
    } else if (is_one_of(token, kLayouts)) {
      set_layout(out_, token);
    } else if (is_one_of(token, kImageLayouts)) {
      known(out_, "image_layout", std::string(token));
    } else if (is_one_of(token, kConvModes)) {
      known(out_, "iterator", std::string(token));
    } else {
      read_detail(token);
    }
  }

  void read_epilogue(std::string_view token) {
    if (token == "relu") {
      // Seen on products with a bias and no activation, so no proof of a ReLU.
      inferred(out_, "epilogue", "relu",
               "can apply ReLU; the libraries also choose it for a bias alone");
    } else {
      known(out_, "epilogue", std::string(token));
      out_.gemm->epilogue.emplace_back(token);
    }
  }

  void read_detail(std::string_view token) {
    if (token.starts_with("align") && parse_number(token.substr(5))) {
      known(out_, "alignment", std::string(token.substr(5)),
            "elements that operands are aligned to");
    } else if (token.starts_with("ldg") && parse_number(token.substr(3))) {
      inferred(out_, "load_width", std::string(token.substr(3)), "elements per global load");
    } else if (const auto slices = parse_prefixed(token, "sliced"); slices.size() == 2) {
      inferred(out_, "k_slices", format_sizes(slices), "K shared out over warps of a block");
    } else if (token == "f2f") {
      inferred(out_, "converts_output", "yes", "16-bit output from a wider accumulator");
    } else if (token == "splitK") {
      out_.gemm->splits_k = true;
      known(out_, "split_k", "yes");
    } else if (token == "winograd") {
      known(out_, "algorithm", "winograd");
    } else if (!token.empty()) {
      other_.emplace_back(token);
    }
  }

  KernelName& out_;
  bool is_cutlass_;
  std::string_view input_type_;
  std::vector<std::string> other_;
};

void set_mma_types(KernelName& out, const Arithmetic& a, std::string_view c_type,
                   std::string_view input_type) {
  GemmFacts& g = *out.gemm;
  const bool on_tensor_cores = g.uses_tensor_cores.value_or(false);
  g.accumulator = std::string(a.accumulator);
  // A type that the name omits is the accumulator's.
  g.a_type = g.b_type = std::string(input_type.empty() ? a.accumulator : input_type);
  g.c_type = std::string(c_type.empty() ? a.accumulator : c_type);
  bool is_inferred = false;
  if (g.a_type == "tf32") {
    g.a_type = g.b_type = "f32";
    g.math_type = "tf32";
  } else if (!a.math.empty()) {
    g.math_type = std::string(a.math);
  } else if (on_tensor_cores && g.a_type == "f32") {
    g.math_type = "tf32";  // tensor cores take no f32
    is_inferred = true;
  }
  add_types_field(out, is_inferred, is_inferred ? "f32 on tensor cores means TF32" : "");
}

void describe_arithmetic(KernelName& out, const Arithmetic& a, bool is_simt) {
  GemmFacts& g = *out.gemm;
  g.uses_tensor_cores = !is_simt && !a.instruction.empty();
  known(out, "tensor_cores", *g.uses_tensor_cores ? "yes" : "no",
        *g.uses_tensor_cores ? "" : "ordinary multiply-adds");
  if (!a.instruction.empty()) {
    g.instruction = std::string(a.instruction);
    known(out, "instruction", g.instruction, "M x N x K of one MMA");
  }
}

bool decode_tokens(std::span<const std::string_view> tokens, bool is_cutlass, KernelName& out) {
  std::string_view c_type;
  bool is_simt = false;
  std::vector<std::string> prefix;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::optional<Arithmetic> a = parse_arithmetic(tokens[i]);
    if (!a) {
      if (const auto type = element_type(tokens[i]); !type.empty()) c_type = type;
      is_simt = is_simt || tokens[i] == "simt";
      prefix.emplace_back(tokens[i]);
      continue;
    }
    out.kind = a->product == "gemm" ? KernelKind::gemm : KernelKind::conv;
    out.gemm.emplace();
    if (out.kind == KernelKind::conv && a->product != "cudnn")
      known(out, "direction", std::string(a->product));
    describe_arithmetic(out, *a, is_simt);
    Suffix suffix(out, is_cutlass);
    suffix.read(tokens.subspan(i + 1));
    set_mma_types(out, *a, c_type, suffix.input_type());
    out.summary = summarise_gemm(out);
    return true;
  }
  return false;
}

}  // namespace

bool decode_mma(const NameText& name, KernelName& out) {
  // Wrapped: void cutlass::Kernel2<NAME>(NAME::Params).
  std::string_view text = name.cpp.args.empty() ? name.cpp.name : name.cpp.args.front();
  text = text.substr(0, text.find_first_of(":<( "));
  // cuDNN 8 puts its own name before the architecture: cudnn_infer_ampere_scudnn_...
  std::vector<std::string_view> tokens = split(text, '_');
  if (tokens.front() == "cudnn" && tokens.size() > 2) {
    const auto arch = tokens.begin() + (is_one_of(tokens[1], kArchs) ? 1 : 2);
    if (is_one_of(*arch, kArchs)) tokens.erase(tokens.begin(), arch);
  }
  KernelName found;
  if (tokens.front() == "cutlass") {
    if (!decode_tokens(std::span(tokens).subspan(1), true, found)) return false;
    found.family = "CUTLASS 2.x";
    if (const auto sm = tokens.size() > 1 ? parse_number(tokens[1]) : std::nullopt)
      known(found, "arch", "sm" + std::to_string(*sm), "of its instructions, not of the device");
    if (contains(text, "wmma")) known(found, "api", "wmma");
  } else if (is_one_of(tokens.front(), kArchs)) {
    if (!decode_tokens(std::span(tokens).subspan(1), false, found)) return false;
    found.family = found.kind == KernelKind::conv ? "cuDNN SASS" : "cuBLAS SASS";
    known(found, "arch", std::string(tokens.front()), "generation of the code, not of the device");
  } else {
    return false;
  }
  found.name = std::move(out.name);
  out = std::move(found);
  return true;
}

// CUTLASS 3.x:
//   cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnt_align8
//   _warpspecialized_cooperative_epi_tma

namespace {

constexpr std::string_view kSchedules[] = {
    "warpspecialized", "pingpong", "cooperative", "1sm", "2sm", "streamk"};
constexpr std::string_view kCutlassEpilogues[] = {"bias",     "gelu",  "relu", "aux",
                                                  "scalemax", "drelu", "dgelu"};

// "s64x128x16gemm" -> 64x128x16.
std::vector<int64_t> instruction_of(std::string_view token) {
  if (!token.ends_with("gemm") || token.size() < 6) return {};
  token.remove_suffix(4);
  const size_t end = token.find_last_of("0123456789");
  if (end == std::string_view::npos) return {};
  return parse_sizes(token.substr(1, end));
}

// A, B, accumulator, C, D, in this order.
void set_cutlass_types(KernelName& out, const std::vector<std::string_view>& types) {
  if (types.size() < 5) return;
  GemmFacts& g = *out.gemm;
  g.a_type = types[0];
  g.b_type = types[1];
  g.accumulator = types[2];
  g.c_type = types[4];
  if (g.a_type == "tf32") {
    g.a_type = g.b_type = "f32";
    g.math_type = "tf32";
  }
  add_types_field(out, false);
}

bool is_layout(std::string_view token) {
  return token.size() == 3 && token.find_first_not_of("tn") == std::string_view::npos;
}

struct Reader {
  KernelName& out;
  std::vector<std::string_view> types;
  std::vector<std::string> schedule;
  std::vector<std::string> variant;

  void read(std::string_view token) {
    const std::vector<int64_t> sizes = parse_sizes(token);
    if (const auto type = element_type(token); !type.empty()) {
      types.push_back(type);
    } else if (const auto shape = instruction_of(token); shape.size() == 3) {
      out.gemm->instruction = format_sizes(shape);
      known(out, "instruction", out.gemm->instruction, "M x N x K of one MMA");
    } else if (sizes.size() == 3 && !out.gemm->tile_m) {
      set_tile(out, sizes);
    } else if (sizes.size() == 3) {
      set_cluster(out, sizes);
    } else if (sizes.size() == 1 && !out.gemm->stages && sizes[0] > 0) {
      set_stages(out, sizes[0]);
    } else if (is_layout(token)) {
      set_layout(out, token.substr(0, 2));
    } else if (token.starts_with("align")) {
      known(out, "alignment", std::string(token.substr(5)));
    } else if (is_one_of(token, kSchedules)) {
      schedule.emplace_back(token);
    } else if (is_one_of(token, kCutlassEpilogues)) {
      out.gemm->epilogue.emplace_back(token);
    } else if (!token.empty() && token != "0") {
      variant.emplace_back(token);
    }
  }
};

}  // namespace

bool decode_cutlass3(const NameText& name, KernelName& out) {
  std::string_view text = name.cpp.args.empty() ? name.cpp.name : name.cpp.args.front();
  text = text.substr(0, text.find_first_of(":<( "));
  if (!text.starts_with("cutlass3x_")) return false;
  const std::vector<std::string_view> tokens = split(text, '_');
  out.family = "CUTLASS 3.x";
  out.kind = KernelKind::gemm;
  out.gemm.emplace();
  Reader reader{out};
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (i == 1 && tokens[i].starts_with("sm")) {
      known(out, "arch", std::string(tokens[i]), "of its instructions, not of the device");
    } else if (tokens[i] == "tensorop" || tokens[i] == "bstensorop" || tokens[i] == "simt") {
      out.gemm->uses_tensor_cores = tokens[i] != "simt";
      known(out, "tensor_cores", *out.gemm->uses_tensor_cores ? "yes" : "no");
    } else {
      reader.read(tokens[i]);
    }
  }
  set_cutlass_types(out, reader.types);
  if (!reader.schedule.empty()) known(out, "schedule", join(reader.schedule, "_"));
  if (!out.gemm->epilogue.empty()) known(out, "epilogue", join(out.gemm->epilogue, "+"));
  if (!reader.variant.empty())
    known(out, "variant", join(reader.variant, "_"), "not decoded further");
  out.summary = summarise_gemm(out);
  return true;
}

// cuBLAS and cuBLASLt:
//   sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_...
//   nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT
//   gemv2T_kernel_val<...>, splitKreduce_kernel<...>, gemmSN_TN_kernel<...>,
//   magma_sgemmEx_kernel<...>

namespace {

constexpr std::string_view kXmmaEpilogues[] = {"gelu",  "relu",   "dgelu",
                                               "drelu", "bgrada", "bgradb"};

// Names of convolutions have more words before the types.
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

// cuDNN: convolutions that are no GEMM family, batch norm, layout changes; MIOpen's helpers.

namespace {

struct CudnnKernel {
  std::string_view mark;  // in the name without namespaces
  KernelKind kind;
  std::string_view what;
};
constexpr CudnnKernel kCudnnKernels[] = {
    {"bn_fw_tr", KernelKind::norm, "batch norm, training, forward"},
    {"bn_fw_inf", KernelKind::norm, "batch norm, inference"},
    {"bn_bw", KernelKind::norm, "batch norm, backward"},
    {"wgrad", KernelKind::conv, "convolution, gradient of the weight"},
    {"dgrad", KernelKind::conv, "convolution, gradient of the input"},
    {"winograd", KernelKind::conv, "Winograd convolution"},
    {"Winograd", KernelKind::conv, "Winograd convolution"},
    {"implicit_convolve", KernelKind::conv, "convolution as an implicit GEMM"},
    {"explicit_convolve", KernelKind::conv, "convolution as a GEMM of an image-to-columns matrix"},
    {"precomputed_convolve", KernelKind::conv, "convolution with precomputed offsets"},
    {"convolve", KernelKind::conv, "convolution"},
    {"conv2d", KernelKind::conv, "convolution"},
    {"im2col", KernelKind::conv, "image to columns"},
    {"Im2d2Col", KernelKind::conv, "image to columns"},
    {"Col2Im", KernelKind::conv, "columns to image"},
    {"fft", KernelKind::conv, "FFT of a convolution"},
    {"computeOffsets", KernelKind::conv, "offset table of a convolution"},
    {"computeBOffsets", KernelKind::conv, "offset table of a convolution"},
    {"computeWgrad", KernelKind::conv, "offset table of a convolution"},
    {"precompute_indices", KernelKind::conv, "offset table of a convolution"},
    {"Nhwc", KernelKind::copy, "changes the image layout"},
    {"Nchw", KernelKind::copy, "changes the image layout"},
    {"nhwc", KernelKind::copy, "changes the image layout"},
    {"nchw", KernelKind::copy, "changes the image layout"},
    {"scalePackedTensor", KernelKind::elementwise, "scales a tensor"},
    {"convertTensor", KernelKind::copy, "converts a tensor"},
    {"SubTensorOpWithCast", KernelKind::copy, "casts a tensor"},
    {"SubTensorOpWithScalar", KernelKind::elementwise, "tensor with a scalar"},
    {"softmax", KernelKind::softmax, "softmax"},
    {"pooling", KernelKind::other, "pooling"},
    {"RNN", KernelKind::other, "recurrent network"},
    {"LSTM", KernelKind::other, "recurrent network"},
};
constexpr std::string_view kLooseMarks[] = {
    "convolve_", "FoldedNhwc", "foldedNhwc",      "SubTensorOp",    "Im2d2Col",
    "Col2Im2d",  "wgrad_alg",  "dgrad_alg",       "dgrad_engine",   "wgrad_engine",
    "dgrad2d_",  "wgrad2d_",   "_wgrad_implicit", "_dgrad_implicit"};

// "..._128x128_sliced1x4_ldg4_exp_interior_nhwc_tn_v1"
bool is_product_name(std::string_view name) {
  return contains(name, "_sliced") || contains(name, "_ldg") || contains(name, "scudnn") ||
         contains(name, "gemm");
}

}  // namespace

bool decode_cudnn(const NameText& name, KernelName& out) {
  const std::string_view function = name.cpp.name;
  bool is_ours = function.starts_with("cudnn::") || function.starts_with("cask_cudnn") ||
                 function.starts_with("cask__5x_cudnn") || function.starts_with("cudnn_");
  const std::string_view base = base_name(function);
  for (const std::string_view mark : kLooseMarks) is_ours = is_ours || contains(base, mark);
  if (!is_ours) return false;
  // The winograd kernels of one stage are named by their namespace.
  const std::string_view where = contains(function, "winograd") ? function : base;
  for (const CudnnKernel& kernel : kCudnnKernels) {
    if (!contains(where, kernel.mark)) continue;
    // An image layout in the middle of a product's name is its operands'.
    if (kernel.kind == KernelKind::copy && is_product_name(base)) return false;
    const bool is_miopen = base.starts_with("SubTensorOp") || contains(base, "Im2d");
    out.family = is_miopen ? "MIOpen" : "cuDNN";
    out.kind = kernel.kind;
    known(out, "function", std::string(base));
    known(out, "operation", std::string(kernel.what));
    out.summary = std::string(kernel.what);
    for (const std::string_view arg : name.cpp.args) {
      const std::string_view type = element_type(arg);
      if (type.empty() || type == "bool" || type == "i32") continue;
      inferred(out, "type", std::string(type), "first type of the template");
      out.summary += ", " + std::string(type);
      break;
    }
    return true;
  }
  return false;
}

}  // namespace epilogue::trace
