// SPDX-License-Identifier: Apache-2.0
// Work of which nothing reads the result: nodes of a forward pass that no backward pass visits.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/method.h"
#include "explain/method/roots.h"

namespace epilogue::trace {
namespace {

class Unread : WasteSearch {
 public:
  Unread(const CountedOps& all, const Places& places, const Roots& roots, std::vector<Waste>& found)
      : WasteSearch(all, places, found), roots_(roots) {}

  void run() {
    if (!all_.has_backward || all_.links.steps.empty()) return;
    std::unordered_set<int64_t> visited;
    std::map<uint32_t, size_t> last_node;  // of each step
    for (size_t r = 0; r < roots_.size(); ++r) {
      // One node of compiled code stands for many ops.
      if (roots_.name(r).starts_with("Torch-Compiled")) return;
      if (!is_autograd_node(roots_.name(r))) continue;
      if (roots_.sequence(r) >= 0) visited.insert(roots_.sequence(r));
      last_node[roots_.step(r)] = r;
    }
    last_node.erase(kNone);
    if (last_node.size() < 2) return;
    OpTimes times;
    std::vector<uint32_t> calls;
    std::unordered_set<uint64_t> read;
    std::unordered_set<uint64_t> unread;
    int64_t ns = 0;
    const std::vector<int64_t> next = next_numbers();
    std::map<uint32_t, int64_t> by_step;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const int64_t number = roots_.sequence(r);
      if (number < 0 || is_autograd_node(roots_.name(r)) || next[r] <= number) continue;
      const auto node = last_node.find(roots_.step(r));
      if (node == last_node.end() || r > node->second) continue;
      bool is_read = false;
      for (int64_t n = number; n < std::min(next[r], number + kNodesOfRoot) && !is_read; ++n)
        is_read = visited.contains(n);
      if (is_read) {
        read.insert(all_.key(roots_.at(r)));
        continue;
      }
      unread.insert(all_.key(roots_.at(r)));
      const int64_t own = roots_.add_times(r, times);
      ns += own;
      by_step[roots_.step(r)] += own;
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    // Each step has it: an accumulated loss may be read later.
    if (ns == 0 || by_step.size() < last_node.size() || read.empty()) return;
    const int64_t again_ns = add_twins(read, unread, visited, times, calls);
    if (static_cast<double>(ns + again_ns) < kUnreadShare * static_cast<double>(all_.wall_ns))
      return;
    report(ns, again_ns, calls, times);
  }

 private:
  static constexpr int64_t kNodesOfRoot = 64;
  static constexpr double kUnreadShare = 0.08;

  // By root: the number that the next op outside of the backward pass has; its own if that has the
  // same, as ops that make no node do.
  std::vector<int64_t> next_numbers() const {
    std::vector<int64_t> next(roots_.size(), -1);
    int64_t number = -1;
    for (size_t r = roots_.size(); r-- > 0;) {
      // The last one of the trace is taken to make a node.
      next[r] = number < 0 ? roots_.sequence(r) + 1 : number;
      if (!is_autograd_node(roots_.name(r)) && roots_.sequence(r) >= 0) number = roots_.sequence(r);
    }
    return next;
  }

  // The same ops on the same shapes without a graph: a frozen copy of the part that is not read.
  int64_t add_twins(const std::unordered_set<uint64_t>& read,
                    const std::unordered_set<uint64_t>& unread,
                    const std::unordered_set<int64_t>& visited, OpTimes& times,
                    std::vector<uint32_t>& calls) const {
    int64_t ns = 0;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const uint64_t key = all_.key(roots_.at(r));
      if (roots_.sequence(r) >= 0 || is_autograd_node(roots_.name(r)) || !unread.contains(key) ||
          read.contains(key) || visited.contains(roots_.sequence(r)) ||
          all_.inputs_id(roots_.at(r)) == kNone)
        continue;
      ns += roots_.add_times(r, times);
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    return ns;
  }

  void report(int64_t ns, int64_t again_ns, const std::vector<uint32_t>& calls,
              const OpTimes& times) {
    const auto ops = times.list(all_.trace);
    Waste waste;
    waste.kind = WasteKind::unread_forward;
    waste.title = fmt::format(
        "the forward pass computes results that the loss does not read: no backward pass visits "
        "them, and they take {} of {}, most of it in {}",
        time_text(ns + again_ns), time_text(all_.wall_ns), ops.front().first);
    waste.evidence.push_back(
        fmt::format("{} made nodes for gradients, whose numbers occur in no backward pass",
                    counted(static_cast<int64_t>(calls.size()), "op", "ops")));
    if (again_ns > 0)
      waste.evidence.push_back(fmt::format(
          "{} of it in the same ops on the same shapes without a graph", time_text(again_ns)));
    waste.place = places_.of(calls);
    const std::string part = !waste.place.module.empty()     ? " (" + waste.place.module + ")"
                             : !waste.place.function.empty() ? " (" + waste.place.function + ")"
                                                             : std::string();
    waste.action = fmt::format(
        "stop after the last layer that is read: cut the network there{}, return early, or skip "
        "the head or branch whose output is dropped; if a metric or a log reads it, compute that "
        "under torch.no_grad() and every N steps",
        part);
    waste.ns = ns + again_ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  const Roots& roots_;
};

}  // namespace

void find_unread_forward(const CountedOps& all, const Places& places, const Roots& roots,
                         std::vector<Waste>& found) {
  Unread(all, places, roots, found).run();
}

}  // namespace epilogue::trace
