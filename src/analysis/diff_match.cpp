// SPDX-License-Identifier: Apache-2.0
#include "analysis/diff_match.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "epilogue/trace/fused_kernels.h"

namespace epilogue::trace {
namespace {

void sort_by_time(std::vector<KernelUse>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const KernelUse& a, const KernelUse& b) {
    return a.booked_ns > b.booked_ns;
  });
}

// The ops that a fused kernel says it stands for, with their namespace: by the trace, else by
// Triton's names. Empty for other kernels.
std::vector<std::string> ops_in(const KernelUse& use) {
  std::vector<std::string> ops;
  for (const std::string_view op : fused_op_names(use.fused_ops)) ops.emplace_back(op);
  if (!ops.empty()) return ops;
  const KernelName name = decode_kernel_name(use.name);
  if (name.kind != KernelKind::kTriton) return ops;
  for (const std::string& op : name.ops) ops.push_back("aten::" + op);
  return ops;
}

// Of the ops that the fused kernels name, those that have kernels on the other side.
std::vector<std::string> replaced_ops(const Match& match, size_t parts_side, size_t fused_side) {
  const std::vector<KernelUse>& parts = match.uses[parts_side];
  std::vector<std::string> ops;
  for (const KernelUse& whole : match.uses[fused_side])
    for (std::string& op : ops_in(whole)) {
      const bool is_listed = std::find(ops.begin(), ops.end(), op) != ops.end();
      const bool has_kernels = std::any_of(parts.begin(), parts.end(),
                                           [&](const KernelUse& use) { return use.op == op; });
      if (has_kernels && !is_listed) ops.push_back(std::move(op));
    }
  return ops;
}

// Uses that no match has taken yet, of both traces.
class Matcher {
 public:
  Matcher(std::vector<KernelUse> before, std::vector<KernelUse> after)
      : rest_{std::move(before), std::move(after)} {}

  std::vector<Match> run() {
    same_kernels();
    fused(0, 1);
    fused(1, 0);
    // An op stands for its work, not for its letter: aten::add_ and aten::add are one.
    by_key(MatchKind::kSameOp, [](const KernelUse& use) {
      std::string_view op = use.op;
      if (op.ends_with('_') && op.size() > 1) op.remove_suffix(1);
      return std::string(op);
    });
    by_key(MatchKind::kSameKind, [](const KernelUse& use) {
      const KernelKind kind = decode_kernel_name(use.name).kind;
      return kind == KernelKind::kUnknown ? std::string() : std::string(kernel_kind_name(kind));
    });
    remaining(0, MatchKind::kOnlyBefore);
    remaining(1, MatchKind::kOnlyAfter);
    return std::move(matches_);
  }

 private:
  void same_kernels() {
    std::unordered_map<std::string_view, const KernelUse*> by_name;
    for (const KernelUse& use : rest_[1]) by_name.emplace(use.name, &use);
    std::map<std::string_view, bool> common;
    for (const KernelUse& use : rest_[0]) {
      const auto other = by_name.find(use.name);
      if (other == by_name.end()) continue;
      matches_.push_back(
          {MatchKind::kSameKernel, std::string(use.name), {{{use}, {*other->second}}}});
      common[use.name] = true;
    }
    for (auto& uses : rest_)
      std::erase_if(uses, [&](const KernelUse& use) { return common.contains(use.name); });
  }

  // Fused kernels of trace `b` take those kernels of trace `a` whose ops they name, the longest
  // first. Two that name one op share its kernels: which of them ran in which cannot be told.
  void fused(size_t a, size_t b) {
    std::vector<KernelUse> left;
    std::vector<Match> found;
    for (const KernelUse& whole : rest_[b]) {
      const std::vector<std::string> ops = ops_in(whole);
      const auto is_part = [&](const KernelUse& use) {
        return std::find(ops.begin(), ops.end(), use.op) != ops.end();
      };
      Match match{MatchKind::kFused, std::string(whole.name), {}, b, {}};
      std::copy_if(rest_[a].begin(), rest_[a].end(), std::back_inserter(match.uses[a]), is_part);
      std::erase_if(rest_[a], is_part);
      // A kernel's name gives each op once, sorted: there only what is left alone is shared.
      const bool may_share = !whole.fused_ops.empty() || match.uses[a].empty();
      const auto shared = std::find_if(found.begin(), found.end(), [&](const Match& other) {
        return may_share && std::any_of(other.uses[a].begin(), other.uses[a].end(), is_part);
      });
      if (shared != found.end()) {
        shared->uses[a].insert(shared->uses[a].end(), match.uses[a].begin(), match.uses[a].end());
        shared->uses[b].push_back(whole);
      } else if (match.uses[a].empty()) {
        left.push_back(whole);
      } else {
        match.uses[b].push_back(whole);
        found.push_back(std::move(match));
      }
    }
    for (Match& match : found) {
      match.ops = replaced_ops(match, a, b);
      matches_.push_back(std::move(match));
    }
    rest_[b] = std::move(left);
  }

  // Groups what has the same key in both traces; "" is no key.
  template <class Key>
  void by_key(MatchKind kind, Key&& key) {
    std::map<std::string, Match> groups;
    for (size_t side = 0; side < 2; ++side)
      for (const KernelUse& use : rest_[side])
        if (std::string k = key(use); !k.empty()) groups[std::move(k)].uses[side].push_back(use);
    for (auto& [name, match] : groups) {
      if (match.uses[0].empty() || match.uses[1].empty()) continue;
      match.kind = kind;
      match.what = name;
      for (size_t side = 0; side < 2; ++side)
        std::erase_if(rest_[side], [&](const KernelUse& use) { return key(use) == name; });
      matches_.push_back(std::move(match));
    }
  }

  void remaining(size_t side, MatchKind kind) {
    std::map<std::string_view, Match> groups;
    for (const KernelUse& use : rest_[side]) {
      const std::string_view name = use.op.empty() ? use.name : use.op;
      Match& match = groups[name];
      match.kind = kind;
      match.what = name;
      match.uses[side].push_back(use);
    }
    for (auto& [name, match] : groups) matches_.push_back(std::move(match));
    rest_[side].clear();
  }

  std::array<std::vector<KernelUse>, 2> rest_;
  std::vector<Match> matches_;
};

}  // namespace

std::vector<KernelUse> kernel_uses(const Trace& trace, const TimeAccount& account) {
  struct Sum {
    KernelUse use;
    int64_t of_op_ns = -1;
  };
  std::unordered_map<StringId, Sum> sums;
  for (const BookedWork& work : account.work) {
    Sum& sum = sums[work.kernel];
    sum.use.name = trace.strings[work.kernel];
    sum.use.count += work.count;
    sum.use.total_ns += work.total_ns;
    sum.use.booked_ns += work.booked_ns;
    sum.use.bytes = sum.use.bytes < 0 || work.bytes < 0 ? -1 : sum.use.bytes + work.bytes;
    if (sum.use.fused_ops.empty()) sum.use.fused_ops = trace.strings[work.fused_ops];
    if (work.op == 0 || work.total_ns <= sum.of_op_ns) continue;
    sum.of_op_ns = work.total_ns;
    sum.use.op = trace.strings[work.op];
  }
  std::vector<KernelUse> uses;
  uses.reserve(sums.size());
  for (const auto& [name, sum] : sums) uses.push_back(sum.use);
  std::sort(uses.begin(), uses.end(),
            [](const KernelUse& a, const KernelUse& b) { return a.name < b.name; });
  sort_by_time(uses);
  return uses;
}

int64_t Match::booked_ns(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) sum += use.booked_ns;
  return sum;
}

int64_t Match::count(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) sum += use.count;
  return sum;
}

int64_t Match::bytes(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) {
    if (use.bytes < 0) return -1;
    sum += use.bytes;
  }
  return sum;
}

std::vector<Match> match_kernels(std::vector<KernelUse> before, std::vector<KernelUse> after) {
  return Matcher(std::move(before), std::move(after)).run();
}

}  // namespace epilogue::trace
