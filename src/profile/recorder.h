// SPDX-License-Identifier: Apache-2.0
// Recorder: hears ops, kernels, ranges and memory, and notes them in buffers of their threads.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/allocator.h"
#include "core/observer.h"
#include "profile/chunk_list.h"
#include "profile/device_tracer.h"

namespace epilogue::profiler {

// Sizes, strides and dtype of one tensor argument; rank -1: undefined.
struct InputShape {
  Dims sizes;
  Dims strides;
  DType dtype = DType::f32;
  bool defined = false;
  bool is_number = false;
};

// Argument values of one op, kept beside its record when shapes are wanted.
struct OpInputs {
  std::vector<InputShape> tensors;
  std::vector<Attr> attrs;
};

inline constexpr uint32_t kNoParent = 0;

// An op of any thread, as a tracer sees it.
inline uint64_t op_key(uint64_t thread_id, uint32_t id) { return thread_id << 32 | id; }

struct OpRecord {
  const OpDef* op = nullptr;
  int64_t begin_ticks = 0;
  int64_t end_ticks = 0;
  int64_t sequence_nr = -1;
  uint32_t id = 0;  // counts from 1 per thread, in order of begin
  std::unique_ptr<OpInputs> inputs;
  std::unique_ptr<std::vector<void*>> stack;
};

struct RangeRecord {
  std::string name;
  RangeKind kind = RangeKind::user;
  int64_t begin_ticks = 0;
  int64_t end_ticks = 0;
  int64_t sequence_nr = -1;
  uint64_t forward_thread = 0;
  uint32_t id = 0;
};

struct KernelRecord {
  KernelInfo info;
  int64_t begin_ticks = 0;
  int64_t end_ticks = 0;
  double flops = 0;
  double bytes = 0;
  double unfused_bytes = 0;                      // of fused kernels
  std::shared_ptr<const std::string> fused_ops;  // null: the kernel is its op's own
  uint32_t parent = kNoParent;                   // OpRecord::id
  bool on_device = false;  // the ticks are the launch's; when it ran, the marks tell
  int64_t begin_mark = -1;
  int64_t end_mark = -1;
};

struct MemoryRecord {
  int64_t ticks = 0;
  Device device;
  const void* address = nullptr;
  int64_t bytes = 0;
  int64_t total_allocated = 0;
  int64_t total_reserved = 0;
  uint32_t node = 0;         // id of the outermost op or backward node around it; 0: none
  bool is_backward = false;  // that node is the walk's
};

// A block whose purpose was said, at that time.
struct CategoryRecord {
  int64_t ticks = 0;
  Device device;
  const void* address = nullptr;
  int64_t bytes = 0;
  MemoryCategory category = MemoryCategory::unknown;
};

struct RecorderOptions {
  bool kernels = true;
  bool shapes = false;
  bool memory = false;
  bool stacks = false;
  DeviceTracer* tracer = nullptr;  // hears which op a call belongs to
};

// One thread's records of one session. Spans are appended when they end.
struct ThreadBuffer {
  RecorderOptions options;
  uint64_t thread_id = 0;
  std::string thread_name;
  ChunkList<OpRecord> ops;
  ChunkList<RangeRecord, 256> ranges;
  ChunkList<KernelRecord> kernels;
  ChunkList<MemoryRecord> memory;
  ChunkList<CategoryRecord> categories;

  // Time spent in here: it depends on the kernel (a GEMM's plan is made again for its name) and on
  // the caches, so it is measured, not estimated. Written by the owning thread.
  std::atomic<int64_t> own_ticks{0};
  void add_own(int64_t ticks) {
    own_ticks.store(own_ticks.load(std::memory_order_relaxed) + ticks, std::memory_order_relaxed);
  }

  // Open spans; the owning thread's alone.
  std::vector<OpRecord> open_ops;
  std::vector<RangeRecord> open_ranges;
  uint32_t next_id = 1;
  // Storage that ops of this thread used and whose purpose is noted.
  std::unordered_set<const void*> known_storage;
};

// One object serves the whole process: threads may still be inside an op when a session ends, so
// the recorder must outlive them all. Sessions differ by a number.
class Recorder final : public RunObserver, public MemoryObserver {
 public:
  static Recorder& instance();

  // Forgets what an earlier session recorded; recording begins with start().
  void start(const RecorderOptions& options);
  // Ends the session and hands its buffers over. Spans that are still open are lost.
  std::vector<std::shared_ptr<ThreadBuffer>> stop();

  void op_begin(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                int64_t sequence_nr) override;
  void op_end() override;
  void kernel_ran(const KernelRun& run) override;
  void range_begin(std::string_view name, RangeKind kind, int64_t sequence_nr,
                   uint64_t forward_thread) override;
  void range_end() override;
  void on_memory(Device device, const void* address, int64_t bytes, int64_t total_allocated,
                 int64_t total_reserved) override;
  void on_category(Device device, const void* address, int64_t bytes,
                   MemoryCategory category) override;

 private:
  ThreadBuffer* buffer();
  ThreadBuffer* attach();

  RecorderOptions options_;
  std::atomic<uint64_t> session_{0};  // 0: idle
  uint64_t last_session_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<ThreadBuffer>> buffers_;
};

}  // namespace epilogue::profiler
