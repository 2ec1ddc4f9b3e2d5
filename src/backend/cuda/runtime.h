// SPDX-License-Identifier: Apache-2.0
// The device in use, its stream and its memory. One device (CUDA_VISIBLE_DEVICES chooses) and one
// stream: all work of the process runs in the order in which it is launched. A thread that records
// launches has a stream of its own meanwhile, so that other threads' work is not recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/block_allocator.h"
#include "core/backend.h"

namespace epilogue::cuda {

inline constexpr Device kDevice{DeviceType::cuda, 0};

// Rows up to which calls are recorded: there kernels take less than ten microseconds.
inline constexpr int64_t kMostRecordedRows = 128;

// Segments from cudaMalloc.
class DeviceSegments final : public SegmentSource {
 public:
  void* allocate(size_t bytes) override;
  void free(void* segment) override;
};

class Memory final : public DeviceMemory {
 public:
  Memory();
  void* allocate(size_t bytes) override { return blocks_.allocate(bytes); }
  void free(void* address) noexcept override { blocks_.free(address); }
  void copy_from_host(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void clear(void* to, size_t bytes) override;
  MemoryStats stats() const override { return blocks_.stats().memory; }
  void reset_peak() override { blocks_.reset_peak(); }
  void release_cached() override { blocks_.release_cached(); }

 private:
  DeviceSegments segments_;
  BlockAllocator blocks_;
};

// Events in the stream, one per mark. Thread-safe.
class Timer final : public DeviceTimer {
 public:
  void start() override;
  int64_t mark() override;
  std::vector<int64_t> stop() override;

 private:
  cudaEvent_t record();
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
  std::vector<cudaEvent_t> marks_;
  cudaEvent_t base_ = nullptr;
  int64_t base_unix_ns_ = 0;
  bool is_on_ = false;
};

class Runtime {
 public:
  // nullptr where there is no usable device; why_none() then says why. Never destroyed: tensors may
  // die after static destructors ran.
  static Runtime* find();
  static const std::string& why_none();
  // Precondition: there is one.
  static Runtime& get();

  const DeviceInfo& info() const { return info_; }
  // Where the calling thread launches.
  cudaStream_t stream() const;
  Memory& memory() { return memory_; }
  Timer& timer() { return timer_; }
  // 90 for Hopper.
  int architecture() const { return 10 * info_.compute_major + info_.compute_minor; }
  void synchronize() const;
  // The launches of `body` as a graph; nullptr where something in it cannot be recorded.
  std::unique_ptr<LaunchGraph> record(FunctionRef<void()> body) const;

 private:
  Runtime(DeviceInfo info, cudaStream_t stream);
  static Runtime* make(std::string& why_none);
  static const std::pair<Runtime*, std::string>& found();

  DeviceInfo info_;
  cudaStream_t stream_;
  Memory memory_;
  Timer timer_;
};

// Device time of `body`, in microseconds: the least of a few runs.
double measure_us(cudaStream_t stream, FunctionRef<void()> body);

}  // namespace epilogue::cuda
