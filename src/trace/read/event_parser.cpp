// SPDX-License-Identifier: Apache-2.0
#include "trace/read/event_parser.h"

#include <algorithm>
#include <array>
#include <limits>

#include "trace/read/json/json_string.h"
#include "trace/read/json/number_text.h"
#include "trace/read/string_table.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

// Sums and differences of two times must fit 64 bits.
constexpr int64_t kMaxTime_ns = int64_t{1} << 62;
constexpr int64_t kMinTime_ns = -(int64_t{1} << 60);
// 13 days, a petabyte: more is damage, and would overflow the sums over a few thousand events.
constexpr int64_t kMaxDuration_ns = int64_t{1} << 50;
constexpr int64_t kMaxMemoryBytes = int64_t{1} << 50;

// Kineto widens the device side of annotations so that viewers nest kernels inside: it starts 1 ns
// early and ends 1 ns late. The recording said otherwise.
constexpr int64_t kAnnotationMargin_ns = 1;

constexpr std::string_view kRecordedSpan = "Trace";

struct CategoryName {
  std::string_view name;
  Category category;
};
// Names of 2021, and those that have a peer among NVIDIA's.
constexpr std::array<CategoryName, 14> kAliases = {{
    {"Operator", Category::cpu_op},
    {"Kernel", Category::kernel},
    {"Runtime", Category::cuda_runtime},
    {"Memcpy", Category::gpu_memcpy},
    {"Memset", Category::gpu_memset},
    {"hpu_op", Category::kernel},
    {"mtia_ccp_events", Category::kernel},
    {"mtia_runtime", Category::cuda_runtime},
    {"glow_runtime", Category::cuda_runtime},
    {"xpu_runtime", Category::cuda_runtime},
    {"xpu_driver", Category::cuda_driver},
    {"xpu_sync", Category::cuda_sync},
    {"privateuse1_runtime", Category::cuda_runtime},
    {"privateuse1_driver", Category::cuda_driver},
}};

Category category_of_event(std::string_view cat, std::string_view name) {
  const Category category = category_of(cat);
  // In 2021 annotations were operators.
  const bool is_old_step = category == Category::cpu_op && name.starts_with(kStepPrefix);
  return is_old_step ? Category::user_annotation : category;
}

bool has_op_args(Category category) {
  return category == Category::cpu_op || category == Category::user_annotation;
}

template <class Args>
uint32_t append(std::vector<Args>& table, const Args& args) {
  table.push_back(args);
  return static_cast<uint32_t>(table.size() - 1);
}

// A key of an event as a number; 0: longer than any that counts.
constexpr uint32_t key_code(std::string_view key) {
  if (key.size() > sizeof(uint32_t)) return 0;
  uint32_t code = 0;
  for (const char c : key) code = code << 8U | static_cast<unsigned char>(c);
  return code;
}

// "4711", 4711, "stream 7"; any other text is a lane of its own.
int64_t parse_tid(std::string_view value) {
  constexpr std::string_view kStream = "stream ";
  std::string_view text = inside_quotes(value);
  if (text.starts_with(kStream)) text.remove_prefix(kStream.size());
  if (text.empty()) return 0;
  const ExactNumber number = parse_integer(text);
  if (number.ok()) return number.value;
  return static_cast<int64_t>(hash_bytes(text) >> 1);
}

}  // namespace

Category category_of(std::string_view name) {
  if (const auto category = category_from_name(name)) return *category;
  const auto* const alias =
      std::find_if(kAliases.begin(), kAliases.end(),
                   [&](const CategoryName& candidate) { return candidate.name == name; });
  return alias == kAliases.end() ? Category::other : alias->category;
}

bool EventParser::parse(JsonCursor& cursor, int64_t offset) {
  offset_ = offset;
  args_.start_event(*partial_, offset);
  Members members;
  raw_.clear();
  if (!take_members(cursor, members)) return false;
  if (is_no_event(members)) {
    ++partial_->usable_events;
    ++partial_->python_functions_left_out;
    if (frames_ == PythonFrames::beside) keep_beside(members);
    return true;
  }
  if (members.is_empty) return true;  // "{}" ends the lists of the XLA profiler
  if (raw_.has_duplicate()) note(Note::duplicate_key);
  if (raw_.has_extra_comma()) note(Note::extra_comma);
  build(members);
  return true;
}

bool EventParser::is_no_event(const Members& members) const {
  return frames_ != PythonFrames::events && members.cat == "\"python_function\"";
}

// A frame whose times cannot be read is left out: it is none of the events that notes count.
void EventParser::keep_beside(const Members& members) {
  const ExactNumber start = parse_us(members.ts);
  const ExactNumber length = parse_us(members.dur);
  const auto is_within = [](const ExactNumber& time, int64_t least, int64_t most) {
    return time.ok() && time.value >= least && time.value <= most;
  };
  if (inside_quotes(members.ph) != "X" || members.name.empty() ||
      !is_within(start, kMinTime_ns, kMaxTime_ns) || !is_within(length, 0, kMaxDuration_ns))
    return;
  const Lane where = lane(members);
  partial_->frames.push_back({.ts_ns = start.value,
                              .dur_ns = length.value,
                              .tid = where.tid,
                              .pid = where.pid,
                              .name = args_.text(members.name, false)});
}

std::string_view* EventParser::Members::member(uint32_t code) {
  switch (code) {
    case key_code("ph"): return &ph;
    case key_code("cat"): return &cat;
    case key_code("name"): return &name;
    case key_code("pid"): return &pid;
    case key_code("tid"): return &tid;
    case key_code("ts"): return &ts;
    case key_code("dur"): return &dur;
    case key_code("id"): return &id;
    default: return nullptr;
  }
}

bool EventParser::take_members(JsonCursor& cursor, Members& members) {
  bool has_duplicate = false;
  bool has_extra_comma = false;
  if (!cursor.take('{')) return false;
  while (!cursor.take('}')) {
    std::string_view key;
    std::string_view value;
    if (!cursor.take_key(key)) return false;
    const uint32_t code = key_code(key);
    members.is_empty = false;
    if (code == key_code("args")) {
      if (!take_args(cursor, members)) return false;
    } else {
      if (!cursor.take_value(value)) return false;
      if (std::string_view* const member = members.member(code); member != nullptr) {
        has_duplicate |= !member->empty();
        *member = value;
      }
    }
    if (cursor.take(',')) {
      has_extra_comma |= cursor.peek() == '}';
    } else if (cursor.peek() != '}') {
      return false;
    }
  }
  if (has_duplicate) note(Note::duplicate_key);
  if (has_extra_comma) note(Note::extra_comma);
  return true;
}

bool EventParser::take_args(JsonCursor& cursor, const Members& members) {
  std::string_view value;
  if (cursor.peek() != '{' || is_no_event(members)) return cursor.take_value(value);
  // Tells "cpu_op" from "kernel" and "cuda_runtime"; all that hangs on it is speed.
  const size_t kind = members.cat.size() + (members.cat.size() > 1 ? members.cat[1] : 0);
  return raw_.parse(cursor, true, kind);
}

void EventParser::build(const Members& members) {
  const std::string_view ph = inside_quotes(members.ph);
  const char phase = ph.size() == 1 ? ph.front() : '\0';
  switch (phase) {
    case 'X': return build_span(members);
    case 'i':
    case 'I': return build_instant(members);
    case 's': return build_flow_end(members, true);
    case 'f': return build_flow_end(members, false);
    case 'M': return build_name(members);
    case 'C':  // counters and steps of flows: nothing that the schema keeps
    case 't': ++partial_->usable_events; return;
    default: note(members.ph.empty() ? Note::missing_field : Note::unsupported_phase);
  }
}

bool EventParser::take_time(std::string_view text, int64_t& ns) {
  if (text.empty()) {
    note(Note::missing_field);
    return false;
  }
  const ExactNumber number = parse_us(text);
  if (number.fault == NumberFault::not_a_number) {
    note(Note::bad_number);
    return false;
  }
  if (!number.ok() || number.value < kMinTime_ns || number.value > kMaxTime_ns) {
    note(Note::out_of_range);
    return false;
  }
  ns = number.value;
  return true;
}

bool EventParser::take_duration(std::string_view text, int64_t ts_ns, int64_t& dur_ns) {
  if (!take_time(text, dur_ns)) return false;
  if (dur_ns < 0) {
    note(Note::negative_duration);
    dur_ns = 0;
  }
  if (dur_ns <= kMaxTime_ns - std::max<int64_t>(ts_ns, 0)) return true;
  note(Note::out_of_range);
  return false;
}

EventParser::Lane EventParser::lane(const Members& members) {
  Lane lane;
  if (!members.pid.empty()) {
    const ExactNumber pid = parse_integer(members.pid);
    const bool fits = pid.value >= std::numeric_limits<int32_t>::min() &&
                      pid.value <= std::numeric_limits<int32_t>::max();
    // Different processes must stay different; which number they go by matters less.
    lane.pid = static_cast<int32_t>(pid.ok() ? pid.value : parse_tid(members.pid));
    if (pid.ok() && !fits) note(Note::bad_argument);
  }
  if (!members.tid.empty()) lane.tid = parse_tid(members.tid);
  return lane;
}

void EventParser::build_span(const Members& members) {
  if (members.name.empty()) return note(Note::missing_field);
  Event event;
  if (!take_time(members.ts, event.ts_ns)) return;
  if (!take_duration(members.dur, event.ts_ns, event.dur_ns)) return;
  const std::string_view cat = inside_quotes(members.cat);
  const bool is_recorded_span = cat == kRecordedSpan;
  // A kernel at time 0 makes the span of a trace as long as the epoch is old.
  if (!is_recorded_span && event.dur_ns > kMaxDuration_ns) return note(Note::out_of_range);
  ++partial_->usable_events;
  if (is_recorded_span) return build_recorded_span(members, event.ts_ns, event.dur_ns);
  const Lane where = lane(members);
  event.pid = where.pid;
  event.tid = where.tid;
  const std::string_view name = inside_quotes(members.name);
  event.category = category_of_event(cat, name);
  event.name = args_.text(members.name);
  event.correlation = args_.integer(raw_, ArgKey::correlation, 0);
  event.external_id = args_.integer(raw_, ArgKey::external_id, 0);
  const bool has_nanoseconds = members.ts.find('.') != std::string_view::npos;
  if (event.category == Category::gpu_user_annotation && has_nanoseconds &&
      event.dur_ns >= 2 * kAnnotationMargin_ns) {
    event.ts_ns += kAnnotationMargin_ns;
    event.dur_ns -= 2 * kAnnotationMargin_ns;
  }
  if (has_op_args(event.category)) {
    event.args =
        append(partial_->ops, args_.op(raw_, name, event.category == Category::user_annotation));
  } else if (is_device_work(event.category)) {
    const KernelArgs args = args_.kernel(raw_, event.pid, event.tid);
    event.args = recent_kernels_.append_once(partial_->kernels, args, hash_args(args));
  } else if (is_launch_category(event.category)) {
    const RuntimeArgs args = args_.runtime_call(raw_);
    event.args = recent_calls_.append_once(partial_->runtime_calls, args, hash_args(args));
  } else if (event.category == Category::cuda_sync) {
    event.args = append(partial_->syncs, args_.sync(raw_));
  } else if (event.category == Category::python_function) {
    event.args = append(partial_->python, args_.python(raw_));
  } else if (members.cat.empty()) {  // the names of its lane may say what it is (xla.h)
    event.args = append(partial_->ops, args_.uncategorised(raw_));
  }
  partial_->events.push_back(event);
}

void EventParser::build_recorded_span(const Members& members, int64_t ts_ns, int64_t dur_ns) {
  if (partial_->span) return;
  std::string_view name = inside_quotes(members.name);
  // Some versions append the iteration: "PyTorch Profiler (0)".
  if (const size_t bracket = name.rfind(" (");
      bracket != std::string_view::npos && name.ends_with(')'))
    name = name.substr(0, bracket);
  partial_->span = {args_.text(name), ts_ns, ts_ns + dur_ns};
}

void EventParser::build_instant(const Members& members) {
  const std::string_view name = inside_quotes(members.name);
  const bool is_failed = name == "[OutOfMemory]";
  if (name != "[memory]" && !is_failed) {  // marks of the recording's start and end
    ++partial_->usable_events;
    return;
  }
  int64_t ts_ns = 0;
  if (!take_time(members.ts, ts_ns)) return;
  MemoryEvent memory = args_.memory(raw_);
  if (memory.bytes > kMaxMemoryBytes || memory.bytes < -kMaxMemoryBytes)
    return note(Note::out_of_range);
  ++partial_->usable_events;
  const Lane where = lane(members);
  memory.ts_ns = ts_ns;
  memory.pid = where.pid;
  memory.tid = where.tid;
  memory.out_of_memory = is_failed;
  partial_->memory.push_back(memory);
}

void EventParser::build_flow_end(const Members& members, bool is_start) {
  constexpr std::string_view kForwardBackward = "\"fwdbwd\"";
  ++partial_->usable_events;
  if (members.cat != kForwardBackward) return;  // ac2g: correlations say the same
  const ExactNumber id = parse_integer(members.id);
  const ExactNumber ts = parse_us(members.ts);
  if (!id.ok() || !ts.ok()) return note(Note::bad_argument);
  const Lane where = lane(members);
  partial_->flow_ends.push_back({id.value, {ts.value, where.tid, where.pid}, is_start});
}

void EventParser::build_name(const Members& members) {
  using Kind = LaneName::Kind;
  ++partial_->usable_events;
  const std::string_view what = inside_quotes(members.name);
  // The recording's own span has a text for a process id.
  if (!parse_integer(members.pid).ok()) return;
  const Lane where = lane(members);
  LaneName name{.pid = where.pid, .tid = where.tid};
  if (what == "process_name") {
    name.kind = Kind::process_name;
    name.text = args_.text(raw_[ArgKey::name]);
  } else if (what == "process_labels") {
    name.kind = Kind::process_labels;
    name.text = args_.text(raw_[ArgKey::labels]);
  } else if (what == "thread_name") {
    name.kind = Kind::thread_name;
    name.text = args_.text(raw_[ArgKey::name]);
  } else if (what == "process_sort_index" || what == "thread_sort_index") {
    name.kind = what.front() == 'p' ? Kind::process_sort : Kind::thread_sort;
    name.sort_index = args_.integer(raw_, ArgKey::sort_index, 0);
  } else {
    return;
  }
  partial_->lane_names.push_back(name);
}

}  // namespace epilogue::trace
