// SPDX-License-Identifier: Apache-2.0
// The parts of a run that one wants judged one by one: its steps, or what stands for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

enum class RegionKind : uint8_t {
  kStep,        // a ProfilerStep#N annotation
  kAnnotation,  // an outermost annotation of the thread that launches most, where no step is
  kWindow,      // all of the trace, where no annotation is either
};

// Ops, calls and device work belong to the region in which they start, on any thread of its
// process; device work to the one that launched it, whenever it ran.
struct Region {
  std::string name;
  RegionKind kind = RegionKind::kWindow;
  uint32_t event = kNone;  // the annotation; kNone for the window
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t ops = 0;
  int64_t launches = 0;  // kernel and graph launches
  int64_t kernels = 0;
  int64_t copies = 0;            // copies and fills
  int64_t launched_work_ns = 0;  // union of the device work that it launched, on any device
  int64_t device_busy_ns = 0;  // of the busiest device between its start and end, whoever launched
  int64_t cpu_op_ns = 0;       // time in which at least one thread was in an op

  int64_t wall_ns() const { return end_ns - start_ns; }
  int64_t device_idle_ns() const { return wall_ns() - device_busy_ns; }
};

// One per ProfilerStep, by start; empty where the trace has none.
std::vector<Region> steps(const Trace& trace, const Links& links);

// The steps, else the outermost annotations, else the whole window. Empty for an empty trace.
std::vector<Region> regions(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
