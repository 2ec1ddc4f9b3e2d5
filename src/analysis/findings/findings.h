// SPDX-License-Identifier: Apache-2.0
// The rules that turn numbers into findings. Each adds what it has to say, mostly nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// A saving or a share below this part of the wall time is not worth a line.
inline constexpr double kMinShare = 0.005;

inline double wall_us(const Explanation& e) { return to_us(e.timeline.span_ns()); }

// "1 copy", "5,770 copies".
inline std::string counted(int64_t n, std::string_view one, std::string_view many) {
  return format_count(n) + " " + std::string(n == 1 ? one : many);
}

inline std::string duration(int64_t ns) { return format_duration_ns(static_cast<double>(ns)); }

using FindingRule = void (*)(const Explanation&, std::vector<Finding>&);

void find_verdict(const Explanation& e, std::vector<Finding>& out);
void find_lost_data(const Explanation& e, std::vector<Finding>& out);
void find_profiler_cost(const Explanation& e, std::vector<Finding>& out);
void find_launch_cost(const Explanation& e, std::vector<Finding>& out);
void find_syncs(const Explanation& e, std::vector<Finding>& out);
void find_data_loader(const Explanation& e, std::vector<Finding>& out);
void find_pageable_copies(const Explanation& e, std::vector<Finding>& out);
void find_collectives(const Explanation& e, std::vector<Finding>& out);
void find_no_launch_ops(const Explanation& e, std::vector<Finding>& out);
void find_slow_steps(const Explanation& e, std::vector<Finding>& out);
void find_fusion_advice(const Explanation& e, std::vector<Finding>& out);
void find_gemm_advice(const Explanation& e, std::vector<Finding>& out);
void find_graph_breaks(const Explanation& e, std::vector<Finding>& out);
void find_occupancy_artefact(const Explanation& e, std::vector<Finding>& out);
void find_memory_peak(const Explanation& e, std::vector<Finding>& out);

inline constexpr FindingRule kFindingRules[] = {
    find_verdict,       find_lost_data,          find_profiler_cost,   find_launch_cost,
    find_syncs,         find_data_loader,        find_pageable_copies, find_collectives,
    find_no_launch_ops, find_slow_steps,         find_fusion_advice,   find_gemm_advice,
    find_graph_breaks,  find_occupancy_artefact, find_memory_peak};

}  // namespace epilogue::trace
