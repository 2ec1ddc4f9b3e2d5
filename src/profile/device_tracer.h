// SPDX-License-Identifier: Apache-2.0
// A device's work, as its vendor's tracer recorded it. Defined in profile/cupti or
// profile/no_cupti.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace epilogue::profiler {

enum class ActivityKind : uint8_t { kernel, copy, fill, runtime_call, driver_call, sync, overhead };

// One record. Times are Unix nanoseconds. Fields that a kind does not have keep their defaults.
struct DeviceActivity {
  ActivityKind kind = ActivityKind::kernel;
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t thread_id = 0;    // calls and overhead: the operating system's
  uint32_t correlation = 0;  // joins a call and what it launched
  uint64_t op = 0;           // what push_op() was given on the thread of the call; 0: none
  int32_t cbid = -1;         // calls: CUPTI's number of the function
  int32_t device = 0;
  int32_t context = 0;
  int64_t stream = 0;
  int64_t queued_ns = 0;
  int32_t registers = 0;
  int64_t shared_bytes = 0;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int64_t, 3> block = {1, 1, 1};
  int64_t bytes = -1;  // copies and fills
  int64_t graph_id = -1;
  int64_t graph_node_id = -1;
};

class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  // Records from now on. Throws Error where the tracer refuses.
  virtual void start() = 0;
  // Waits for the device and ends the recording.
  virtual std::vector<DeviceActivity> stop() = 0;
  // Calls of this thread until pop_op() belong to `op`. They nest.
  virtual void push_op(uint64_t op) = 0;
  virtual void pop_op() = 0;
};

// nullptr where there is none; device_tracer_status() then says why, in one line.
DeviceTracer* device_tracer();
std::string device_tracer_status();

}  // namespace epilogue::profiler
