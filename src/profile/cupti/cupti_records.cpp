// SPDX-License-Identifier: Apache-2.0
// Names are Kineto's (libkineto, CuptiActivity.cpp), so that tools for PyTorch's traces know them.
#include "profile/cupti/cupti_records.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace epilogue::profiler {
namespace {

std::string_view copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return "HtoA";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return "AtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA: return "AtoA";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD: return "AtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA: return "DtoA";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "HtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "PtoP";
    default: return "<unknown>";
  }
}

std::string_view memory_name(uint16_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE: return "Pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED: return "Pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE: return "Device";
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY: return "Array";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED: return "Managed";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC: return "Device Static";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC: return "Managed Static";
    default: return "Unknown";
  }
}

std::string_view sync_name(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE: return "Event Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT: return "Stream Wait Event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE: return "Stream Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE: return "Context Sync";
    default: return "Unknown Sync";
  }
}

std::string_view overhead_name(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER: return "Driver Compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH: return "Buffer Flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION: return "Instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE: return "Resource";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
      return "Runtime Triggered Module Loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING: return "Lazy Function Loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL: return "Command Buffer Full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST: return "Activity Buffer Request";
    default: return "Unknown Overhead";
  }
}

// Calls that Kineto leaves out: queries of a few nanoseconds, and the driver's calls below the
// runtime's, but for launches (libraries make theirs there).
bool is_left_out(std::string_view name, bool is_runtime) {
  if (!is_runtime) return !name.starts_with("cuLaunchKernel");
  for (const std::string_view query :
       {"cudaGetDevice", "cudaSetDevice", "cudaGetLastError", "cudaEventCreate",
        "cudaEventCreateWithFlags", "cudaEventDestroy"})
    if (name == query) return true;
  return false;
}

// CUPTI's "no such id" of streams and graphs.
int64_t id_or_none(uint32_t id) { return id == 0 || id == UINT32_MAX ? -1 : int64_t{id}; }
int64_t stream_of(uint32_t id) { return id == UINT32_MAX ? -1 : int64_t{id}; }

template <class Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

// Fields that all device work has.
template <class Record>
DeviceActivity device_work(ActivityKind kind, const Record& r) {
  DeviceActivity a;
  a.kind = kind;
  a.begin_ns = static_cast<int64_t>(r.start);
  a.end_ns = static_cast<int64_t>(r.end);
  a.correlation = r.correlationId;
  a.device = static_cast<int32_t>(r.deviceId);
  a.context = static_cast<int32_t>(r.contextId);
  a.stream = stream_of(r.streamId);
  a.graph_id = id_or_none(r.graphId);
  a.graph_node_id = r.graphNodeId == 0 ? -1 : static_cast<int64_t>(r.graphNodeId);
  return a;
}

}  // namespace

std::string demangled(const char* name) {
  if (name == nullptr) return "<unknown>";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

void CuptiRecords::add(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return add_kernel(as<CUpti_ActivityKernel10>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY: return add_copy(as<CUpti_ActivityMemcpy6>(record));
    case CUPTI_ACTIVITY_KIND_MEMSET: return add_fill(as<CUpti_ActivityMemset4>(record));
    case CUPTI_ACTIVITY_KIND_RUNTIME: return add_call(as<CUpti_ActivityAPI>(record), true);
    case CUPTI_ACTIVITY_KIND_DRIVER: return add_call(as<CUpti_ActivityAPI>(record), false);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return add_sync(as<CUpti_ActivitySynchronization2>(record));
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return add_overhead(as<CUpti_ActivityOverhead3>(record));
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& r = as<CUpti_ActivityExternalCorrelation>(record);
      op_of_[r.correlationId] = r.externalId;
      return;
    }
    default: return;
  }
}

std::vector<DeviceActivity> CuptiRecords::take() {
  // Records come in no order: ops are known when all are there.
  for (DeviceActivity& a : activities_)
    if (const auto found = op_of_.find(a.correlation); found != op_of_.end()) a.op = found->second;
  op_of_.clear();
  return std::move(activities_);
}

void CuptiRecords::add_kernel(const CUpti_ActivityKernel10& r) {
  DeviceActivity a = device_work(ActivityKind::kernel, r);
  a.name = demangled(r.name);
  a.queued_ns = r.queued == CUPTI_TIMESTAMP_UNKNOWN ? 0 : static_cast<int64_t>(r.queued);
  a.registers = r.registersPerThread;
  a.shared_bytes = int64_t{r.staticSharedMemory} + r.dynamicSharedMemory;
  a.grid = {r.gridX, r.gridY, r.gridZ};
  a.block = {r.blockX, r.blockY, r.blockZ};
  activities_.push_back(std::move(a));
}

void CuptiRecords::add_copy(const CUpti_ActivityMemcpy6& r) {
  DeviceActivity a = device_work(ActivityKind::copy, r);
  a.name = "Memcpy " + std::string(copy_name(r.copyKind)) + " (" +
           std::string(memory_name(r.srcKind)) + " -> " + std::string(memory_name(r.dstKind)) + ")";
  a.bytes = static_cast<int64_t>(r.bytes);
  activities_.push_back(std::move(a));
}

void CuptiRecords::add_fill(const CUpti_ActivityMemset4& r) {
  DeviceActivity a = device_work(ActivityKind::fill, r);
  a.name = "Memset (" + std::string(memory_name(r.memoryKind)) + ")";
  a.bytes = static_cast<int64_t>(r.bytes);
  activities_.push_back(std::move(a));
}

void CuptiRecords::add_call(const CUpti_ActivityAPI& r, bool is_runtime) {
  DeviceActivity a;
  a.kind = is_runtime ? ActivityKind::runtime_call : ActivityKind::driver_call;
  a.name =
      function_name_(is_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, r.cbid);
  if (is_left_out(a.name, is_runtime)) return;
  a.begin_ns = static_cast<int64_t>(r.start);
  a.end_ns = static_cast<int64_t>(r.end);
  a.thread_id = r.threadId;
  a.correlation = r.correlationId;
  a.cbid = static_cast<int32_t>(r.cbid);
  activities_.push_back(std::move(a));
}

void CuptiRecords::add_sync(const CUpti_ActivitySynchronization2& r) {
  DeviceActivity a;
  a.kind = ActivityKind::sync;
  a.name = sync_name(r.type);
  a.begin_ns = static_cast<int64_t>(r.start);
  a.end_ns = static_cast<int64_t>(r.end);
  a.correlation = r.correlationId;
  a.context = static_cast<int32_t>(r.contextId);
  a.stream = stream_of(r.streamId);
  activities_.push_back(std::move(a));
}

void CuptiRecords::add_overhead(const CUpti_ActivityOverhead3& r) {
  DeviceActivity a;
  a.kind = ActivityKind::overhead;
  a.name = overhead_name(r.overheadKind);
  a.begin_ns = static_cast<int64_t>(r.start);
  a.end_ns = static_cast<int64_t>(r.end);
  if (r.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD) a.thread_id = r.objectId.pt.threadId;
  activities_.push_back(std::move(a));
}

}  // namespace epilogue::profiler
