// SPDX-License-Identifier: Apache-2.0

#include "trace/read/assembler.h"

#include <algorithm>
#include <utility>

#include "trace/read/finish_trace.h"
#include "trace/read/xla.h"

namespace epilogue::trace {

namespace {

// A guess at the whole size is rather too large than too small: memory that is never touched costs
// nothing; moving a gigabyte's table does, and for that moment it is there twice.
constexpr double kMargin = 1.3;
constexpr double kMinShare = 1e-3;

}  // namespace

template <class T>
void Merger::make_room(std::vector<T>& table, size_t more) const {
  const size_t needed = table.size() + more;
  if (needed <= table.capacity()) return;
  const double guess = static_cast<double>(needed) / std::max(share_done_, kMinShare) * kMargin;
  table.reserve(std::max(table.capacity() * 3 / 2, static_cast<size_t>(guess)));
}

template <class T>
void Merger::append(std::vector<T>& to, const std::vector<T>& from) const {
  make_room(to, from.size());
  to.insert(to.end(), from.begin(), from.end());
}

void Merger::learn(Partial& partial, size_t worker) {
  Numbers& numbers = numbers_[worker];
  for (const std::string_view text : partial.new_strings)
    numbers.strings.push_back(trace_.strings.intern(text));
  for (std::vector<OpInput>& list : partial.new_inputs)
    numbers.inputs.push_back(trace_.inputs.intern(std::move(list)));
}

void Merger::add(Partial& partial, size_t worker) {
  const Numbers& numbers = numbers_[worker];
  add_events(partial, numbers);
  add_args(partial, numbers);
  append(trace_.python, partial.python);
  for (PythonFrame& frame : partial.frames) frame.name = numbers.strings[frame.name];
  append(trace_.frames, partial.frames);
  append(trace_.memory, partial.memory);
  append(flow_ends_, partial.flow_ends);
  for (LaneName& name : partial.lane_names) name.text = numbers.strings[name.text];
  append(lane_names_, partial.lane_names);
  if (partial.span && !span_) {
    span_ = partial.span;
    span_->name = numbers.strings[span_->name];
  }
  usable_events_ += partial.usable_events;
  python_functions_left_out_ += partial.python_functions_left_out;
  notes_.add_all(partial.notes);
}

void Merger::add_events(const Partial& partial, const Numbers& numbers) {
  const auto first = [](const auto& table) { return static_cast<uint32_t>(table.size()); };
  const uint32_t ops = first(trace_.ops);
  const uint32_t kernels = first(trace_.kernels);
  const uint32_t calls = first(trace_.runtime_calls);
  const uint32_t syncs = first(trace_.syncs);
  const uint32_t frames = first(trace_.python);
  make_room(trace_.events, partial.events.size());
  for (const Event& event : partial.events) {
    Event& e = trace_.events.emplace_back(event);
    e.name = numbers.strings[e.name];
    if (e.args == kNone) continue;
    switch (e.category) {
      case Category::cpu_op:
      case Category::user_annotation:
      case Category::other: e.args += ops; break;
      case Category::kernel:
      case Category::gpu_memcpy:
      case Category::gpu_memset: e.args += kernels; break;
      case Category::python_function: e.args += frames; break;
      case Category::cuda_sync: e.args += syncs; break;
      default: e.args += calls;
    }
  }
}

void Merger::add_args(Partial& partial, const Numbers& numbers) {
  make_room(trace_.ops, partial.ops.size());
  for (const OpArgs& args : partial.ops) {
    OpArgs& a = trace_.ops.emplace_back(args);
    if (a.inputs != kNone) a.inputs = numbers.inputs[a.inputs];
    for (StringId* id :
         {&a.overload_name, &a.stack, &a.module_hierarchy, &a.other_args, &a.fused_ops})
      if (*id != 0) *id = numbers.strings[*id];
  }
  make_room(trace_.kernels, partial.kernels.size());
  for (const KernelArgs& args : partial.kernels) {
    KernelArgs& a = trace_.kernels.emplace_back(args);
    a.other_args = numbers.strings[a.other_args];
    a.fused_ops = numbers.strings[a.fused_ops];
  }
  make_room(trace_.runtime_calls, partial.runtime_calls.size());
  for (const RuntimeArgs& args : partial.runtime_calls)
    trace_.runtime_calls.emplace_back(args).kernel_name = numbers.strings[args.kernel_name];
  make_room(trace_.syncs, partial.syncs.size());
  trace_.syncs.insert(trace_.syncs.end(), partial.syncs.begin(), partial.syncs.end());
}

Trace Merger::finish() {
  trace_.import.python_functions_left_out = python_functions_left_out_;
  set_lane_names(trace_, lane_names_);
  set_flows(trace_, flow_ends_);
  set_window(trace_, span_);
  return std::move(trace_);
}

namespace {

// An event that does not end within so much is broken.
constexpr size_t kMaxEventBytes = size_t{1} << 24;

}  // namespace

bool Assembler::add(TextWindow& window) {
  WindowResult& result = window.result;
  std::string_view rest = window.text();
  if (window.is_parsed) merger_.learn(result.partial, window.worker);
  if (window.is_parsed && in_list_ && pending_.empty()) {
    merger_.add(result.partial, window.worker);
    in_list_ = !result.is_list_closed;
    if (!in_list_) document_.list_closed();
    rest.remove_prefix(result.used);
    pending_offset_ = window.offset + static_cast<int64_t>(result.used);
    // The rest that the worker could not use needs the text that follows.
    if (in_list_ && !window.is_last) {
      pending_ = rest;
      return true;
    }
  }
  pending_ += rest;
  return read_on(window.is_last);
}

bool Assembler::read_on(bool is_final) {
  while (!pending_.empty()) {
    if (in_list_) {
      if (!read_events(is_final)) return true;
      continue;
    }
    // A member that does not end yet is not looked at again before its text has doubled.
    if (pending_.size() < retry_size_ && !is_final) return true;
    size_t used = 0;
    const DocumentScanner::Step step = document_.scan(pending_, pending_offset_, is_final, used);
    if (step == DocumentScanner::Step::not_json) return false;
    pending_.erase(0, used);
    pending_offset_ += static_cast<int64_t>(used);
    retry_size_ = 2 * pending_.size();
    in_list_ = step == DocumentScanner::Step::event_list;
    if (!in_list_) return true;
  }
  return true;
}

// False when more text is needed.
bool Assembler::read_events(bool is_final) {
  const bool must_end = is_final || pending_.size() > kMaxEventBytes;
  WindowResult result;
  parser_.parse(pending_, pending_offset_, must_end, result);
  merger_.learn(result.partial, own_worker_);
  merger_.add(result.partial, own_worker_);
  pending_.erase(0, result.used);
  pending_offset_ += static_cast<int64_t>(result.used);
  if (!result.is_list_closed) return false;
  document_.list_closed();
  in_list_ = false;
  retry_size_ = 0;
  return true;
}

Trace Assembler::finish(const StreamFaults& faults) {
  ImportNotes& notes = document_.notes();
  const bool is_unclosed = document_.is_unclosed();
  if (is_unclosed) notes.add(Note::unclosed, pending_offset_);
  if (faults.is_truncated) notes.add(Note::truncated_gzip, pending_offset_);
  if (faults.has_bad_checksum) notes.add(Note::bad_checksum, pending_offset_);
  if (faults.has_trailing_bytes) notes.add(Note::trailing_bytes, pending_offset_);
  notes.add_all(merger_.notes());
  const int64_t usable_events = merger_.usable_events();
  Trace trace = merger_.finish();
  document_.finish(trace);
  settle_xla(trace, frames_);
  infer_recorded(trace);
  set_device_label(trace);
  trace.import.events = usable_events;
  trace.import.is_truncated = faults.is_truncated || is_unclosed;
  trace.import.is_bare_array = document_.is_bare_array();
  notes.report(trace.import);
  return trace;
}

}  // namespace epilogue::trace
