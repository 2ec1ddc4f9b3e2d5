// SPDX-License-Identifier: Apache-2.0
// The arrows of a trace: forward to backward.
#include <unordered_map>

#include "epilogue/trace/event.h"
#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

// Joins a backward op to its forward op.
struct SequenceKey {
  int64_t tid;
  int64_t number;
  bool operator==(const SequenceKey&) const = default;
};
struct SequenceHash {
  size_t operator()(const SequenceKey& key) const {
    return std::hash<uint64_t>{}(static_cast<uint64_t>(key.tid) * 0x9E3779B97F4A7C15ULL ^
                                 static_cast<uint64_t>(key.number));
  }
};

}  // namespace

void link_forward_backward(Trace& trace) {
  // An op and the view it calls carry the same number; the one that starts last made the node.
  std::unordered_map<SequenceKey, const Event*, SequenceHash> last_forward;
  auto id = static_cast<int64_t>(trace.flows.size());
  for (const uint32_t i : event_order(trace)) {
    const Event& event = trace.events[i];
    const OpArgs* args = trace.op_args(event);
    if (args == nullptr || args->sequence_number < 0) continue;
    if (args->scope != Scope::backward_function) {
      // The engine's wrapper of a backward function names a forward thread, too.
      if (args->fwd_tid == 0) last_forward[{event.tid, args->sequence_number}] = &event;
      continue;
    }
    const auto found = last_forward.find({args->fwd_tid, args->sequence_number});
    if (found == last_forward.end()) continue;
    const Event& forward = *found->second;
    trace.flows.push_back({.id = ++id,
                           .start = {forward.ts_ns, forward.tid, forward.pid},
                           .end = {event.ts_ns, event.tid, event.pid}});
  }
}

}  // namespace epilogue::trace
