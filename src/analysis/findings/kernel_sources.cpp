// SPDX-License-Identifier: Apache-2.0
#include "analysis/findings/kernel_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace epilogue::trace {
namespace {

constexpr size_t kSourcesShown = 3;  // in the evidence

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// As a whole: "triton_poi_fused_add_1" is not in "triton_poi_fused_add_10".
bool names(std::string_view text, std::string_view kernel) {
  for (size_t at = text.find(kernel); at != std::string_view::npos;
       at = text.find(kernel, at + 1)) {
    const size_t end = at + kernel.size();
    const bool begins = at == 0 || !is_of_name(text[at - 1]);
    if (begins && (end == text.size() || !is_of_name(text[end]))) return true;
  }
  return false;
}

bool names(const Finding& f, const std::string& kernel) {
  return names(f.title, kernel) || std::ranges::find(f.kernels, kernel) != f.kernels.end() ||
         std::ranges::any_of(f.evidence,
                             [&](const std::string& line) { return names(line, kernel); });
}

// "triton_poi_fused_add_gelu_0, from /tmp/x/c1.py (add, gelu)"
std::string source_line(const KernelSource& s) {
  std::string line = fmt::format("{}, from {}", s.kernel, s.file);
  if (s.files > 1) line += fmt::format(" and {} more of that name", s.files - 1);
  if (!s.fused_ops.empty()) line += fmt::format(" ({})", fmt::join(s.fused_ops, ", "));
  return line;
}

// What a finding says last is what to do.
void add_lines(Finding& f) {
  const bool has_action = !f.action.empty() && !f.evidence.empty() && f.evidence.back() == f.action;
  std::vector<std::string> lines;
  for (const KernelSource& s : f.sources) {
    if (lines.size() == kSourcesShown) {
      lines.push_back(fmt::format("and the sources of {} more", f.sources.size() - kSourcesShown));
      break;
    }
    lines.push_back(source_line(s));
  }
  f.evidence.insert(f.evidence.end() - (has_action ? 1 : 0), lines.begin(), lines.end());
}

}  // namespace

void name_sources(std::span<const TritonKernel> kernels, std::span<Finding> findings) {
  for (Finding& f : findings) {
    for (const TritonKernel& kernel : kernels)
      if (!kernel.file.empty() && names(f, kernel.name))
        f.sources.push_back({kernel.name, kernel.file, kernel.files, kernel.fused_ops});
    if (!f.sources.empty()) add_lines(f);
  }
}

}  // namespace epilogue::trace
