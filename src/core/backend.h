// SPDX-License-Identifier: Apache-2.0
// Backend: where kernels and device memory come from. Core declares it; backend/* defines it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/capabilities.h"
#include "core/op.h"
#include "core/program_kernel.h"
#include "core/row_chain.h"

namespace epilogue {

// Memory that the host cannot read. All calls work in the order in which they are made, as kernels
// do: memory that was freed may be given out again at once. Thread-safe.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // 512-byte aligned, not initialised; nullptr for zero bytes. Throws Error when memory is
  // exhausted.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* address) noexcept = 0;
  // `from` may be reused when the call returns; the copy may still be under way.
  virtual void copy_from_host(void* to, const void* from, size_t bytes) = 0;
  // All bytes become 0.
  virtual void clear(void* to, size_t bytes) = 0;
  // Returns when the bytes are there.
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void release_cached() = 0;
};

// Moments on a device's own clock, for profiles where no tracer of the device is there.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual void start() = 0;
  // After all work so far; an index into what stop() gives, or -1 while not started.
  virtual int64_t mark() = 0;
  // Waits for the device. Unix time of every mark, in nanoseconds.
  virtual std::vector<int64_t> stop() = 0;
};

// Launches that were recorded once and are repeated by one call.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
  virtual void launch() = 0;
};

// A device's properties, for traces and people. 0: unknown.
struct DeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int warp_size = 0;
  int max_threads_per_block = 0;
  int max_threads_per_multiprocessor = 0;
  int registers_per_block = 0;
  int registers_per_multiprocessor = 0;
  int64_t shared_bytes_per_block = 0;
  int64_t shared_bytes_per_block_optin = 0;
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t l2_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // At this moment: EPILOGUE_ISA and set_active_isa() change a CPU's.
  virtual Capabilities capabilities() const = 0;
  // Kernels of an op, best first; empty where only the reference exists. The span and what it
  // names live as long as the process.
  virtual const std::span<const Kernel>& kernels(const OpDef& op) const = 0;
  // Fused kernels. Both throw Error where the backend has none for the shapes or dtypes.
  virtual std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) const = 0;
  virtual std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) const = 0;

  // For a device with memory of its own; the CPU has none of these.
  virtual DeviceMemory* memory() const { return nullptr; }
  virtual DeviceTimer* timer() const { return nullptr; }
  // Waits until all work is done. Throws Error where some of it failed.
  virtual void synchronize() const {}
  // Runs `body`, whose launches are recorded instead of executed. nullptr where they cannot be
  // (then nothing was executed either).
  virtual std::unique_ptr<LaunchGraph> record(FunctionRef<void()> body) const {
    (void)body;
    return nullptr;
  }
};

// Defined in backend/cpu.
Backend& cpu_backend();
// Defined in backend/cuda or backend/no_cuda: nullptr where there is none, with the reason.
Backend* cuda_backend();
std::string cuda_status();
// Empty where there is no device.
std::vector<DeviceInfo> cuda_devices();
// CUDA's needs beside a device: the toolkit of the build, the driver, libraries that are looked
// for when they are needed. `state` is a version, a name, or why it is not there.
struct CudaPart {
  std::string name;
  bool is_there = false;
  std::string state;
};
std::vector<CudaPart> cuda_parts();
// Whether something asked for the device before. Asking this starts nothing.
bool cuda_is_in_use();

// The backend of a device; throws Error with the reason where there is none. The second form is for
// devices with memory of their own.
Backend& backend_of(Device device);
Backend& device_backend(Device device);

}  // namespace epilogue
