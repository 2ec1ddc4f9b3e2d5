// SPDX-License-Identifier: Apache-2.0
#include "profile/build_trace.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/op.h"
#include "profile/call_stack.h"
#include "profile/memory_categories.h"
#include "profile/op_inputs.h"

namespace epilogue::profiler {
namespace {

constexpr int32_t kDevicePid = 0;
constexpr int64_t kDeviceSortIndex = 5'000'000;  // Kineto's: devices below the host's threads

// One span of one thread, before ids are given.
struct Span {
  int64_t begin_ticks;
  int64_t end_ticks;
  uint32_t local_id;
  size_t buffer;
  const OpRecord* op;  // one of the two is set
  const RangeRecord* range;
};

std::vector<Span> ordered_spans(const Recording& recording) {
  std::vector<Span> spans;
  for (size_t b = 0; b < recording.buffers.size(); ++b) {
    const ThreadBuffer& buffer = *recording.buffers[b];
    buffer.ops.for_each([&](const OpRecord& r) {
      spans.push_back({r.begin_ticks, r.end_ticks, r.id, b, &r, nullptr});
    });
    buffer.ranges.for_each([&](const RangeRecord& r) {
      spans.push_back({r.begin_ticks, r.end_ticks, r.id, b, nullptr, &r});
    });
  }
  // Begin order; a parent before a child that began at the same tick.
  std::sort(spans.begin(), spans.end(), [](const Span& x, const Span& y) {
    if (x.buffer == y.buffer) return x.local_id < y.local_id;
    return x.begin_ticks != y.begin_ticks ? x.begin_ticks < y.begin_ticks : x.buffer < y.buffer;
  });
  return spans;
}

class Builder {
 public:
  explicit Builder(const Recording& recording)
      : recording_(recording), clock_(recording.begin, recording.end) {
    trace_.base_time_ns = trace::base_time_ns(recording.end.unix_ns);
    trace_.start_ns = relative(recording.begin.ticks);
    trace_.end_ns = relative(recording.end.ticks);
    trace_.recorded = recording.options;
    trace_.device_label = "KERNEL";
    for (const auto& buffer : recording.buffers) {
      external_ids_.emplace_back(buffer->next_id, 0);
      op_args_.emplace_back(buffer->next_id, trace::kNone);
    }
  }

  trace::Trace build() {
    add_processes();
    int64_t next_id = 1;
    int64_t ev_idx = 0;
    for (const Span& span : ordered_spans(recording_)) {
      external_ids_[span.buffer][span.local_id] = next_id++;
      if (!recording_.cpu_activity) continue;
      if (span.op != nullptr) {
        add_op(span, ev_idx++);
      } else {
        add_range(span, ev_idx++);
      }
    }
    const MemoryCategories categories = categorize_memory(recording_.buffers);
    for (size_t b = 0; b < recording_.buffers.size(); ++b) {
      recording_.buffers[b]->kernels.for_each([&](const KernelRecord& r) { add_kernel(b, r); });
      size_t i = 0;
      recording_.buffers[b]->memory.for_each([&](const MemoryRecord& r) {
        add_memory(b, r, ev_idx++);
        trace_.memory.back().category = categories.of[b][i++];
      });
    }
    if (recording_.options.profile_memory)
      trace_.metadata.emplace_back(trace::kMemoryAtStartKey, categories.at_start_json());
    trace::link_forward_backward(trace_);
    return std::move(trace_);
  }

 private:
  int64_t relative(int64_t ticks) const { return clock_.unix_ns(ticks) - trace_.base_time_ns; }

  void add_processes() {
    const auto pid = static_cast<int32_t>(getpid());
    trace_.processes.push_back({pid, "epilogue", "CPU", pid});
    trace_.processes.push_back({kDevicePid, "epilogue",
                                "CPU 0 (synchronous: the launch is the call)",
                                kDeviceSortIndex + kDevicePid});
    for (size_t b = 0; b < recording_.buffers.size(); ++b) {
      const ThreadBuffer& buffer = *recording_.buffers[b];
      const auto tid = static_cast<int64_t>(buffer.thread_id);
      trace_.threads.push_back(
          {pid, tid, "thread " + std::to_string(tid) + " (" + buffer.thread_name + ")", tid});
      const auto stream = static_cast<int64_t>(b);
      trace_.threads.push_back(
          {kDevicePid, stream, "stream " + std::to_string(stream) + " ", stream});
    }
    struct sysinfo memory {};
    sysinfo(&memory);
    trace::DeviceProperties device;
    device.name = cpu_model_name();
    device.total_global_mem_bytes =
        static_cast<int64_t>(memory.totalram) * static_cast<int64_t>(memory.mem_unit);
    device.num_sms = num_threads();
    device.warp_size = 1;
    device.max_threads_per_block = 1;
    device.max_threads_per_multiprocessor = 1;
    trace_.devices.push_back(std::move(device));
  }

  trace::Event& add_event(std::string_view name, trace::Category category, int64_t begin_ticks,
                          int64_t end_ticks) {
    trace::Event& e = trace_.events.emplace_back();
    e.name = trace_.strings.intern(name);
    e.category = category;
    e.ts_ns = relative(begin_ticks);
    e.dur_ns = relative(end_ticks) - e.ts_ns;
    e.pid = static_cast<int32_t>(getpid());
    return e;
  }

  void add_op(const Span& span, int64_t ev_idx) {
    trace::OpArgs args;
    args.ev_idx = ev_idx;
    args.sequence_number = span.op->sequence_nr;
    args.record_function_id = 0;
    if (span.op->inputs != nullptr)
      args.inputs = trace_.inputs.intern(trace_inputs(*span.op->op, *span.op->inputs));
    if (span.op->stack != nullptr)
      args.stack = trace_.strings.intern(symbolizer_.stack(*span.op->stack));
    add_host_span(span, span.op->op->name, trace::Category::kCpuOp, args);
  }

  void add_range(const Span& span, int64_t ev_idx) {
    const RangeRecord& r = *span.range;
    if (r.kind == RangeKind::module) return add_module(span, ev_idx);
    trace::OpArgs args;
    args.ev_idx = ev_idx;
    args.sequence_number = r.sequence_nr;
    args.fwd_tid = static_cast<int64_t>(r.forward_thread);
    if (r.kind == RangeKind::backward_function) args.scope = trace::Scope::kBackwardFunction;
    if (r.kind == RangeKind::user) args.scope = trace::Scope::kUserScope;
    add_host_span(
        span, r.name,
        r.kind == RangeKind::user ? trace::Category::kUserAnnotation : trace::Category::kCpuOp,
        args);
  }

  void add_host_span(const Span& span, std::string_view name, trace::Category category,
                     const trace::OpArgs& args) {
    trace::Event& e = add_event(name, category, span.begin_ticks, span.end_ticks);
    e.tid = static_cast<int64_t>(recording_.buffers[span.buffer]->thread_id);
    e.external_id = external_ids_[span.buffer][span.local_id];
    e.args = static_cast<uint32_t>(trace_.ops.size());
    op_args_[span.buffer][span.local_id] = e.args;
    trace_.ops.push_back(args);
  }

  // Module ranges stand where PyTorch has Python frames, and like them only with stacks.
  void add_module(const Span& span, int64_t ev_idx) {
    if (!recording_.options.with_stack) return;
    trace::Event& e = add_event(span.range->name, trace::Category::kPythonFunction,
                                span.begin_ticks, span.end_ticks);
    e.tid = static_cast<int64_t>(recording_.buffers[span.buffer]->thread_id);
    e.args = static_cast<uint32_t>(trace_.python.size());
    trace::PythonArgs args;
    args.id = static_cast<int64_t>(span.local_id);
    args.ev_idx = ev_idx;
    trace_.python.push_back(args);
  }

  void add_kernel(size_t buffer, const KernelRecord& r) {
    const int64_t correlation = ++last_correlation_;
    const int64_t op = r.parent == kNoParent ? 0 : external_ids_[buffer][r.parent];
    if (recording_.cpu_activity) {
      trace::Event& launch =
          add_event(kLaunchName, trace::Category::kCudaRuntime, r.begin_ticks, r.end_ticks);
      launch.tid = static_cast<int64_t>(recording_.buffers[buffer]->thread_id);
      launch.correlation = correlation;
      launch.external_id = op;
      launch.args = static_cast<uint32_t>(trace_.runtime_calls.size());
      trace_.runtime_calls.push_back({});
    }
    trace::Event& e =
        add_event(r.info.name.view(), trace::Category::kKernel, r.begin_ticks, r.end_ticks);
    e.pid = kDevicePid;
    e.tid = static_cast<int64_t>(buffer);
    e.correlation = correlation;
    e.external_id = op;
    e.args = static_cast<uint32_t>(trace_.kernels.size());
    trace::KernelArgs args;
    args.device = kDevicePid;
    args.stream = static_cast<int64_t>(buffer);
    args.grid = r.info.grid;
    args.block = r.info.block;
    args.bytes = std::llround(r.bytes);
    args.flops = std::llround(r.flops);
    args.threads = r.info.threads;
    if (r.fused_ops != nullptr) {
      args.fused_ops = trace_.strings.intern(*r.fused_ops);
      args.unfused_bytes = std::llround(r.unfused_bytes);
      if (const uint32_t at = op_args_[buffer][r.parent]; at != trace::kNone)
        trace_.ops[at].fused_ops = args.fused_ops;
    }
    trace_.kernels.push_back(args);
  }

  void add_memory(size_t buffer, const MemoryRecord& r, int64_t ev_idx) {
    trace::MemoryEvent e;
    e.ts_ns = relative(r.ticks);
    e.tid = static_cast<int64_t>(recording_.buffers[buffer]->thread_id);
    e.pid = static_cast<int32_t>(getpid());
    e.addr = reinterpret_cast<uint64_t>(r.address);
    e.bytes = r.bytes;
    e.total_allocated = r.total_allocated;
    e.total_reserved = r.total_reserved;
    e.ev_idx = ev_idx;
    trace_.memory.push_back(e);
  }

  const Recording& recording_;
  TickConverter clock_;
  trace::Trace trace_;
  Symbolizer symbolizer_;
  std::vector<std::vector<int64_t>> external_ids_;  // [buffer][local id]
  std::vector<std::vector<uint32_t>> op_args_;      // likewise: index into Trace::ops
  int64_t last_correlation_ = 0;
};

}  // namespace

EventCounts count_events(const Recording& recording) {
  EventCounts n;
  const TickConverter clock(recording.begin, recording.end);
  for (const auto& buffer : recording.buffers) {
    n.own_ns += clock.duration_ns(buffer->own_ticks.load(std::memory_order_relaxed));
    buffer->ops.for_each([&](const OpRecord&) { ++n.ops; });
    buffer->kernels.for_each([&](const KernelRecord&) { ++n.kernels; });
    buffer->ranges.for_each([&](const RangeRecord&) { ++n.ranges; });
  }
  return n;
}

trace::Trace build_trace(const Recording& recording) { return Builder(recording).build(); }

}  // namespace epilogue::profiler
