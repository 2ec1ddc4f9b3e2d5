// SPDX-License-Identifier: Apache-2.0
#include "explain/compare/diff_match.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "epilogue/trace/fusion.h"

namespace epilogue::trace {
namespace {

void longest_first(std::vector<KernelUse>& uses) {
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
  if (name.kind != KernelKind::triton) return ops;
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

// An op stands for its work, not for its letter: aten::add_ and aten::add are one.
std::string plain_op(const KernelUse& use) {
  std::string_view op = use.op;
  if (op.ends_with('_') && op.size() > 1) op.remove_suffix(1);
  return std::string(op);
}

// The op of all uses; "" where they differ or one is not known.
std::string common_op(const Match& match) {
  std::set<std::string> exact;
  std::set<std::string> plain;
  for (const std::vector<KernelUse>& uses : match.uses)
    for (const KernelUse& use : uses) {
      exact.emplace(use.op);
      plain.insert(plain_op(use));
    }
  if (exact.size() == 1) return *exact.begin();
  return plain.size() == 1 ? *plain.begin() : "";
}

// Uses that no match has taken yet, of both traces.
class Matcher {
 public:
  Matcher(std::vector<KernelUse> before, std::vector<KernelUse> after)
      : rest_{std::move(before), std::move(after)} {}

  std::vector<Match> run() {
    by_key(MatchKind::same_kernel, [](const KernelUse& use) {
      return use.op.empty() ? std::string() : std::string(use.name) + '\0' + plain_op(use);
    });
    kernels_of_unknown_ops();
    fused(0, 1);
    fused(1, 0);
    by_key(MatchKind::same_op, plain_op);
    by_key(MatchKind::same_kernel, [](const KernelUse& use) { return std::string(use.name); });
    by_key(MatchKind::same_kind, [](const KernelUse& use) {
      const KernelKind kind = decode_kernel_name(use.name).kind;
      return kind == KernelKind::unknown ? std::string() : std::string(kernel_kind_name(kind));
    });
    remaining(0, MatchKind::only_before);
    remaining(1, MatchKind::only_after);
    return std::move(matches_);
  }

 private:
  // Where one trace does not say of which op a kernel is (a graph's, a launch cut off), its name
  // decides: it joins what is left of the other trace, else the op that it has in both.
  void kernels_of_unknown_ops() {
    std::map<std::string_view, std::array<bool, 2>> is_unknown;
    for (size_t side = 0; side < 2; ++side)
      for (const KernelUse& use : rest_[side])
        if (use.op.empty()) is_unknown[use.name][side] = true;
    by_key(MatchKind::same_kernel, [&](const KernelUse& use) {
      return is_unknown.contains(use.name) ? std::string(use.name) : std::string();
    });
    std::map<std::string_view, std::vector<size_t>> by_kernel;
    for (size_t i = 0; i < matches_.size(); ++i)
      by_kernel[matches_[i].uses[0].front().name].push_back(i);
    for (size_t side = 0; side < 2; ++side)
      std::erase_if(rest_[side], [&](const KernelUse& use) {
        const auto found = by_kernel.find(use.name);
        if (!use.op.empty() || found == by_kernel.end() || found->second.size() != 1) return false;
        matches_[found->second.front()].uses[side].push_back(use);
        return true;
      });
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
      Match match;
      match.kind = MatchKind::fused;
      match.what = whole.name;
      match.fused_side = b;
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
    std::erase_if(groups, [](const auto& group) {
      return group.second.uses[0].empty() || group.second.uses[1].empty();
    });
    for (auto& uses : rest_)
      std::erase_if(uses, [&](const KernelUse& use) { return groups.contains(key(use)); });
    for (auto& [name, match] : groups) {
      match.kind = kind;
      match.what = kind == MatchKind::same_kernel ? match.uses[0].front().name : name;
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
  std::vector<KernelUse> uses;
  uses.reserve(account.work.size());
  for (const BookedWork& work : account.work)
    uses.push_back({trace.strings[work.kernel], trace.strings[work.op], work.count, work.total_ns,
                    work.booked_ns, work.bytes, trace.strings[work.fused_ops]});
  std::sort(uses.begin(), uses.end(), [](const KernelUse& a, const KernelUse& b) {
    return std::tie(a.name, a.op) < std::tie(b.name, b.op);
  });
  longest_first(uses);
  return uses;
}

int64_t Match::booked_ns(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) sum += use.booked_ns;
  return sum;
}

double Match::count(size_t side) const {
  double sum = 0;
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
  std::vector<Match> matches = Matcher(std::move(before), std::move(after)).run();
  for (Match& match : matches) {
    for (std::vector<KernelUse>& uses : match.uses) longest_first(uses);
    if (match.kind == MatchKind::same_kernel) match.op = common_op(match);
  }
  return matches;
}

}  // namespace epilogue::trace
