// SPDX-License-Identifier: Apache-2.0
#include "profile/recorder.h"

#include <execinfo.h>
#include <pthread.h>

#include <algorithm>

#include "base/clock.h"

namespace epilogue::profiler {
namespace {

constexpr int kMaxFrames = 48;
constexpr int kOwnFrames = 2;  // of the recorder itself, at the top of every stack

// This thread's buffer and the session that it belongs to.
struct Slot {
  uint64_t session = 0;
  std::shared_ptr<ThreadBuffer> buffer;
};
thread_local Slot slot;

std::unique_ptr<OpInputs> note_inputs(std::span<const Tensor> in, std::span<const Attr> attrs) {
  auto inputs = std::make_unique<OpInputs>();
  inputs->tensors.reserve(in.size());
  for (const Tensor& t : in) {
    InputShape shape;
    if (t.defined()) shape = {t.sizes(), t.strides(), t.dtype(), true, t.impl()->is_wrapped_number};
    inputs->tensors.push_back(shape);
  }
  inputs->attrs.assign(attrs.begin(), attrs.end());
  return inputs;
}

// Memory that lived before the session: an op that reads it is where it shows.
void note_categories(ThreadBuffer& b, std::span<const Tensor> in) {
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    const detail::Storage& storage = *t.impl()->storage.get();
    if (storage.category() == MemoryCategory::unknown || storage.is_borrowed()) continue;
    if (b.known_storage.insert(storage.data()).second)
      b.categories.push_back({ticks(), storage.device(), storage.data(),
                              static_cast<int64_t>(storage.bytes()), storage.category()});
  }
}

// The topmost open span that is an op or a node of the backward walk; annotations are transparent.
void note_place(const ThreadBuffer& b, MemoryRecord& record) {
  if (!b.open_ops.empty()) record.node = b.open_ops.front().id;
  for (const RangeRecord& range : b.open_ranges) {
    if (range.kind != RangeKind::function && range.kind != RangeKind::backward_function) continue;
    record.is_backward = true;
    if (record.node == 0 || range.id < record.node) record.node = range.id;
    return;
  }
}

std::unique_ptr<std::vector<void*>> note_stack() {
  std::array<void*, kMaxFrames> frames{};
  const int n = backtrace(frames.data(), kMaxFrames);
  const int skip = std::min(kOwnFrames, n);
  return std::make_unique<std::vector<void*>>(frames.begin() + skip, frames.begin() + n);
}

// Name and work of one of an op's own kernels.
void describe_op_kernel(const KernelRun& run, KernelRecord& record) {
  if (run.kernel != nullptr) {
    run.kernel->describe(run.call, record.info);
  } else {
    const bool on_device = run.call.out[0].device().type != DeviceType::cpu;
    record.info.name = on_device ? "epi_host_" : "epi_reference_";
    record.info.name += run.call.op.name.substr(run.call.op.name.find("::") + 2);
    record.info.name += "_";
    record.info.name += dtype_name(run.call.out[0].dtype());
  }
  const OpDef& op = run.call.op;
  record.flops = op.flops != nullptr ? op.flops(run.call) : 0;
  record.bytes = op.bytes != nullptr ? op.bytes(run.call) : moved_bytes(run.call);
}

}  // namespace

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;
  return *recorder;
}

void Recorder::start(const RecorderOptions& options) {
  const std::lock_guard<std::mutex> lock(mutex_);
  options_ = options;
  buffers_.clear();
  session_.store(++last_session_, std::memory_order_release);
}

std::vector<std::shared_ptr<ThreadBuffer>> Recorder::stop() {
  session_.store(0, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::move(buffers_);
}

ThreadBuffer* Recorder::buffer() {
  const uint64_t session = session_.load(std::memory_order_acquire);
  if (session == 0) return nullptr;
  if (slot.session == session) [[likely]]
    return slot.buffer.get();
  return attach();
}

ThreadBuffer* Recorder::attach() {
  auto fresh = std::make_shared<ThreadBuffer>();
  fresh->thread_id = current_thread_id();
  std::array<char, 32> name{};
  if (pthread_getname_np(pthread_self(), name.data(), name.size()) == 0)
    fresh->thread_name = name.data();
  fresh->open_ops.reserve(64);
  fresh->open_ranges.reserve(64);
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t session = session_.load(std::memory_order_acquire);
  if (session == 0) return nullptr;
  fresh->options = options_;
  slot = {session, fresh};
  buffers_.push_back(std::move(fresh));
  return slot.buffer.get();
}

void Recorder::op_begin(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                        int64_t sequence_nr) {
  const int64_t entry = ticks();
  ThreadBuffer* b = buffer();
  if (b == nullptr) return;
  OpRecord& record = b->open_ops.emplace_back();
  record.op = &op;
  record.id = b->next_id++;
  record.sequence_nr = sequence_nr;
  if (b->options.shapes) record.inputs = note_inputs(in, attrs);
  if (b->options.stacks) record.stack = note_stack();
  if (b->options.memory) note_categories(*b, in);
  if (b->options.tracer != nullptr) b->options.tracer->push_op(op_key(b->thread_id, record.id));
  record.begin_ticks = ticks();
  b->add_own(record.begin_ticks - entry);
}

void Recorder::op_end() {
  const int64_t now = ticks();
  ThreadBuffer* b = buffer();
  // Empty where the op began before the session.
  if (b == nullptr || b->open_ops.empty()) return;
  b->open_ops.back().end_ticks = now;
  b->ops.push_back(std::move(b->open_ops.back()));
  b->open_ops.pop_back();
  if (b->options.tracer != nullptr) b->options.tracer->pop_op();
  b->add_own(ticks() - now);
}

void Recorder::kernel_ran(const KernelRun& run) {
  ThreadBuffer* b = buffer();
  if (b == nullptr || !b->options.kernels) return;
  KernelRecord& record = b->kernels.next();
  record.info = {};
  record.begin_ticks = run.begin_ticks;
  record.end_ticks = run.end_ticks;
  record.parent = b->open_ops.empty() ? kNoParent : b->open_ops.back().id;
  record.fused_ops.reset();
  record.on_device = !run.call.out.empty() && run.call.out[0].device().type != DeviceType::cpu;
  record.begin_mark = run.begin_mark;
  record.end_mark = run.end_mark;
  if (run.fused != nullptr) {
    record.info = run.fused->info;
    record.flops = run.fused->flops;
    record.bytes = run.fused->bytes;
    record.unfused_bytes = run.fused->unfused_bytes;
    record.fused_ops = run.fused->ops;
  } else {
    describe_op_kernel(run, record);
  }
  b->kernels.publish();
  b->add_own(ticks() - run.end_ticks);
}

void Recorder::range_begin(std::string_view name, RangeKind kind, int64_t sequence_nr,
                           uint64_t forward_thread) {
  ThreadBuffer* b = buffer();
  if (b == nullptr) return;
  RangeRecord& record = b->open_ranges.emplace_back();
  record.name = name;
  record.kind = kind;
  record.sequence_nr = sequence_nr;
  record.forward_thread = forward_thread;
  record.id = b->next_id++;
  record.begin_ticks = ticks();
}

void Recorder::range_end() {
  const int64_t now = ticks();
  ThreadBuffer* b = buffer();
  if (b == nullptr || b->open_ranges.empty()) return;
  b->open_ranges.back().end_ticks = now;
  b->ranges.push_back(std::move(b->open_ranges.back()));
  b->open_ranges.pop_back();
}

void Recorder::on_memory(Device device, const void* address, int64_t bytes, int64_t total_allocated,
                         int64_t total_reserved) {
  ThreadBuffer* b = buffer();
  if (b == nullptr || !b->options.memory) return;
  MemoryRecord record{ticks(), device, address, bytes, total_allocated, total_reserved};
  note_place(*b, record);
  b->memory.push_back(record);
}

void Recorder::on_category(Device device, const void* address, int64_t bytes,
                           MemoryCategory category) {
  ThreadBuffer* b = buffer();
  if (b == nullptr || !b->options.memory) return;
  b->categories.push_back({ticks(), device, address, bytes, category});
}

}  // namespace epilogue::profiler
