// SPDX-License-Identifier: Apache-2.0

#include "profile/build_trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/op.h"
#include "epilogue/trace/memory.h"
#include "profile/device_events.h"
#include "profile/op_inputs.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

namespace {

// Resolves addresses through the dynamic symbol table (link with -rdynamic to name a program's own
// functions) and remembers them. Frames: "epilogue::linear(...)", or "libfoo.so+0x1234" without a
// symbol.
class Symbolizer {
 public:
  const std::string& name(void* address);
  // Innermost first, joined by ';'.
  std::string stack(const std::vector<void*>& addresses);

 private:
  std::unordered_map<void*, std::string> names_;
};

struct MemoryCategories {
  std::vector<std::vector<trace::MemoryCategory>> of;  // [buffer][memory record]
  trace::CategoryBytes at_start{};  // allocated before the session, as far as it is known

  std::string at_start_json() const;
};

std::string resolve(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return fmt::format("{}", address);
  if (info.dli_sname != nullptr) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    std::string name = status == 0 ? demangled : info.dli_sname;
    std::free(demangled);
    return name;
  }
  std::string_view file = info.dli_fname != nullptr ? info.dli_fname : "?";
  file = file.substr(file.find_last_of('/') + 1);
  return fmt::format("{}+{:#x}", file,
                     static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
}

const std::string& Symbolizer::name(void* address) {
  const auto it = names_.find(address);
  return it != names_.end() ? it->second : names_.emplace(address, resolve(address)).first->second;
}

std::string Symbolizer::stack(const std::vector<void*>& addresses) {
  std::string text;
  for (void* address : addresses) {
    if (!text.empty()) text += ';';
    text += name(address);
  }
  return text;
}

static_assert(static_cast<int>(epilogue::MemoryCategory::unknown) ==
              static_cast<int>(MemoryCategory::unknown));

struct Moment {
  int64_t ticks;
  // At one tick an allocation comes before what is said of it, a free after.
  enum class Kind : uint8_t { allocation, said, freed } kind;
  size_t buffer;
  size_t index;  // in the buffer's memory records
  const MemoryRecord* memory;
  const CategoryRecord* category;
};

std::vector<Moment> moments_of(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
  std::vector<Moment> moments;
  for (size_t b = 0; b < buffers.size(); ++b) {
    size_t i = 0;
    buffers[b]->memory.for_each([&](const MemoryRecord& r) {
      const auto kind = r.bytes > 0 ? Moment::Kind::allocation : Moment::Kind::freed;
      moments.push_back({r.ticks, kind, b, i++, &r, nullptr});
    });
    buffers[b]->categories.for_each([&](const CategoryRecord& r) {
      moments.push_back({r.ticks, Moment::Kind::said, b, 0, nullptr, &r});
    });
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& x, const Moment& y) {
    return x.ticks != y.ticks ? x.ticks < y.ticks : x.kind < y.kind;
  });
  return moments;
}

class Categorizer {
 public:
  explicit Categorizer(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
    for (const auto& buffer : buffers) {
      size_t count = 0;
      buffer->memory.for_each([&](const MemoryRecord&) { ++count; });
      result_.of.emplace_back(count, MemoryCategory::unknown);
    }
  }

  MemoryCategories run(const std::vector<Moment>& moments) {
    for (const Moment& m : moments) {
      if (m.kind == Moment::Kind::allocation) live_[m.memory->address] = {m, {}};
      if (m.kind == Moment::Kind::said) say(*m.category);
      if (m.kind == Moment::Kind::freed) release(m);
    }
    for (const auto& [address, block] : live_) set(block.allocated, category_of(block, nullptr));
    return std::move(result_);
  }

 private:
  struct Block {
    Moment allocated;
    std::optional<MemoryCategory> said;
  };

  void set(const Moment& m, MemoryCategory category) { result_.of[m.buffer][m.index] = category; }

  void say(const CategoryRecord& r) {
    if (const auto block = live_.find(r.address); block != live_.end()) {
      block->second.said = r.category;
      return;
    }
    const auto [known, is_new] = before_.try_emplace(r.address, r.category);
    // A trace's figures of the start are the host's.
    if (is_new && r.device.type == DeviceType::cpu)
      result_.at_start[static_cast<size_t>(known->second)] += r.bytes;
  }

  void release(const Moment& m) {
    if (const auto block = live_.find(m.memory->address); block != live_.end()) {
      const MemoryCategory category = category_of(block->second, &m);
      set(block->second.allocated, category);
      set(m, category);
      live_.erase(block);
    } else if (const auto known = before_.find(m.memory->address); known != before_.end()) {
      set(m, known->second);
      before_.erase(known);
    }
  }

  // `freed` is null where the block outlives the session.
  static MemoryCategory category_of(const Block& block, const Moment* freed) {
    if (block.said) return *block.said;
    const MemoryRecord& from = *block.allocated.memory;
    if (from.node == 0) return MemoryCategory::unknown;
    const bool within = freed != nullptr && freed->buffer == block.allocated.buffer &&
                        freed->memory->node == from.node;
    if (within) return MemoryCategory::temporary;
    return from.is_backward ? MemoryCategory::autograd_detail : MemoryCategory::activation;
  }

  MemoryCategories result_;
  std::unordered_map<const void*, Block> live_;
  std::unordered_map<const void*, MemoryCategory> before_;  // allocated before the session
};

std::string MemoryCategories::at_start_json() const {
  std::string json;
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    if (at_start[c] == 0) continue;
    json += json.empty() ? "" : ", ";
    json += '"';
    json += memory_category_name(static_cast<MemoryCategory>(c));
    json += "\": " + std::to_string(at_start[c]);
  }
  return "{" + json + "}";
}

// torch.profiler's categories. A block of which something was said (parameter, optimizer state,
// input, gradient) is that, from its allocation on. Else it is temporary where it was freed in the
// node that allocated it (the outermost op, or node of the backward walk), autograd detail where
// that node is the walk's, an activation where it is another op, and unknown outside of ops.
MemoryCategories categorize_memory(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
  return Categorizer(buffers).run(moments_of(buffers));
}

constexpr int32_t kDevicePid = 0;

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
    trace_.device_label = on_gpu() ? "CUDA" : "KERNEL";
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
    add_activities(
        trace_, recording_.activities, [this](uint64_t op) { return external_id_of(op); },
        recording_.cpu_activity);
    trace::link_forward_backward(trace_);
    return std::move(trace_);
  }

 private:
  bool on_gpu() const { return !recording_.devices.empty(); }

  // The id of an op by its op_key(); 0 where its thread was not recorded.
  int64_t external_id_of(uint64_t op) const {
    for (size_t b = 0; b < recording_.buffers.size(); ++b) {
      if (recording_.buffers[b]->thread_id != op >> 32) continue;
      const auto id = static_cast<uint32_t>(op);
      return id < external_ids_[b].size() ? external_ids_[b][id] : 0;
    }
    return 0;
  }

  int64_t relative(int64_t ticks) const { return clock_.unix_ns(ticks) - trace_.base_time_ns; }

  void add_processes() {
    const auto pid = static_cast<int32_t>(getpid());
    trace_.processes.push_back({pid, "epilogue", "CPU", pid});
    add_host_threads(pid);
    if (on_gpu()) return add_devices(trace_, recording_.devices, recording_.activities);
    trace_.processes.push_back({kDevicePid, "epilogue",
                                "CPU 0 (synchronous: the launch is the call)",
                                kDeviceSortIndex + kDevicePid});
    for (size_t b = 0; b < recording_.buffers.size(); ++b) {
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

  void add_host_threads(int32_t pid) {
    for (const auto& buffer : recording_.buffers) {
      const auto tid = static_cast<int64_t>(buffer->thread_id);
      trace_.threads.push_back(
          {pid, tid, "thread " + std::to_string(tid) + " (" + buffer->thread_name + ")", tid});
    }
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
    trace::OpArgs args = {
        .record_function_id = 0, .ev_idx = ev_idx, .sequence_number = span.op->sequence_nr};
    if (span.op->inputs != nullptr)
      args.inputs = trace_.inputs.intern(trace_inputs(*span.op->op, *span.op->inputs));
    if (span.op->stack != nullptr)
      args.stack = trace_.strings.intern(symbolizer_.stack(*span.op->stack));
    add_host_span(span, span.op->op->name, trace::Category::cpu_op, args);
  }

  void add_range(const Span& span, int64_t ev_idx) {
    const RangeRecord& r = *span.range;
    if (r.kind == RangeKind::module) return add_module(span, ev_idx);
    trace::OpArgs args;
    args.ev_idx = ev_idx;
    args.sequence_number = r.sequence_nr;
    args.fwd_tid = static_cast<int64_t>(r.forward_thread);
    if (r.kind == RangeKind::backward_function) args.scope = trace::Scope::backward_function;
    if (r.kind == RangeKind::user) args.scope = trace::Scope::user_scope;
    add_host_span(
        span, r.name,
        r.kind == RangeKind::user ? trace::Category::user_annotation : trace::Category::cpu_op,
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
    trace::Event& e = add_event(span.range->name, trace::Category::python_function,
                                span.begin_ticks, span.end_ticks);
    e.tid = static_cast<int64_t>(recording_.buffers[span.buffer]->thread_id);
    e.args = static_cast<uint32_t>(trace_.python.size());
    trace::PythonArgs args = {.id = static_cast<int64_t>(span.local_id), .ev_idx = ev_idx};
    trace_.python.push_back(args);
  }

  // When a kernel of a device ran, relative to the base; the marks are there.
  int64_t mark_ns(int64_t mark) const {
    return recording_.marks[static_cast<size_t>(mark)] - trace_.base_time_ns;
  }
  bool has_marks(const KernelRecord& r) const {
    const auto count = static_cast<int64_t>(recording_.marks.size());
    return r.begin_mark >= 0 && r.end_mark >= 0 && r.begin_mark < count && r.end_mark < count;
  }

  // The ops that a kernel stands for, also said of the op that launched it; 0: none.
  trace::StringId note_fused_ops(size_t buffer, const KernelRecord& r) {
    if (r.fused_ops == nullptr) return 0;
    const trace::StringId ops = trace_.strings.intern(*r.fused_ops);
    if (const uint32_t at = op_args_[buffer][r.parent]; at != trace::kNone)
      trace_.ops[at].fused_ops = ops;
    return ops;
  }

  void add_kernel(size_t buffer, const KernelRecord& r) {
    const trace::StringId fused_ops = note_fused_ops(buffer, r);
    // The GPU's lanes are the GPU's; its tracer knows more of its kernels than we do.
    if (on_gpu() && (!r.on_device || recording_.has_tracer || !has_marks(r))) return;
    const int64_t correlation = ++last_correlation_;
    const int64_t op = r.parent == kNoParent ? 0 : external_ids_[buffer][r.parent];
    if (recording_.cpu_activity) {
      trace::Event& launch =
          add_event(kLaunchName, trace::Category::cuda_runtime, r.begin_ticks, r.end_ticks);
      launch.tid = static_cast<int64_t>(recording_.buffers[buffer]->thread_id);
      launch.correlation = correlation;
      launch.external_id = op;
      launch.args = static_cast<uint32_t>(trace_.runtime_calls.size());
      trace_.runtime_calls.push_back({});
    }
    trace::Event& e =
        add_event(r.info.name.view(), trace::Category::kernel, r.begin_ticks, r.end_ticks);
    e.pid = kDevicePid;
    e.tid = on_gpu() ? 0 : static_cast<int64_t>(buffer);  // a GPU has one stream here
    if (on_gpu()) {
      e.ts_ns = mark_ns(r.begin_mark);
      e.dur_ns = mark_ns(r.end_mark) - e.ts_ns;
    }
    e.correlation = correlation;
    e.external_id = op;
    e.args = static_cast<uint32_t>(trace_.kernels.size());
    trace::KernelArgs args = {
        .device = kDevicePid, .stream = e.tid, .grid = r.info.grid, .block = r.info.block};
    if (on_gpu()) {
      args.has_grid = false;  // nor registers nor shared memory: unknown without a tracer
      args.registers_per_thread = -1;
      args.shared_memory_bytes = -1;
    }
    args.bytes = std::llround(r.bytes);
    args.flops = std::llround(r.flops);
    if (!on_gpu()) args.threads = r.info.threads;
    args.fused_ops = fused_ops;
    if (fused_ops != 0) args.unfused_bytes = std::llround(r.unfused_bytes);
    trace_.kernels.push_back(args);
  }

  void add_memory(size_t buffer, const MemoryRecord& r, int64_t ev_idx) {
    trace::MemoryEvent e;
    e.ts_ns = relative(r.ticks);
    e.tid = static_cast<int64_t>(recording_.buffers[buffer]->thread_id);
    e.pid = static_cast<int32_t>(getpid());
    if (r.device.type == DeviceType::cuda) {
      e.device_type = trace::DeviceType::cuda;
      e.device_id = static_cast<uint8_t>(r.device.index);
    }
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
