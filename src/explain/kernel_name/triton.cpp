// SPDX-License-Identifier: Apache-2.0
// Triton kernels that Inductor generates: triton_{category}_fused_{ATen ops}_{number}.
#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTritonCategories[] = {
    {"poi", "pointwise"},
    {"red", "reduction"},
    {"per", "persistent reduction"},
    {"tem", "template (GEMM, attention)"},
    {"for", "foreach"},
    {"spl", "split scan"},
    {"unk", "unknown"},
    {"mix", "mix order reduction"}};

constexpr std::string_view kTritonGemmOps[] = {"mm", "addmm", "bmm", "baddbmm", "_scaled_mm"};

// "0d1d2d3de4de": argument numbers with what the compiler assumed of each.
bool is_signature(std::string_view text) {
  return text.starts_with("0") && text.find_first_not_of("0123456789cde") == std::string_view::npos;
}

bool decode_signature(std::string_view signature, KernelName& out) {
  out.family = "Triton (Inductor)";
  out.kind = KernelKind::triton;
  inferred(out, "specialisation", std::string(signature),
           "argument numbers; d: divisible by 16, e: by 8, c: equal to 1");
  out.summary = "fused Triton kernel; the name of this old form does not say of what";
  return true;
}

std::string summarise_triton(const KernelName& out, std::string_view category) {
  if (out.ops.empty()) return std::string(category) + " Triton kernel; no op names";
  return std::string(category) + " Triton kernel of " + join(out.ops, ", ");
}

}  // namespace

bool decode_triton(const NameText& name, KernelName& out) {
  std::string_view text = name.text.substr(0, name.text.find_first_of("(< "));
  if (!text.starts_with("triton_")) return false;
  text.remove_prefix(std::string_view("triton_").size());
  if (text.starts_with("_") && is_signature(text.substr(1)))
    return decode_signature(text.substr(1), out);
  std::string_view category;
  for (const auto& [letters, word] : kTritonCategories)
    if (text.starts_with(letters) && text.substr(letters.size()).starts_with("_fused"))
      category = word;
  if (category.empty()) return false;
  text.remove_prefix(std::string_view("poi_fused").size());
  if (text.starts_with("_")) text.remove_prefix(1);
  // The last number counts kernels of the graph.
  const size_t last = text.rfind('_');
  const std::string_view number = last == std::string_view::npos ? text : text.substr(last + 1);
  const bool has_number = parse_number(number).has_value();
  std::string_view joined = text;
  if (has_number)
    joined = last == std::string_view::npos ? std::string_view() : text.substr(0, last);
  FusedOps fused = split_fused_ops(joined);
  out.family = "Triton (Inductor)";
  out.kind = KernelKind::triton;
  out.ops = std::move(fused.ops);
  known(out, "category", std::string(category));
  if (has_number) known(out, "number", std::string(number), "of the kernel in its graph");
  if (!out.ops.empty()) {
    const std::string list = join(out.ops, ", ");
    if (fused.is_certain) {
      known(out, "ops", list, "the ATen ops it came from, sorted, each once");
    } else {
      inferred(out, "ops", list, "a part is no ATen op: it is cut at its underscores");
    }
  }
  if (category.starts_with("template")) {
    for (const std::string& op : out.ops)
      if (is_one_of(op, kTritonGemmOps)) out.kind = KernelKind::gemm;
    for (const std::string& op : out.ops)
      if (contains(op, "attention")) out.kind = KernelKind::attention;
    if (out.kind == KernelKind::gemm) out.gemm.emplace().is_column_major = false;
  }
  out.summary = summarise_triton(out, category);
  return true;
}

}  // namespace epilogue::trace
