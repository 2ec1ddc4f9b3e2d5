// SPDX-License-Identifier: Apache-2.0
// Kinds of device work, by their limit when they run alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"
#include "explain/products/device_peaks.h"

namespace epilogue::trace {

enum class WorkKind : uint8_t {
  compute,        // matrix products, convolutions, attention
  memory,         // the rest: pointwise, reductions, copies
  communication,  // collectives
};

// By the decoded name, and by marks in names that are not known. A matrix product of few rows may
// be limited by memory all the same: the name cannot tell.
WorkKind work_kind(std::string_view kernel_name);

// The kind of an op's kernels whatever their names: products, convolutions and attention, or the
// rest. Empty where the op's name does not tell.
std::optional<WorkKind> work_kind_of_op(std::string_view op_name);

// True of ops that are no products but compute on a CPU all the same: distances, interpolation,
// sorting, random numbers.
bool computes_on_host(std::string_view op_name);

// Decodes each distinct name of a trace once. Where a kernel's name tells nothing, the op that
// launched it does, else the ops around that one. In our own traces, which state a kernel's FLOPs
// and bytes and may carry the machine's rates, a product is memory work where its bytes take longer
// than its FLOPs and come no faster than memory gives them.
class WorkKinds {
 public:
  explicit WorkKinds(const Trace& trace);
  // By name alone.
  WorkKind of(const Event& kernel);
  // Also by op; `kernel` is an index of Trace::events.
  WorkKind of(uint32_t kernel, const Links& links);

 private:
  struct NameKind {
    WorkKind kind;
    bool is_told;  // by the name
  };
  NameKind of_name(StringId name);
  // Of a run of XLA also by the category of HLO that a TPU's trace gives it, or the op in its name.
  NameKind of_kernel(const Event& kernel);
  // Kind of the op, else of those around it.
  std::optional<WorkKind> of_ops(uint32_t op, const Links& links);
  WorkKind unless_slow(const Event& kernel, WorkKind kind) const;
  bool waits_for_memory(const Event& kernel) const;

  const Trace& trace_;
  bool is_xla_ = false;
  std::optional<DevicePeaks> peaks_;                                  // of our own traces
  std::vector<std::optional<NameKind>> kinds_;                        // by StringId
  std::vector<std::optional<std::optional<WorkKind>>> kinds_of_ops_;  // by StringId
};

// True for kernels that compute matrix products.
bool is_gemm_name(std::string_view kernel_name);

}  // namespace epilogue::trace
