// SPDX-License-Identifier: Apache-2.0
// What the profiler itself costs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "epilogue/trace/time.h"
#include "explain/index/self_time.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kRecorderKey = "epilogue_recorder";

// Our own recorder measures itself and says so.
std::optional<double> measured_ns_per_op(const Trace& trace) {
  for (const auto& [key, value] : trace.metadata) {
    if (key != kRecorderKey) continue;
    const auto json = nlohmann::json::parse(value, nullptr, false);
    const auto found = json.is_object() ? json.find("ns_per_op") : json.end();
    if (found != json.end() && found->is_number()) return std::max(0.0, found->get<double>());
  }
  return std::nullopt;
}

}  // namespace

ProfilerCost profiler_cost(const Trace& trace, const Links& links) {
  ProfilerCost cost;
  const Recorded& recorded = trace.recorded;
  cost.is_inflated = recorded.record_shapes || recorded.profile_memory || recorded.with_stack ||
                     recorded.with_modules;
  const bool is_recent = trace.base_time_ns != 0;
  if (is_recent)
    cost.ns_per_op = cost.is_inflated ? kRecentProfilerNsPerOp : kRecentPlainProfilerNsPerOp;
  else if (cost.is_inflated)
    cost.ns_per_op = kProfilerNsPerOp;
  if (const std::optional<double> measured = measured_ns_per_op(trace)) {
    cost.ns_per_op = *measured;
    cost.is_measured = true;
  }
  const auto per_op_ns = static_cast<int64_t>(cost.ns_per_op);
  for (const int64_t self_ns : self_times_ns(trace, links))
    cost.total_ns += std::min(self_ns, per_op_ns);
  return cost;
}

}  // namespace epilogue::trace
