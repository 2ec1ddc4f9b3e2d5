// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <unordered_map>

#include "explain/index/by_name.h"
#include "explain/index/op_tree.h"
#include "explain/index/sparse_column.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {
namespace {

// Work that an op's own launch calls started.
struct OwnWork {
  int64_t device_ns = 0;
  int64_t kernels = 0;
};

// Sums over an op and all that it calls.
struct Subtree {
  uint64_t signature = 0;
  int64_t ops = 1;
  int64_t kernels = 0;
  int64_t device_ns = 0;
  int64_t no_launch_ops = 0;
  int64_t no_launch_ns = 0;
  bool launches = false;
};

uint64_t mixed(uint64_t hash, uint64_t value) {
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ value) * kGoldenRatio;
  return hash ^ (hash >> 32);
}

class Chains {
 public:
  Chains(const Trace& trace, const Links& links)
      : trace_(trace),
        parents_(links.parent),
        tree_(trace, links),
        names_(by_name(trace, flags_of)),
        own_work_(trace.events.size()),
        launches_(trace.events.size()),
        self_ns_(self_times_ns(trace, links)) {
    for (const uint32_t i : links.device_work) {
      if (links.op[i] == kNone) continue;
      const Event& e = trace.events[i];
      OwnWork& own = own_work_[links.op[i]];
      if (e.category == Category::kernel) ++own.kernels;
      own.device_ns += e.dur_ns;
      launches_[links.op[i]] = true;
    }
    // Where its kernels were lost, an op launched all the same.
    for (const uint32_t i : links.launches)
      if (links.op[i] != kNone) launches_[links.op[i]] = true;
  }

  DispatchChains group() {
    DispatchChains result;
    std::unordered_map<uint64_t, size_t> chain_of;
    for (const uint32_t root : tree_.roots()) {
      const Subtree s = sum_up(root);
      const auto [place, is_new] = chain_of.try_emplace(s.signature, result.chains.size());
      if (is_new) result.chains.push_back(first_of(root, s));
      DispatchChain& chain = result.chains[place->second];
      ++chain.count;
      chain.kernels += s.kernels;
      chain.cpu_ns += trace_.events[root].dur_ns;
      chain.device_ns += s.device_ns;
      chain.no_launch_ns += s.no_launch_ns;
    }
    std::stable_sort(
        result.chains.begin(), result.chains.end(),
        [](const DispatchChain& a, const DispatchChain& b) { return a.cpu_ns > b.cpu_ns; });
    result.no_launch = no_launch_ops();
    return result;
  }

 private:
  struct NameFlags {
    bool is_step = false;
    bool is_data = false;
  };

  static NameFlags flags_of(std::string_view name) {
    return {name.starts_with("ProfilerStep#"), is_data_loading_name(name)};
  }

  // An op whose children are being summed up.
  struct OpenOp {
    uint32_t op = kNone;
    size_t next_child = 0;
    Subtree sums;
  };

  // Sums over an op and all below it; marks those that launch. A trace of 1 GB has millions of ops:
  // sums are kept of the path to the op at hand alone.
  Subtree sum_up(uint32_t root) {
    std::vector<OpenOp> path = {opened(root)};
    while (true) {
      OpenOp& top = path.back();
      const std::span<const uint32_t> children = tree_.children(top.op);
      if (top.next_child < children.size()) {
        path.push_back(opened(children[top.next_child++]));
        continue;
      }
      close(top);
      const Subtree done = top.sums;
      path.pop_back();
      if (path.empty()) return done;
      add_child(path.back().sums, done);
    }
  }

  OpenOp opened(uint32_t op) const {
    OpenOp open = {.op = op};
    open.sums.signature = mixed(0, trace_.events[op].name);
    open.sums.launches = launches_[op];
    if (const OwnWork* own = own_work_.find(op)) {
      open.sums.kernels = own->kernels;
      open.sums.device_ns = own->device_ns;
    }
    return open;
  }

  static void add_child(Subtree& s, const Subtree& child) {
    s.signature = mixed(s.signature, child.signature);
    s.ops += child.ops;
    s.kernels += child.kernels;
    s.device_ns += child.device_ns;
    s.no_launch_ops += child.no_launch_ops;
    s.no_launch_ns += child.no_launch_ns;
    s.launches = s.launches || child.launches;
  }

  void close(OpenOp& open) {
    Subtree& s = open.sums;
    s.signature = mixed(s.signature, s.launches ? 1 : 2);  // also closes the list of children
    launches_[open.op] = s.launches;
    if (s.launches) return;
    ++s.no_launch_ops;
    s.no_launch_ns += self_ns_[open.op];
  }

  DispatchChain first_of(uint32_t root, const Subtree& sums) const {
    DispatchChain chain;
    chain.op = std::string(trace_.name(trace_.events[root]));
    int left = kMaxChainOps;
    append(chain.text, root, left);
    chain.ops = sums.ops;
    chain.no_launch_ops = sums.no_launch_ops;
    return chain;
  }

  // Recursion ends with `left`: no deeper than that.
  void append(std::string& text, uint32_t op, int& left) const {
    if (left-- <= 0) {
      if (left == -1) text += "...";
      return;
    }
    text += trace_.name(trace_.events[op]);
    const std::span<const uint32_t> children = tree_.children(op);
    for (size_t i = 0; i < children.size() && left >= 0; ++i) {
      text += i == 0 ? "(" : ", ";
      append(text, children[i], left);
    }
    if (!children.empty()) text += ")";
  }

  // Traces of 2021 have data loaders and steps as ops: what they do is not the model's.
  bool is_loading_data(uint32_t op) const {
    if (names_[trace_.events[op].name].is_step) return true;
    for (; op != kNone; op = parents_[op])
      if (names_[trace_.events[op].name].is_data && is_data_loading(trace_, trace_.events[op]))
        return true;
    return false;
  }

  std::vector<NoLaunchOp> no_launch_ops() const {
    std::vector<NoLaunchOp> list;
    std::unordered_map<StringId, size_t> place_of;
    bool anything_launches = false;
    for (uint32_t op = 0; op < trace_.events.size(); ++op) {
      const Event& e = trace_.events[op];
      if (e.category != Category::cpu_op) continue;
      anything_launches = anything_launches || launches_[op];
      if (launches_[op] || is_loading_data(op)) continue;
      const auto [place, is_new] = place_of.try_emplace(e.name, list.size());
      if (is_new) list.push_back({.name = std::string(trace_.name(e))});
      NoLaunchOp& all = list[place->second];
      ++all.count;
      all.self_ns += self_ns_[op];
      all.max_self_ns = std::max(all.max_self_ns, self_ns_[op]);
    }
    if (!anything_launches) return {};
    std::sort(list.begin(), list.end(), [](const NoLaunchOp& a, const NoLaunchOp& b) {
      return a.self_ns != b.self_ns ? a.self_ns > b.self_ns : a.name < b.name;
    });
    return list;
  }

  const Trace& trace_;
  const std::vector<uint32_t>& parents_;
  OpTree tree_;
  std::vector<NameFlags> names_;  // by StringId: a name is asked once, not for each op
  SparseColumn<OwnWork> own_work_;
  std::vector<bool> launches_;  // by event: an op, or one that it calls
  std::vector<int64_t> self_ns_;
};

}  // namespace

DispatchChains dispatch_chains(const Trace& trace, const Links& links) {
  return Chains(trace, links).group();
}

}  // namespace epilogue::trace
