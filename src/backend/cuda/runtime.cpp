// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/runtime.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/error.h"
#include "base/assert.h"
#include "base/clock.h"
#include "core/allocator.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {
namespace {

// The oldest architecture that the kernels are compiled for.
constexpr int kOldestArchitecture = 80;

DeviceInfo info_of(const cudaDeviceProp& p) {
  DeviceInfo info;
  info.name = p.name;
  info.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  info.compute_major = p.major;
  info.compute_minor = p.minor;
  info.multiprocessors = p.multiProcessorCount;
  info.warp_size = p.warpSize;
  info.max_threads_per_block = p.maxThreadsPerBlock;
  info.max_threads_per_multiprocessor = p.maxThreadsPerMultiProcessor;
  info.registers_per_block = p.regsPerBlock;
  info.registers_per_multiprocessor = p.regsPerMultiprocessor;
  info.shared_bytes_per_block = static_cast<int64_t>(p.sharedMemPerBlock);
  info.shared_bytes_per_block_optin = static_cast<int64_t>(p.sharedMemPerBlockOptin);
  info.shared_bytes_per_multiprocessor = static_cast<int64_t>(p.sharedMemPerMultiprocessor);
  info.l2_bytes = p.l2CacheSize;
  return info;
}

// The calling thread's, while it records.
thread_local cudaStream_t recording_stream = nullptr;

cudaStream_t current_stream() { return Runtime::get().stream(); }

}  // namespace

void* DeviceSegments::allocate(size_t bytes) {
  void* segment = nullptr;
  const cudaError_t status = cudaMalloc(&segment, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // told by the null pointer
    return nullptr;
  }
  check(status, "cudaMalloc");
  return segment;
}

void DeviceSegments::free(void* segment) {
  check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
  check(cudaFree(segment), "cudaFree");
}

Memory::Memory()
    : blocks_(segments_,
              [](const void* address, int64_t bytes, int64_t allocated, int64_t reserved) {
                if (MemoryObserver* o = memory_observer(); o != nullptr)
                  o->on_memory(kDevice, address, bytes, allocated, reserved);
              }) {}

void Memory::copy_from_host(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = current_stream();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  // Pageable memory has been staged by now; other memory is still being read.
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, from), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeUnregistered)
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void Memory::clear(void* to, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(to, 0, bytes, current_stream()), "cudaMemsetAsync");
}

void Memory::copy_to_host(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = current_stream();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

cudaEvent_t Timer::record() {
  cudaEvent_t event = nullptr;
  if (free_.empty()) {
    check(cudaEventCreate(&event), "cudaEventCreate");
  } else {
    event = free_.back();
    free_.pop_back();
  }
  check(cudaEventRecord(event, current_stream()), "cudaEventRecord");
  return event;
}

void Timer::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  EPI_ASSERT(!is_on_, "the timer is started once");
  check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
  base_ = record();
  check(cudaEventSynchronize(base_), "cudaEventSynchronize");
  base_unix_ns_ = realtime_ns();
  is_on_ = true;
}

int64_t Timer::mark() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_on_) return -1;
  marks_.push_back(record());
  return static_cast<int64_t>(marks_.size()) - 1;
}

std::vector<int64_t> Timer::stop() {
  std::vector<int64_t> times;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_on_) return times;
  is_on_ = false;
  check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
  for (const cudaEvent_t event : marks_) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, base_, event), "cudaEventElapsedTime");
    times.push_back(base_unix_ns_ + static_cast<int64_t>(static_cast<double>(ms) * 1e6));
    free_.push_back(event);
  }
  marks_.clear();
  free_.push_back(base_);
  return times;
}

Runtime::Runtime(DeviceInfo info, cudaStream_t stream) : info_(std::move(info)), stream_(stream) {}

Runtime* Runtime::make(std::string& why_none) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    int driver = 0;
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0;
    why_none = !has_driver             ? "there is no NVIDIA driver"
               : status != cudaSuccess ? cudaGetErrorString(status)
                                       : "no CUDA-capable device is detected";
    return nullptr;
  }
  check(cudaSetDevice(0), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  DeviceInfo info = info_of(properties);
  if (10 * info.compute_major + info.compute_minor < kOldestArchitecture) {
    why_none = info.name + " has compute capability " + std::to_string(info.compute_major) + "." +
               std::to_string(info.compute_minor) + ", 8.0 or newer is needed";
    return nullptr;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return new Runtime(std::move(info), stream);
}

// Looked for once.
const std::pair<Runtime*, std::string>& Runtime::found() {
  static const auto result = [] {
    std::string why;
    Runtime* runtime = nullptr;
    try {
      runtime = make(why);
    } catch (const Error& e) {
      why = e.what();
    }
    return std::pair(runtime, why);
  }();
  return result;
}

Runtime* Runtime::find() {
  Runtime* const runtime = found().first;
  // Streams and memory belong to the device that the calling thread has chosen.
  thread_local bool is_set = false;
  if (runtime != nullptr && !is_set) {
    check(cudaSetDevice(0), "cudaSetDevice");
    is_set = true;
  }
  return runtime;
}

const std::string& Runtime::why_none() { return found().second; }

Runtime& Runtime::get() {
  Runtime* const runtime = find();
  EPI_ASSERT(runtime != nullptr, "tensors of a device that is not there cannot exist");
  return *runtime;
}

cudaStream_t Runtime::stream() const {
  return recording_stream != nullptr ? recording_stream : stream_;
}

void Runtime::synchronize() const {
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

namespace {

class Graph final : public LaunchGraph {
 public:
  explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() override { check(cudaGraphLaunch(graph_, current_stream()), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_;
};

// A stream that the calling thread launches into, and that records.
class Recording {
 public:
  Recording() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    recording_stream = stream_;
  }
  ~Recording() {
    recording_stream = nullptr;
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
    cudaGetLastError();  // of what could not be recorded
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // nullptr where something in `body` cannot be recorded.
  cudaGraphExec_t run(FunctionRef<void()> body) {
    if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed) != cudaSuccess)
      return nullptr;
    bool failed = false;
    try {
      body();
    } catch (const std::exception&) {
      failed = true;  // the caller runs it the usual way, and hears of what is wrong with it
    }
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph_);
    cudaGraphExec_t executable = nullptr;
    if (failed || ended != cudaSuccess || graph_ == nullptr ||
        cudaGraphInstantiate(&executable, graph_, 0) != cudaSuccess)
      return nullptr;
    return executable;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<LaunchGraph> Runtime::record(FunctionRef<void()> body) const {
  Recording recording;
  const cudaGraphExec_t graph = recording.run(body);
  return graph != nullptr ? std::make_unique<Graph>(graph) : nullptr;
}

double measure_us(cudaStream_t stream, FunctionRef<void()> body) {
  constexpr int kRuns = 5;  // the first warms up
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    body();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i > 0) least = std::min(least, static_cast<double>(ms) * 1e3);
  }
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  return least;
}

}  // namespace epilogue::cuda
