// SPDX-License-Identifier: Apache-2.0
// What limits a kind of device work when it runs alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analysis/products/device_peaks.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

enum class WorkKind : uint8_t {
  compute,        // matrix products, convolutions, attention
  memory,         // the rest: pointwise, reductions, copies
  communication,  // collectives
};

// By the decoded name, and by marks in names that are not known. A matrix product of few rows may
// be limited by memory all the same: the name cannot tell.
WorkKind work_kind(std::string_view kernel_name);

// Decodes each distinct name of a trace once. In our own traces, which state a kernel's FLOPs and
// bytes and may carry the machine's rates, a product is memory work where its bytes take longer
// than its FLOPs and come no faster than memory gives them.
class WorkKinds {
 public:
  explicit WorkKinds(const Trace& trace);
  WorkKind of(const Event& kernel);

 private:
  bool waits_for_memory(const Event& kernel) const;

  const Trace& trace_;
  std::optional<DevicePeaks> peaks_;            // of our own traces
  std::vector<std::optional<WorkKind>> kinds_;  // by StringId
};

// True for kernels that compute matrix products.
bool is_gemm_name(std::string_view kernel_name);

}  // namespace epilogue::trace
