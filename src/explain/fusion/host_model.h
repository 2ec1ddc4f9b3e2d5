// SPDX-License-Identifier: Apache-2.0
// How long one fused kernel of the host would take, in traces of a CPU that are not this project's.
//
//   fused = cost of the bytes it moves / rate + arithmetic of the members + new pages
//
// A byte that is read counts once, a byte that is written into memory that was not read before
// counts twice (the cache reads the line first). The rate is what the trace's ops that only move
// bytes reach on tensors of like size. Arithmetic is what remains of the shortest of a member's
// runs, or what Inductor's kernels take; a softmax keeps its whole time, a reduction a part. The
// kernel writes where a product lies that nobody else reads, and passes over its bytes as often as
// Inductor's kernels do; a result of 32 MiB or more that lies elsewhere is new memory each time
// (glibc maps it), whose pages cost what they cost the trace's simple ops. The saving is against
// the usual time of the members: what the machine did meanwhile is none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "explain/fusion/dataflow.h"
#include "explain/fusion/fusion_groups.h"

namespace epilogue::trace {

class HostModel {
 public:
  HostModel(const Trace& trace, const WorkOps& work);

  // The rate over ops of all sizes, by the cost above; 0 without any.
  double measured_bytes_per_ns() const { return measured_bytes_per_ns_; }
  struct Saving {
    double ns = 0;            // below 0: the kernel would be slower
    double new_pages_ns = 0;  // of that: new pages that results would no longer meet
  };
  // The saving of one run of the group, which takes `now_ns`.
  Saving saving(const FusionGroup& group, const GroupBytes& bytes, double now_ns) const;

 private:
  static constexpr size_t kPowers = 65;
  // Ops with one name and as many elements of one dtype.
  using Key = std::tuple<StringId, std::string_view, int64_t>;

  using RatesOfPowers = std::array<std::vector<double>, kPowers>;

  // Bytes that Inductor's kernels for a group move, by the cost above, and the time that the new
  // pages that they meet take.
  struct Passes {
    double cost = 0;
    double pages_ns = 0;
  };

  Passes passes(const FusionGroup& group, const GroupBytes& bytes) const;
  void set_rates(const RatesOfPowers& rates, const RatesOfPowers& least_rates);
  double rate_for(double bytes) const;
  double new_pages_ns(double written) const;
  bool is_in_place_of_product(const FusionGroup& group, const GroupBytes& bytes) const;
  bool is_sum_in_product(const FusionGroup& group, const GroupBytes& bytes, size_t member) const;
  double cost_of_bytes(const WorkOp& op) const;
  bool is_op_in_place(const WorkOp& op) const;
  bool meets_new_pages(const WorkOp& op) const;
  bool is_simple(const WorkOp& op) const;
  double arithmetic_ns(const WorkOp& op) const;

  const Trace& trace_;
  const WorkOps& work_;
  double time_of(const std::map<Key, double>& times, const WorkOp& op) const;

  std::map<Key, double> shortest_ns_;  // the fifth part of an op's runs is shorter
  std::map<Key, double> typical_ns_;   // half of them are
  double measured_bytes_per_ns_ = 0;
  std::array<double, kPowers> rate_of_power_{};  // by power of two of a tensor's bytes
  double new_page_ns_per_byte_ = 0;
};

// Rates at which the ops of a trace move their bytes.

// Shorter runs measure latency, not bandwidth.
inline constexpr int64_t kMinTimedNs = 5'000;
inline constexpr double kBandwidthQuantile = 0.9;

// Read and written. Nothing where a shape is not known.
std::optional<double> moved_bytes(const WorkOp& op);

// The value below which a share `q` of the values lies; 0 of none. Reorders them.
inline double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace epilogue::trace
