// SPDX-License-Identifier: Apache-2.0
// What differs between two kernels, in words.
#include <algorithm>

#include "epilogue/trace/kernel_name.h"
#include "explain/kernel_name/text.h"

namespace epilogue::trace {
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

void compare_gemms(Differences& d, const GemmFacts& a, const GemmFacts& b, bool same_family) {
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
    compare_gemms(d, *before.gemm, *after.gemm, before.family == after.family);
  if (before.family == after.family) compare_fields(d, before, after);
  if (d.empty()) return "different names, the decoded fields are the same";
  return d.text();
}

}  // namespace epilogue::trace
