// SPDX-License-Identifier: Apache-2.0
// How much work waits in a device's queues, and what a device did in each annotated range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// From a moment on.
struct QueuePoint {
  int64_t ts_ns = 0;
  int64_t length = 0;
};

// Kernels, copies and fills of one stream whose launch call has returned and that have not begun.
// Work without a known launch does not count.
struct StreamQueue {
  int32_t device = 0;
  int64_t stream = 0;
  int64_t works = 0;  // that have a launch
  int64_t max_length = 0;
  int64_t max_ns = 0;              // when it was first that long
  double mean_length = 0;          // over the time between the first and the last point
  std::vector<QueuePoint> points;  // one for each moment in which it changes
};

// By works, the most first. Empty for a device that runs its work inside of the launch call.
std::vector<StreamQueue> stream_queues(const Trace& trace, const Links& links);

// The device's side of an annotation (gpu_user_annotation): from the first work that was launched
// in it to the end of the last.
struct DeviceRange {
  std::string name;
  int32_t device = 0;
  int64_t count = 0;
  int64_t total_ns = 0;  // the sum of the ranges
  int64_t max_ns = 0;
  int64_t busy_ns = 0;  // in which the device worked, over the union of the ranges
  int64_t idle_ns = 0;  // in which it did not
};

// By total time.
std::vector<DeviceRange> device_ranges(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
