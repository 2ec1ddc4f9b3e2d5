// SPDX-License-Identifier: Apache-2.0
// CUTLASS 2.x and the libraries' own families that share its word for the arithmetic:
//   cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8
//   ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_32x5_tn
//   volta_sgemm_64x32_sliced1x4_nn, volta_scudnn_128x64_relu_interior_nn_v1
#include <algorithm>
#include <cctype>
#include <string>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
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
  // What is not printed is the accumulator's type.
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

}  // namespace epilogue::trace
