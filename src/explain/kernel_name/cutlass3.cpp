// SPDX-License-Identifier: Apache-2.0
// CUTLASS 3.x:
//   cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnt_align8
//   _warpspecialized_cooperative_epi_tma
#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
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

}  // namespace epilogue::trace
