// SPDX-License-Identifier: Apache-2.0
#include "profile/device_events.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "epilogue/trace/gemms.h"

namespace epilogue::profiler {
namespace {

trace::DeviceProperties properties_of(const DeviceInfo& d, int32_t id) {
  trace::DeviceProperties p;
  p.id = id;
  p.name = d.name;
  p.total_global_mem_bytes = d.memory_bytes;
  p.compute_major = d.compute_major;
  p.compute_minor = d.compute_minor;
  p.max_threads_per_block = d.max_threads_per_block;
  p.max_threads_per_multiprocessor = d.max_threads_per_multiprocessor;
  p.regs_per_block = d.registers_per_block;
  p.warp_size = d.warp_size;
  p.shared_mem_per_block_bytes = d.shared_bytes_per_block;
  p.num_sms = d.multiprocessors;
  p.regs_per_multiprocessor = d.registers_per_multiprocessor;
  p.shared_mem_per_block_optin_bytes = d.shared_bytes_per_block_optin;
  p.shared_mem_per_multiprocessor_bytes = d.shared_bytes_per_multiprocessor;
  return p;
}

bool is_device_work(ActivityKind kind) {
  return kind == ActivityKind::kernel || kind == ActivityKind::copy || kind == ActivityKind::fill ||
         kind == ActivityKind::sync;
}

trace::Category category_of(ActivityKind kind) {
  switch (kind) {
    case ActivityKind::kernel: return trace::Category::kernel;
    case ActivityKind::copy: return trace::Category::gpu_memcpy;
    case ActivityKind::fill: return trace::Category::gpu_memset;
    case ActivityKind::runtime_call: return trace::Category::cuda_runtime;
    case ActivityKind::driver_call: return trace::Category::cuda_driver;
    case ActivityKind::sync: return trace::Category::cuda_sync;
    case ActivityKind::overhead: break;
  }
  return trace::Category::overhead;
}

int64_t product(const std::array<int64_t, 3>& v) { return v[0] * v[1] * v[2]; }

// Kineto's estimates, with the number of blocks that really fit (opt-in shared memory included).
void add_occupancy(trace::KernelArgs& args, const trace::DeviceProperties& device) {
  if (device.num_sms <= 0 || device.warp_size <= 0) return;
  const auto threads = static_cast<double>(product(args.block));
  args.blocks_per_sm = static_cast<double>(product(args.grid)) / device.num_sms;
  args.warps_per_sm = args.blocks_per_sm * threads / device.warp_size;
  const auto fits = trace::compute_occupancy(args, device);
  if (!fits || device.max_threads_per_multiprocessor <= 0) return;
  const double blocks = std::min(static_cast<double>(fits->blocks_per_sm), args.blocks_per_sm);
  args.est_occupancy_pct = static_cast<int32_t>(
      std::lround(100 * blocks * threads / device.max_threads_per_multiprocessor));
}

trace::KernelArgs kernel_args(const trace::Trace& trace, const DeviceActivity& a) {
  trace::KernelArgs args;
  args.device = a.device;
  args.context = a.context;
  args.stream = a.stream;
  args.queued = a.queued_ns;
  args.graph_id = a.graph_id;
  args.graph_node_id = a.graph_node_id;
  args.bytes = a.bytes;
  if (a.kind != ActivityKind::kernel) return args;
  args.registers_per_thread = a.registers;
  args.shared_memory_bytes = a.shared_bytes;
  args.grid = a.grid;
  args.block = a.block;
  if (const auto* device = trace::find_device(trace, a.device)) add_occupancy(args, *device);
  return args;
}

}  // namespace

void add_devices(trace::Trace& trace, std::span<const DeviceInfo> devices,
                 std::span<const DeviceActivity> activities) {
  std::set<std::pair<int32_t, int64_t>> streams;
  for (const DeviceActivity& a : activities)
    if (is_device_work(a.kind)) streams.emplace(a.device, a.stream);
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    trace.devices.push_back(properties_of(devices[i], id));
    trace.processes.push_back({id, "epilogue", "GPU " + std::to_string(id), kDeviceSortIndex + id});
  }
  for (const auto& [device, stream] : streams)
    trace.threads.push_back({device, stream, "stream " + std::to_string(stream) + " ", stream});
}

void add_activities(trace::Trace& trace, std::span<const DeviceActivity> activities,
                    const std::function<int64_t(uint64_t op)>& external_id, bool host_calls) {
  const auto host = static_cast<int32_t>(getpid());
  for (const DeviceActivity& a : activities) {
    const bool on_device = is_device_work(a.kind);
    if (!on_device && !host_calls) continue;
    trace::Event& e = trace.events.emplace_back();
    e.name = trace.strings.intern(a.name);
    e.category = category_of(a.kind);
    e.ts_ns = a.begin_ns - trace.base_time_ns;
    e.dur_ns = a.end_ns - a.begin_ns;
    e.pid = on_device ? a.device : host;
    e.tid = on_device ? a.stream : static_cast<int64_t>(a.thread_id);
    e.correlation = a.correlation;
    e.external_id = a.op == 0 ? 0 : external_id(a.op);
    switch (a.kind) {
      case ActivityKind::kernel:
      case ActivityKind::copy:
      case ActivityKind::fill:
        e.args = static_cast<uint32_t>(trace.kernels.size());
        trace.kernels.push_back(kernel_args(trace, a));
        break;
      case ActivityKind::runtime_call:
      case ActivityKind::driver_call:
        e.args = static_cast<uint32_t>(trace.runtime_calls.size());
        trace.runtime_calls.push_back({.cbid = a.cbid});
        break;
      case ActivityKind::sync:
      case ActivityKind::overhead: break;
    }
  }
}

}  // namespace epilogue::profiler
