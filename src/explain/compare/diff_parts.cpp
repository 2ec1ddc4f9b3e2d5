// SPDX-License-Identifier: Apache-2.0
#include "explain/compare/diff_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/units.h"

namespace epilogue::trace {
namespace {

constexpr size_t kKernelsNamed = 3;  // of a part

double mean_us(const std::vector<KernelUse>& uses, double count) {
  int64_t total_ns = 0;
  for (const KernelUse& use : uses) total_ns += use.total_ns;
  return count == 0 ? 0 : to_us(total_ns) / count;
}

// Names of the kernels, each once, the longest first.
std::vector<std::string> kernel_names(const std::vector<KernelUse>& uses) {
  std::vector<std::string> names;
  for (const KernelUse& use : uses)
    if (std::find(names.begin(), names.end(), use.name) == names.end())
      names.emplace_back(use.name);
  return names;
}

class PartWriter {
 public:
  PartWriter(const Match& match, const KernelLabels& labels, const TraceDiff& diff)
      : match_(match), labels_(labels), diff_(diff) {}

  void write(DiffPart& part) const {
    switch (match_.kind) {
      case MatchKind::same_kernel:
        part.what = same_what();
        part.why = counts() + other_ops();
        break;
      case MatchKind::same_op:
        part.what = match_.what + ": other kernels";
        part.why = kernels_why();
        break;
      case MatchKind::same_kind:
        part.what = "other kernels for the same kind of work: " + match_.what;
        part.why = kernels_why();
        break;
      case MatchKind::fused:
        part.what = fused_what();
        part.why = fused_why();
        break;
      case MatchKind::only_before:
        part.what = only_what(0) + ": gone";
        part.why = only_why(0);
        break;
      case MatchKind::only_after:
        part.what = only_what(1) + ": new";
        part.why = only_why(1);
        break;
    }
  }

 private:
  std::string label(std::string_view name) const { return labels_.of(name); }

  // "aten::mm: same kernel, ampere_sgemm_128x128_tn"; without the op where it is not one.
  std::string same_what() const {
    if (!diff_.has_device_work) return match_.what + ": same op";
    const std::string kernel = label(match_.what);
    return match_.op.empty() || match_.op == kernel ? kernel + ": same kernel"
                                                    : match_.op + ": same kernel, " + kernel;
  }

  // Where the same kernel belongs to other ops than before.
  std::string other_ops() const {
    if (!diff_.has_device_work || !match_.op.empty()) return "";
    std::array<std::string, 2> ops;
    for (size_t side = 0; side < 2; ++side) {
      std::set<std::string_view> names;
      for (const KernelUse& use : match_.uses[side])
        names.insert(use.op.empty() ? "unknown ops" : use.op);
      ops[side] = fmt::format("{}", fmt::join(names, ", "));
    }
    if (ops[0] == ops[1]) return "; of " + ops[0];
    return fmt::format("; of {} -> {}", ops[0], ops[1]);
  }

  // "6 -> 3 executions, mean 12.3 -> 10.1 us".
  std::string counts() const {
    const std::array<double, 2> n = {match_.count(0), match_.count(1)};
    std::string text = count_text(n[0]);
    if (n[0] != n[1]) text += " -> " + count_text(n[1]);
    text.append(" ").append(noun_for(n, "execution", "executions"));
    if (diff_.per_step) text += " per step";
    if (n[0] > 0 && n[1] > 0)
      text += fmt::format(", mean {:.1f} -> {:.1f} us", mean_us(match_.uses[0], n[0]),
                          mean_us(match_.uses[1], n[1]));
    return text;
  }

  std::string kernels_why() const {
    const std::string_view before = match_.uses[0].front().name;
    const std::string_view after = match_.uses[1].front().name;
    return fmt::format("{}; {} became {}: {}", counts(), label(before), label(after),
                       describe_difference(decode_kernel_name(before), decode_kernel_name(after)));
  }

  std::string fused_what() const {
    const size_t others = kernel_names(match_.uses[match_.fused_side]).size() - 1;
    return fmt::format("{}{}: {}", label(match_.what),
                       others > 0 ? fmt::format(" and {} more", others) : "",
                       match_.fused_side == 1 ? "fused" : "split");
  }

  // "15 kernels of aten::mm, aten::gelu became 3; saved 2.1 ms: launches 15 -> 3, bytes read and
  // written 3.1 GB -> 151 MB". What went the other way than the time is no reason for it.
  std::string fused_why() const {
    const std::string ops = fmt::format("{}", fmt::join(match_.ops, ", "));
    const std::array<std::string, 2> n = {count_text(match_.count(0)), count_text(match_.count(1))};
    std::string text =
        match_.fused_side == 1
            ? fmt::format("{} kernel{} of {} became {}", n[0], n[0] == "1" ? "" : "s", ops, n[1])
            : fmt::format("{} became {} kernel{} of {}", n[0], n[1], n[1] == "1" ? "" : "s", ops);
    const int64_t saved_ns = match_.booked_ns(0) - match_.booked_ns(1);
    const bool is_saved = saved_ns >= 0;
    const bool explains = is_saved == (match_.count(1) <= match_.count(0));
    text += fmt::format("; {} {}{} launches {} -> {}", is_saved ? "saved" : "lost",
                        format_duration_ns(static_cast<double>(std::abs(saved_ns))),
                        explains ? ":" : ", in spite of", n[0], n[1]);
    if (match_.bytes(0) >= 0 && match_.bytes(1) >= 0)
      text += fmt::format(", bytes read and written {} -> {}",
                          format_bytes(static_cast<double>(match_.bytes(0))),
                          format_bytes(static_cast<double>(match_.bytes(1))));
    if (diff_.per_step) text += ", per step";
    if (explains) return text;
    const bool fused_is_slower = is_saved == (match_.fused_side == 0);
    return text + (fused_is_slower ? ": the fused kernel takes longer than those it stands for"
                                   : ": the fused kernel takes less time than those it became");
  }

  std::string only_what(size_t side) const {
    const KernelUse& longest = match_.uses[side].front();
    return longest.op.empty() && diff_.has_device_work ? label(longest.name) + " (of an unknown op)"
                                                       : match_.what;
  }

  std::string only_why(size_t side) const {
    if (!diff_.has_device_work) return counts();
    const std::vector<std::string> names = kernel_names(match_.uses[side]);
    std::string text = counts() + " of ";
    for (size_t i = 0; i < std::min(names.size(), kKernelsNamed); ++i)
      text += (i > 0 ? ", " : "") + label(names[i]);
    if (names.size() > kKernelsNamed)
      text += fmt::format(" and {} more", names.size() - kKernelsNamed);
    return text;
  }

  const Match& match_;
  const KernelLabels& labels_;
  const TraceDiff& diff_;
};

}  // namespace

std::string count_text(double count) {
  const double whole = std::round(count);
  return count == whole ? format_count(static_cast<int64_t>(whole)) : fmt::format("{:.2f}", count);
}

std::string_view noun_for(const std::array<double, 2>& n, std::string_view one,
                          std::string_view many) {
  return n[0] == 1 && n[1] == 1 ? one : many;
}

DiffPart part_of(const Match& match, const KernelLabels& labels, const TraceDiff& diff) {
  DiffPart part;
  part.before_ns = match.booked_ns(0);
  part.after_ns = match.booked_ns(1);
  if (diff.has_device_work) {
    part.kernels = {match.count(0), match.count(1)};
    part.bytes = {match.bytes(0), match.bytes(1)};
    part.kernel_names = {kernel_names(match.uses[0]), kernel_names(match.uses[1])};
  }
  PartWriter(match, labels, diff).write(part);
  return part;
}

}  // namespace epilogue::trace
