// SPDX-License-Identifier: Apache-2.0
// How torch.profiler 2.7.1 spells times, shares, bytes and FLOPs.
#pragma once

#include <cstdint>
#include <string>

#include "epilogue/trace/report.h"

namespace epilogue::trace {

std::string table_time(double us, TimeUnit unit);          // "12.345us", "1.234ms", "2.000s"
std::string table_share(double part_us, double total_us);  // "12.34%"; "NaN" of nothing
std::string table_memory(int64_t bytes);                   // "512 b", "-1.50 Kb", "2.00 Mb"

// One unit for the whole column, chosen by its smallest number.
struct FlopsScale {
  double factor = 1;
  std::string unit = "FLOPs";
};
// Precondition: smallest > 0.
FlopsScale flops_scale(uint64_t smallest);
std::string table_flops(uint64_t flops, const FlopsScale& scale);  // "   2.097"; "--" for 0

}  // namespace epilogue::trace
