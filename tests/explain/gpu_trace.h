// SPDX-License-Identifier: Apache-2.0
// A TraceBuilder for a GPU that works beside the host: launches and kernels apart.
#pragma once

#include <string_view>

#include "trace/trace_builder.h"

namespace epilogue::trace::testing {

struct GpuTrace : TraceBuilder {
  // A call of the host.
  Event& call(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t correlation = 0,
              int64_t tid = 1) {
    Event& e = event(Category::cuda_runtime, name, start_ns, end_ns, tid);
    e.correlation = correlation;
    return e;
  }
  // Device work; its args are trace.kernels.back().
  Event& work(Category category, std::string_view name, int64_t start_ns, int64_t end_ns,
              int64_t correlation = 0, int64_t stream = 7, int32_t device = 0) {
    Event& e = event(category, name, start_ns, end_ns, stream);
    e.pid = device;
    e.correlation = correlation;
    e.args = static_cast<uint32_t>(trace.kernels.size());
    trace.kernels.emplace_back().stream = stream;
    trace.kernels.back().device = device;
    return e;
  }
  Event& gpu_kernel(std::string_view name, int64_t start_ns, int64_t end_ns,
                    int64_t correlation = 0, int64_t stream = 7, int32_t device = 0) {
    return work(Category::kernel, name, start_ns, end_ns, correlation, stream, device);
  }
};

}  // namespace epilogue::trace::testing
