// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/kernel_sources.h"

#include <fmt/format.h>

#include <cctype>
#include <set>
#include <string_view>
#include <unordered_map>

namespace epilogue::trace {
namespace {

constexpr size_t kSourcesShown = 3;  // in the evidence

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Positions of kernels by name.
using KernelIndex = std::unordered_map<std::string_view, size_t>;

// The kernels whose names are words of the text, as a whole: "triton_poi_fused_add_1" is not in
// "triton_poi_fused_add_10".
void add_named(std::string_view text, const KernelIndex& index, std::set<size_t>& found) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin;
    while (end < text.size() && is_of_name(text[end])) ++end;
    if (const auto at = index.find(text.substr(begin, end - begin)); at != index.end())
      found.insert(at->second);
    begin = end + 1;
  }
}

std::set<size_t> named_by(const Finding& f, const KernelIndex& index) {
  std::set<size_t> found;
  add_named(f.title, index, found);
  for (const std::string& line : f.evidence) add_named(line, index, found);
  for (const std::string& kernel : f.kernels)
    if (const auto at = index.find(kernel); at != index.end()) found.insert(at->second);
  return found;
}

// "triton_poi_fused_add_gelu_0, from /tmp/x/c1.py (add, gelu)"
std::string source_line(const KernelSource& s) {
  std::string line = fmt::format("{}, from {}", s.kernel, s.file);
  if (s.files > 1) line += fmt::format(" and {} more of that name", s.files - 1);
  if (!s.fused_ops.empty()) line += fmt::format(" ({})", fmt::join(s.fused_ops, ", "));
  return line;
}

// Keeps the advice last.
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
  KernelIndex index;
  for (size_t i = 0; i < kernels.size(); ++i)
    if (!kernels[i].file.empty()) index.emplace(kernels[i].name, i);
  if (index.empty()) return;
  for (Finding& f : findings) {
    for (const size_t i : named_by(f, index))
      f.sources.push_back(
          {kernels[i].name, kernels[i].file, kernels[i].files, kernels[i].fused_ops});
    if (!f.sources.empty()) add_lines(f);
  }
}

}  // namespace epilogue::trace
