// SPDX-License-Identifier: Apache-2.0
// Where a backward op came from: the stack of its forward op.
#include <algorithm>
#include <map>
#include <utility>

#include "explain/table/function_events.h"

namespace epilogue::trace {
namespace {

using SequenceOnThread = std::pair<int64_t, int64_t>;

}  // namespace

void set_backward_stacks(const Trace& trace, std::vector<FunctionEvent>& events) {
  const auto has_stack = [](const FunctionEvent& e) { return e.stack != 0; };
  if (std::none_of(events.begin(), events.end(), has_stack)) return;
  // The backward function that an event is or stands under; parents come first.
  std::vector<uint32_t> backward(events.size(), kNone);
  std::map<SequenceOnThread, StringId> forward_stacks;
  for (uint32_t i = 0; i < events.size(); ++i) {
    const FunctionEvent& e = events[i];
    if (e.is_device || e.is_collapsed) continue;
    const OpArgs* args = args_of(trace, e);
    if (args != nullptr && args->scope == Scope::backward_function) {
      backward[i] = i;
    } else if (e.parent != kNone) {
      backward[i] = backward[e.parent];
    }
    if (backward[i] == kNone && args != nullptr && args->sequence_number >= 0)
      forward_stacks.try_emplace({args->sequence_number, event_of(trace, e)->tid}, e.stack);
  }
  for (uint32_t i = 0; i < events.size(); ++i) {
    if (backward[i] == kNone) continue;
    const OpArgs& args = *args_of(trace, events[backward[i]]);
    const auto found = forward_stacks.find({args.sequence_number, args.fwd_tid});
    events[i].stack = found == forward_stacks.end() ? 0 : found->second;
  }
}

}  // namespace epilogue::trace
