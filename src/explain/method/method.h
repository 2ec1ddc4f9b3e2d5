// SPDX-License-Identifier: Apache-2.0
// The method: what holds the time, and the four questions about it (epilogue/trace/method.h).
#pragma once

#include "epilogue/trace/host.h"
#include "epilogue/trace/hot_spots.h"
#include "explain/method/counted_ops.h"

namespace epilogue::trace {

// Items are those that hold a notable share of the wall time, and smaller ones until so much of it
// is told.
inline constexpr double kNotableItem = 0.03;
inline constexpr double kItemShare = 0.01;
inline constexpr double kToldShare = 0.9;

// `main_ops`: what CountedVisitor collected; empty for a run with a device. `wall_ns`: of the
// host's steps, or the device's span. `host`: of a run without a device, for the caches; null else.
Method method(const Trace& trace, const Links& links, std::vector<uint32_t> main_ops,
              int64_t wall_ns, const HostTime* host = nullptr);

// What else holds a notable share of the time: modules, ranges of the program, Python functions and
// gaps, by time.
std::vector<CostSpot> cost_spots(const Method& method, const HostTime* host,
                                 std::span<const ModuleTime> modules,
                                 std::span<const IdleGap> gaps);

// --- Its parts ---------------------------------------------------------------------------

std::vector<CallLoop> find_loops(const CountedOps& all, const Places& places);
std::vector<RepeatedWork> find_repeats(const CountedOps& all, const Places& places);
std::vector<Waste> find_wastes(const CountedOps& all, const Places& places);

}  // namespace epilogue::trace
