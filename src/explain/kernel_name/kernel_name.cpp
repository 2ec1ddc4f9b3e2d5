// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/kernel_name.h"

#include <algorithm>
#include <array>

#include "explain/kernel_name/decode.h"
#include "explain/kernel_name/text.h"

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

// The differences of two kernels, in words.

namespace {

// These are said from the typed facts, or not at all.
constexpr std::string_view kTypedKeys[] = {"tile",         "tile_k",     "stages",   "cluster",
                                           "layout",       "types",      "epilogue", "split_k",
                                           "tensor_cores", "instruction"};
constexpr std::string_view kMinorKeys[] = {"number", "function", "variant"};

class Differences {
 public:
  void add(std::string_view what, std::string_view before, std::string_view after) {
    if (before == after) return;
    const auto shown = [](std::string_view text) { return text.empty() ? "none" : text; };
    std::string line(what);
    if (!line.empty()) line += " ";
    line += shown(before);
    line += " -> ";
    line += shown(after);
    lines_.push_back(std::move(line));
  }
  std::string text() const { return join(lines_, "; "); }
  bool empty() const { return lines_.empty(); }

 private:
  std::vector<std::string> lines_;
};

std::string optional_text(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : std::string();
}

std::string tile_text(const GemmFacts& g, bool with_k) {
  if (!g.tile_m || !g.tile_n) return {};
  return std::to_string(*g.tile_m) + "x" + std::to_string(*g.tile_n) +
         (with_k ? "x" + std::to_string(*g.tile_k) : "");
}

// A field that one side does not give is no difference: unknown is not a value.
void compare_if_both(Differences& d, std::string_view what, const std::string& a,
                     const std::string& b) {
  if (!a.empty() && !b.empty()) d.add(what, a, b);
}

void compare_gemm_facts(Differences& d, const GemmFacts& a, const GemmFacts& b, bool same_family) {
  // The common case, one type for all, is said once.
  if (a.a_type == a.c_type && b.a_type == b.c_type && a.a_type == a.b_type &&
      b.a_type == b.b_type) {
    compare_if_both(d, "", a.a_type, b.a_type);
  } else {
    compare_if_both(d, "A", a.a_type, b.a_type);
    compare_if_both(d, "B", a.b_type, b.b_type);
    compare_if_both(d, "output", a.c_type, b.c_type);
  }
  if (!a.a_type.empty() && a.a_type == b.a_type && a.math_type != b.math_type)
    d.add("math", a.math_type.empty() ? a.a_type : a.math_type,
          b.math_type.empty() ? b.a_type : b.math_type);
  compare_if_both(d, "accumulator", a.accumulator, b.accumulator);
  if (a.uses_tensor_cores && b.uses_tensor_cores)
    d.add("", *a.uses_tensor_cores ? "tensor cores" : "CUDA cores",
          *b.uses_tensor_cores ? "tensor cores" : "CUDA cores");
  const bool with_k = a.tile_k && b.tile_k;
  compare_if_both(d, "tile", tile_text(a, with_k), tile_text(b, with_k));
  compare_if_both(d, "stages", optional_text(a.stages), optional_text(b.stages));
  if (a.cluster && b.cluster) d.add("cluster", format_sizes(*a.cluster), format_sizes(*b.cluster));
  compare_if_both(d, "layout", a.layout, b.layout);
  compare_if_both(d, "instruction", a.instruction, b.instruction);
  if (a.splits_k.value_or(false) != b.splits_k.value_or(false))
    d.add("", a.splits_k.value_or(false) ? "split K" : "whole K",
          b.splits_k.value_or(false) ? "split K" : "whole K");
  // Not every family names its epilogue.
  const std::string from = join(a.epilogue, "+");
  const std::string to = join(b.epilogue, "+");
  if (same_family) {
    d.add("epilogue", from, to);
  } else {
    compare_if_both(d, "epilogue", from, to);
  }
}

void compare_fields(Differences& d, const KernelName& a, const KernelName& b) {
  const bool has_facts = a.gemm && b.gemm;
  for (const KernelField& field : a.fields) {
    if (has_facts && is_one_of(field.key, kTypedKeys)) continue;
    if (is_one_of(field.key, kMinorKeys)) continue;
    if (const KernelField* other = b.find(field.key)) d.add(field.key, field.value, other->value);
  }
}

}  // namespace

std::string describe_difference(const KernelName& before, const KernelName& after) {
  if (before.name == after.name) return "same kernel";
  if (!before.is_known() || !after.is_known())
    return "different kernels; not decoded: " + std::string(!before.is_known() ? "the first" : "") +
           (!before.is_known() && !after.is_known() ? " and " : "") +
           std::string(!after.is_known() ? "the second" : "");
  Differences d;
  d.add("", before.family, after.family);
  if (before.kind != after.kind)
    d.add("kind", kernel_kind_name(before.kind), kernel_kind_name(after.kind));
  if (before.gemm && after.gemm)
    compare_gemm_facts(d, *before.gemm, *after.gemm, before.family == after.family);
  if (before.family == after.family) compare_fields(d, before, after);
  if (d.empty()) return "different names, the decoded fields are the same";
  return d.text();
}

}  // namespace epilogue::trace
