// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/kernel_name.h"

#include <algorithm>
#include <array>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

using Decoder = bool (*)(const NameText&, KernelName&);

// The first that takes the name wins; the ones that know by name only come last.
constexpr Decoder kDecoders[] = {
    decode_memory, decode_own,      decode_own_cuda,   decode_onednn,  decode_nvjet,
    decode_xmma,   decode_cutlass3, decode_mma,        decode_tensile, decode_trtllm,
    decode_ck,     decode_miopen,   decode_attention,  decode_triton,  decode_cublas,
    decode_cudnn,  decode_aten,     decode_collective, decode_listed};

constexpr std::array<std::string_view, static_cast<size_t>(KernelKind::other) + 1> kKindNames = {
    "unknown", "gemm",    "gemv",       "splitk-reduce", "conv", "attention", "elementwise",
    "reduce",  "softmax", "norm",       "index",         "sort", "embedding", "optimizer",
    "copy",    "fill",    "collective", "triton",        "other"};

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::string types_text(const GemmFacts& g) {
  std::string text;
  if (!g.a_type.empty()) text = g.a_type + " x " + (g.b_type.empty() ? g.a_type : g.b_type);
  if (!g.c_type.empty()) text += (text.empty() ? "-> " : " -> ") + g.c_type;
  return text;
}

}  // namespace

std::string_view kernel_kind_name(KernelKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

const KernelField* KernelName::find(std::string_view key) const {
  const auto it = std::find_if(fields.begin(), fields.end(),
                               [&](const KernelField& field) { return field.key == key; });
  return it == fields.end() ? nullptr : &*it;
}

KernelName decode_kernel_name(std::string_view name) {
  const NameText text = {name, parse_cpp_name(name)};
  KernelName out;
  out.name = std::string(name);
  for (const Decoder decode : kDecoders)
    if (decode(text, out)) return out;
  out.summary = "unknown kernel";
  return out;
}

// A second value of a key joins the first: keys are unique.
void add_field(KernelName& out, std::string_view key, std::string value, bool is_inferred,
               std::string note) {
  const auto it = std::find_if(out.fields.begin(), out.fields.end(),
                               [&](const KernelField& field) { return field.key == key; });
  if (it == out.fields.end()) {
    out.fields.push_back({std::string(key), std::move(value), is_inferred, std::move(note)});
    return;
  }
  it->value += ", " + value;
  it->is_inferred = it->is_inferred || is_inferred;
}

void known(KernelName& out, std::string_view key, std::string value, std::string note) {
  add_field(out, key, std::move(value), false, std::move(note));
}

void inferred(KernelName& out, std::string_view key, std::string value, std::string note) {
  add_field(out, key, std::move(value), true, std::move(note));
}

void set_tile(KernelName& out, std::span<const int64_t> sizes, bool is_inferred, std::string note) {
  if (sizes.size() < 2 || sizes[0] <= 0 || sizes[1] <= 0) return;
  GemmFacts& g = *out.gemm;
  g.tile_m = sizes[0];
  g.tile_n = sizes[1];
  if (sizes.size() > 2 && sizes[2] > 0) g.tile_k = sizes[2];
  if (note.empty())
    note = g.tile_k ? "M x N of a block's part of the result, K"
                    : "M x N of a block's part of the result";
  add_field(out, "tile", format_sizes(sizes.first(std::min<size_t>(sizes.size(), 3))), is_inferred,
            std::move(note));
}

void set_cluster(KernelName& out, std::span<const int64_t> sizes) {
  if (sizes.size() < 2) return;
  out.gemm->cluster = {sizes[0], sizes[1], sizes.size() > 2 ? sizes[2] : 1};
  known(out, "cluster", format_sizes(sizes), "blocks that share their shared memory");
}

void set_stages(KernelName& out, int64_t stages, bool is_inferred, std::string note) {
  out.gemm->stages = stages;
  add_field(out, "stages", std::to_string(stages), is_inferred,
            note.empty() ? "K blocks in flight in shared memory" : std::move(note));
}

void set_layout(KernelName& out, std::string_view letters) {
  out.gemm->layout = std::string(letters);
  known(out, "layout", std::string(letters),
        out.gemm->is_column_major
            ? "A, B of a column-major product (out^T = B^T A^T): t transposed, n not"
            : "t: transposed, n: not");
}

void add_types_field(KernelName& out, bool is_inferred, std::string note) {
  const GemmFacts& g = *out.gemm;
  std::string text = types_text(g);
  if (!g.accumulator.empty()) text += (text.empty() ? "" : ", ") + g.accumulator + " accumulation";
  if (!g.math_type.empty()) text += ", " + g.math_type + " math";
  if (!text.empty()) add_field(out, "types", std::move(text), is_inferred, std::move(note));
}

std::string summarise_gemm(const KernelName& kernel) {
  const GemmFacts& g = *kernel.gemm;
  std::string text =
      kernel.kind == KernelKind::conv ? "convolution" : upper(kernel_kind_name(kernel.kind));
  if (const std::string types = types_text(g); !types.empty()) text += " " + types;
  if (!g.math_type.empty()) text += " (" + g.math_type + " math)";
  if (g.uses_tensor_cores) text += *g.uses_tensor_cores ? ", tensor cores" : ", no tensor cores";
  if (g.tile_m && g.tile_n) {
    text += ", tile " + std::to_string(*g.tile_m) + "x" + std::to_string(*g.tile_n);
    if (g.tile_k) text += "x" + std::to_string(*g.tile_k);
  }
  if (g.stages) text += ", " + std::to_string(*g.stages) + (*g.stages == 1 ? " stage" : " stages");
  if (g.splits_k.value_or(false)) text += ", split K";
  if (!g.layout.empty()) text += ", " + g.layout;
  if (!g.epilogue.empty()) text += ", epilogue " + join(g.epilogue, "+");
  return text;
}

}  // namespace epilogue::trace
