// SPDX-License-Identifier: Apache-2.0
// Savings of fusions: a model with two constants, both measured on the trace itself. (Row
// chains: see row_chains.h; chains in CPU traces that are not this project's: host_model.h.)
//
//   saving = min(sum over members of (bytes no longer moved x cost of a byte), time now - floor)
//
// A member that does little but move bytes pays for each what it pays now, first touches of fresh
// memory included; one that computes more than it moves pays what the trace's fastest elementwise
// kernels pay, and keeps its arithmetic time. The floor is the shortest kernel; without
// shapes it is the longest member.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epilogue/trace/fusion.h"
#include "explain/fusion/fusion_groups.h"
#include "explain/fusion/host_model.h"
#include "explain/fusion/row_chains.h"

namespace epilogue::trace {

struct Prediction {
  int64_t kernels_now = 0;
  int64_t kernels_after = 0;
  double time_ns = 0;
  double host_ns = 0;  // dispatch and launch of the ops as they are
  double bytes_now = 0;
  double bytes_after = 0;
  double device_saving_ns = 0;
  double new_pages_ns = 0;  // of that
  double host_saving_ns = 0;
};

class FusionModel {
 public:
  FusionModel(const Trace& trace, const WorkOps& work, const FusionOptions& options);

  double bandwidth_gb_per_s() const { return bytes_per_ns_; }

  // The members become one kernel.
  Prediction chain(const FusionGroup& group, const std::optional<GroupBytes>& bytes) const;
  // That kernel's work moves into the write-back of one of the GEMMs before it.
  Prediction epilogue(const FusionGroup& group, const GroupBytes& bytes) const;
  // GEMMs become one that reads its left operand once.
  Prediction merged(const std::vector<uint32_t>& gemms, double bytes_read_again) const;
  // Products and the ops between them become one kernel that takes `chain_ns` for the products;
  // where that is not known, as long as they take now.
  Prediction row_chain(const RowChainGroup& group, std::optional<double> chain_ns) const;

 private:
  // Dispatch alone: without what recording it cost and, where the launch is the kernel, without it.
  double own_host_ns(const WorkOp& op) const;
  Prediction sums(const std::vector<uint32_t>& ops) const;
  double host_saving(const std::vector<uint32_t>& ops) const;
  double traffic_ns(double bytes) const;
  double member_saving_ns(const WorkOp& op, double saved_bytes) const;

  const WorkOps& work_;
  double profiler_ns_per_op_;
  double bytes_per_ns_ = 0;
  double floor_ns_ = 0;
  std::optional<HostModel> host_;  // of CPU traces that are not ours
};

}  // namespace epilogue::trace
