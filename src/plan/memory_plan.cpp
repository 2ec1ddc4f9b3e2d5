// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include <algorithm>

#include "graph/fused_node.h"

namespace epilogue::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Uses;
using graph::ValueKind;

constexpr int64_t kAlignment = 64;  // a cache line, and what kernels load at once

// Memory that is in use from one node to another, both included.
struct Slot {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int64_t offset = 0;
};

bool overlap_in_time(const Slot& a, const Slot& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The lowest place that is free while `slot` lives.
int64_t lowest_place(const Slot& slot, const std::vector<Slot*>& placed) {
  std::vector<const Slot*> busy;
  for (const Slot* other : placed)
    if (overlap_in_time(slot, *other)) busy.push_back(other);
  std::sort(busy.begin(), busy.end(),
            [](const Slot* a, const Slot* b) { return a->offset < b->offset; });
  int64_t at = 0;
  for (const Slot* other : busy) {
    if (at + slot.bytes <= other->offset) break;
    at = std::max(at, other->offset + other->bytes);
  }
  return at;
}

class Planner {
 public:
  Planner(const Graph& graph, const std::vector<int64_t>& bytes, size_t handed_out)
      : graph_(graph),
        uses_(graph),
        bytes_(bytes),
        handed_out_(handed_out),
        slot_of_(graph.values.size(), -1) {}

  MemoryPlan plan() {
    find_last_reads();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) assign(static_cast<int>(i));
    MemoryPlan result;
    place(result.arena_bytes);
    result.offsets.assign(graph_.values.size(), kNotInArena);
    for (size_t v = 0; v < slot_of_.size(); ++v) {
      if (slot_of_[v] < 0) continue;
      result.offsets[v] = slots_[static_cast<size_t>(slot_of_[v])].offset;
      result.unshared_bytes += aligned(bytes_[v]);
    }
    return result;
  }

 private:
  static int64_t aligned(int64_t bytes) {
    return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Of each root, by way of all its views; results live to the end and outside the arena.
  void find_last_reads() {
    last_read_.assign(graph_.values.size(), -1);
    is_result_.assign(graph_.values.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const int v : graph::reads(graph_.nodes[i])) last_read_[root(v)] = static_cast<int>(i);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const size_t at = root(graph_.outputs[i]);
      if (i < handed_out_) is_result_[at] = true;
      last_read_[at] = static_cast<int>(graph_.nodes.size());
    }
  }
  size_t root(int v) const { return static_cast<size_t>(memory_root(graph_, uses_, v)); }

  void assign(int index) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    std::vector<int> written_over;  // slots
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int v = node.outputs[o];
      const size_t at = root(v);
      if (at != static_cast<size_t>(v) || is_result_[at]) continue;
      const int end = std::max(last_read_[at], index);
      const int shared = slot_to_write_over(node, o, index, written_over);
      if (shared >= 0) {
        slots_[static_cast<size_t>(shared)].last = end;
        slot_of_[at] = shared;
        written_over.push_back(shared);
      } else {
        slot_of_[at] = static_cast<int>(slots_.size());
        slots_.push_back({aligned(bytes_[at]), index, end, 0});
      }
    }
  }

  // A program may write where it reads, if nobody else reads that and it lies as the result does.
  int slot_to_write_over(const Node& node, size_t output, int index,
                         const std::vector<int>& taken) const {
    const graph::Value& result = graph_.value(node.outputs[output]);
    if (node.fused() == nullptr) return -1;
    const std::vector<int> reads = graph::reads(node);
    for (const int v : node.fused()->written_over(graph_, node, output)) {
      const graph::Value& value = graph_.value(v);
      const size_t at = root(v);
      const int slot = slot_of_[at];
      if (slot >= 0 && last_read_[at] == index && at == static_cast<size_t>(v) &&
          std::ranges::count(reads, v) == 1 && std::ranges::count(taken, slot) == 0 &&
          value.sizes == result.sizes && value.strides == result.strides &&
          value.dtype == result.dtype)
        return slot;
    }
    return -1;
  }

  // Large ones first: small ones fit between them.
  void place(int64_t& arena_bytes) {
    std::vector<Slot*> order;
    order.reserve(slots_.size());
    for (Slot& slot : slots_) order.push_back(&slot);
    std::stable_sort(order.begin(), order.end(),
                     [](const Slot* a, const Slot* b) { return a->bytes > b->bytes; });
    std::vector<Slot*> placed;
    for (Slot* slot : order) {
      slot->offset = lowest_place(*slot, placed);
      placed.push_back(slot);
      arena_bytes = std::max(arena_bytes, slot->offset + slot->bytes);
    }
  }

  const Graph& graph_;
  Uses uses_;
  const std::vector<int64_t>& bytes_;
  size_t handed_out_;
  std::vector<int> slot_of_;
  std::vector<Slot> slots_;
  std::vector<int> last_read_;
  std::vector<bool> is_result_;
};

}  // namespace

int memory_root(const Graph& graph, const Uses& uses, int value) {
  for (;;) {
    const int producer = uses.producer(value);
    if (producer < 0) return value;
    const graph::OpCall* call = graph.nodes[static_cast<size_t>(producer)].call();
    // Composites may give an input itself, or a view of one.
    const bool may_alias = call != nullptr && call->op->kind != OpKind::compute;
    if (!may_alias || call->inputs.empty() || call->inputs[0] == graph::kNoValue) return value;
    value = call->inputs[0];
  }
}

MemoryPlan plan_memory(const Graph& graph, const std::vector<int64_t>& bytes, size_t handed_out) {
  return Planner(graph, bytes, handed_out).plan();
}

}  // namespace epilogue::plan
