// SPDX-License-Identifier: Apache-2.0
#include "explain/table/function_events.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "explain/memory/memory_sums.h"
#include "trace/id_index.h"
#include "trace/nesting.h"
#include "trace/read/finish_trace.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kStepPrefix = "ProfilerStep#";
constexpr std::string_view kStepText = "ProfilerStep*";

// The profiler's own helpers and ops too small to be of interest: PyTorch's list.
constexpr std::array<std::string_view, 8> kDroppedNames = {"[memory]",
                                                           "[OutOfMemory]",
                                                           "profiler::_record_function_enter",
                                                           "profiler::_record_function_enter_new",
                                                           "profiler::_record_function_exit",
                                                           "aten::is_leaf",
                                                           "aten::output_nr",
                                                           "aten::_version"};

// By pool id: the name a row goes by, kNone when it is dropped.
std::vector<StringId> row_names(const StringPool& strings) {
  std::vector<StringId> names(strings.size());
  for (StringId id = 0; id < names.size(); ++id) {
    const std::string_view text = strings[id];
    const bool is_step = text.starts_with(kStepPrefix) || text == kStepText;
    const bool is_dropped =
        std::find(kDroppedNames.begin(), kDroppedNames.end(), text) != kDroppedNames.end();
    names[id] = is_step ? kStepName : is_dropped ? kNone : id;
  }
  return names;
}

bool is_host_category(Category category) {
  return category == Category::cpu_op || category == Category::user_annotation ||
         category == Category::overhead || category == Category::python_function ||
         is_launch_category(category);
}

class Builder {
 public:
  Builder(const Trace& trace, const CapturedOps* captured)
      : trace_(trace),
        captured_(captured),
        memory_(trace.memory),
        has_device_(!trace.device_label.empty()),
        has_memory_(!trace.memory.empty()) {}

  FunctionEvents build() {
    add_events();
    add_memory_rows();
    announce_ids();
    index_and_nest();
    credit_kernels();
    collapse();
    set_totals();
    set_backward_stacks(trace_, events_);
    return {std::move(events_), std::move(memory_of_)};
  }

 private:
  void add_events() {
    const std::vector<StringId> names = row_names(trace_.strings);
    events_.reserve(trace_.events.size());
    const bool is_own = is_own_trace(trace_);
    for (const uint32_t i : event_order(trace_)) {
      const Event& event = trace_.events[i];
      const bool is_device = is_device_category(event.category);
      if (names[event.name] == kNone || (!is_device && !is_host_category(event.category))) continue;
      // Our own frames are modules: the table is the same with and without stacks.
      if (is_own && event.category == Category::python_function) continue;
      FunctionEvent e = {.name = names[event.name], .source = i};
      const OpArgs* args = trace_.op_args(event);
      e.stack = args != nullptr ? args->stack : 0;
      e.is_async = args != nullptr && args->is_async;
      e.is_device = is_device;
      e.is_frame = event.category == Category::python_function;
      e.is_user_annotation = event.category == Category::user_annotation ||
                             event.category == Category::gpu_user_annotation;
      if (is_device) {
        e.device_time_ns = e.self_device_time_ns = has_device_ ? event.dur_ns : 0;
      } else if (has_memory_) {
        set_memory(e, memory_.take(event.ts_ns, event.end_ns()));
      }
      events_.push_back(e);
    }
  }

  // The event's entry, made where it has none.
  FunctionMemory& memory_entry(FunctionEvent& e) {
    if (e.memory == kNone) {
      e.memory = static_cast<uint32_t>(memory_of_.size());
      memory_of_.emplace_back();
    }
    return memory_of_[e.memory];
  }
  void set_memory(FunctionEvent& e, const MemoryUsage& usage) {
    if (usage.cpu_bytes == 0 && usage.device_bytes == 0) return;
    FunctionMemory& memory = memory_entry(e);
    memory.cpu_bytes = usage.cpu_bytes;
    memory.device_bytes = usage.device_bytes;
  }

  // Records that no event covers become events without duration, so that no byte is lost; failed
  // allocations always do.
  void add_memory_rows() {
    const auto sorted = static_cast<ptrdiff_t>(events_.size());
    const auto add = [&](uint32_t record, StringId name) {
      FunctionEvent e = {.name = name, .source = record, .is_memory_record = true};
      set_memory(e, memory_usage(trace_.memory[record]));
      events_.push_back(e);
    };
    for (const uint32_t i : memory_.uncovered()) add(i, kMemoryName);
    for (uint32_t i = 0; i < trace_.memory.size(); ++i)
      if (trace_.memory[i].out_of_memory) add(i, kOutOfMemoryName);
    const auto starts_before = [&](const FunctionEvent& a, const FunctionEvent& b) {
      const LaneSpan x = span_of(a);
      const LaneSpan y = span_of(b);
      return x.start_ns != y.start_ns ? x.start_ns < y.start_ns : x.end_ns > y.end_ns;
    };
    std::stable_sort(events_.begin() + sorted, events_.end(), starts_before);
    std::inplace_merge(events_.begin(), events_.begin() + sorted, events_.end(), starts_before);
  }

  void announce_ids() {
    for (const Event& event : trace_.events) {
      if (event.category == Category::cpu_op && event.external_id != 0)
        op_by_id_.announce(event.external_id);
      else if (is_launch_category(event.category) && event.correlation != 0)
        launch_by_correlation_.announce(event.correlation);
    }
  }

  // The op that an event's External id names, or kNone. From 2022 to early 2024 Kineto wrote the
  // event's own correlation there, which names some unrelated op: such an id is not trusted.
  uint32_t op_by_external_id(const Event& event) const {
    if (event.external_id == 0 || event.external_id == event.correlation) return kNone;
    return op_by_id_.find(event.external_id);
  }

  // Where and when an event was.
  LaneSpan span_of(const FunctionEvent& e) const {
    if (e.is_memory_record) {
      const MemoryEvent& record = trace_.memory[e.source];
      return {record.pid, record.tid, record.ts_ns, record.ts_ns};
    }
    const Event& event = trace_.events[e.source];
    return {event.pid, event.tid, event.ts_ns, event.end_ns()};
  }

  // A driver may report a call under another thread id than the op that made it.
  LaneSpan span_beside_op(const FunctionEvent& e) const {
    LaneSpan span = span_of(e);
    const Event* event = event_of(trace_, e);
    if (event == nullptr || !is_launch_category(event->category)) return span;
    const uint32_t i = op_by_external_id(*event);
    if (i == kNone || events_[i].is_async) return span;
    const LaneSpan op = span_of(events_[i]);
    if (span.start_ns < op.start_ns || span.end_ns > op.end_ns) return span;
    span.pid = op.pid;
    span.tid = op.tid;
    return span;
  }

  // If it can be, one pass for both: they are bound by memory, and a launch call comes after the op
  // that it is within.
  void index_and_nest() {
    const bool is_one_pass = op_by_id_.is_dense();
    if (!is_one_pass) {
      for (uint32_t i = 0; i < events_.size(); ++i) add_ids(i);
      op_by_id_.finish();
    }
    children_.resize(events_.size());
    LaneNester nester;
    for (uint32_t i = 0; i < events_.size(); ++i) {
      FunctionEvent& e = events_[i];
      if (is_one_pass) add_ids(i);
      if (e.is_device || e.is_async) continue;
      e.parent = nester.add(i, span_beside_op(e));
      if (e.parent != kNone) ++children_[e.parent];
    }
    launch_by_correlation_.finish();
  }
  void add_ids(uint32_t i) {
    if (events_[i].is_memory_record) return;
    const Event& event = trace_.events[events_[i].source];
    if (event.category == Category::cpu_op && event.external_id != 0)
      op_by_id_.add(event.external_id, i);
    else if (is_launch_category(event.category) && event.correlation != 0)
      launch_by_correlation_.add(event.correlation, i);
  }

  // PyTorch links by the External id; without one counts the innermost op around the
  // launch call.
  uint32_t op_of_device_event(const Event& event) const {
    if (const uint32_t op = op_by_external_id(event); op != kNone) return op;
    if (event.correlation == 0) return kNone;
    const uint32_t launch = launch_by_correlation_.find(event.correlation);
    if (launch == kNone) return kNone;
    uint32_t i = events_[launch].parent;
    while (i != kNone && event_of(trace_, events_[i])->category != Category::cpu_op)
      i = events_[i].parent;
    return i;
  }

  void credit_kernels() {
    if (!has_device_) return;
    for (const FunctionEvent& e : events_) {
      // A wait is no work, and lasts as long as the work that it waits for.
      if (!e.is_device) continue;
      const Event& event = *event_of(trace_, e);
      if (!is_device_work(event.category)) continue;
      const uint32_t op = op_of_device_event(event);
      if (op == kNone || events_[op].is_async) continue;
      const bool is_captured = captured_ != nullptr && captured_->op_of(e.source) != kNone;
      (is_captured ? events_[op].device_time_ns : events_[op].self_device_time_ns) +=
          e.device_time_ns;
    }
  }

  // An op that does nothing but call an op of its own name is one op.
  void collapse() {
    for (uint32_t i = 0; i < events_.size(); ++i) {
      FunctionEvent& e = events_[i];
      if (e.parent == kNone) continue;
      if (events_[e.parent].is_collapsed) e.parent = events_[e.parent].parent;
      FunctionEvent& parent = events_[e.parent];
      if (parent.name != e.name || children_[e.parent] != 1) continue;
      e.is_collapsed = true;
      children_[e.parent] = children_[i];
      parent.self_device_time_ns += e.self_device_time_ns;
      parent.device_time_ns += e.device_time_ns;
    }
  }

  // Self times and bytes are the totals less the children's; device time goes up from the ops that
  // launched. Children follow their parents, hence backwards.
  void set_totals() {
    for (FunctionEvent& e : events_) {
      if (e.is_device || e.is_async) continue;
      const int64_t total_ns = cpu_time_ns(trace_, e);
      e.self_cpu_time_ns += total_ns;
      const bool is_part = e.parent != kNone && !e.is_collapsed;
      if (is_part) events_[e.parent].self_cpu_time_ns -= total_ns;
      if (e.memory != kNone) add_self_memory(e, is_part);
    }
    for (size_t i = events_.size(); i-- > 0;) {
      FunctionEvent& e = events_[i];
      if (e.is_device || e.is_async || e.is_collapsed) continue;
      e.device_time_ns += e.self_device_time_ns;
      if (e.parent != kNone) events_[e.parent].device_time_ns += e.device_time_ns;
    }
  }

  void add_self_memory(const FunctionEvent& e, bool is_part) {
    FunctionMemory& own = memory_of_[e.memory];
    own.self_cpu_bytes += own.cpu_bytes;
    own.self_device_bytes += own.device_bytes;
    if (!is_part) return;
    const FunctionMemory part = own;  // memory_entry may move it
    FunctionMemory& whole = memory_entry(events_[e.parent]);
    whole.self_cpu_bytes -= part.cpu_bytes;
    whole.self_device_bytes -= part.device_bytes;
  }

  const Trace& trace_;
  const CapturedOps* captured_;  // null: none
  MemorySums memory_;
  bool has_device_;
  bool has_memory_;
  std::vector<FunctionEvent> events_;
  std::vector<FunctionMemory> memory_of_;
  std::vector<uint32_t> children_;  // by position in events_: how many it has
  IdIndex op_by_id_;
  IdIndex launch_by_correlation_;
};

}  // namespace

FunctionEvents function_events(const Trace& trace, const CapturedOps* captured) {
  return Builder(trace, captured).build();
}

const Event* event_of(const Trace& trace, const FunctionEvent& event) {
  return event.is_memory_record ? nullptr : &trace.events[event.source];
}

int64_t cpu_time_ns(const Trace& trace, const FunctionEvent& event) {
  return event.is_memory_record || event.is_device ? 0 : trace.events[event.source].dur_ns;
}

const OpArgs* args_of(const Trace& trace, const FunctionEvent& event) {
  const Event* e = event_of(trace, event);
  return e != nullptr ? trace.op_args(*e) : nullptr;
}

std::string_view function_name(const Trace& trace, StringId name) {
  switch (name) {
    case kStepName: return kStepText;
    case kMemoryName: return "[memory]";
    case kOutOfMemoryName: return "[OutOfMemory]";
    default: return trace.strings[name];
  }
}

// Where a backward op came from: the stack of its forward op.

namespace {

using SequenceOnThread = std::pair<int64_t, int64_t>;

}  // namespace

void set_backward_stacks(const Trace& trace, std::vector<FunctionEvent>& events) {
  const auto has_stack = [](const FunctionEvent& e) { return e.stack != 0; };
  if (std::none_of(events.begin(), events.end(), has_stack)) return;
  // The backward function that an event is or lies under; parents come first.
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
