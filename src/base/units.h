// SPDX-License-Identifier: Apache-2.0
// Units of time, and numbers with units for people. The profiler's table has torch's own formats
// (explain/render/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace epilogue {

inline constexpr double kNsPerUs = 1000;

inline double to_us(int64_t ns) { return static_cast<double>(ns) / kNsPerUs; }

std::string format_duration_ns(double ns);  // "812 ns", "3.42 us", "1.20 ms", "2.50 s"
std::string format_bytes(double bytes);     // "512 B", "4.00 KiB", "50.3 MiB"
std::string format_flops(double flops);     // "8.39 MFLOP", "38.7 GFLOP"
std::string format_count(int64_t n);        // "1,234,567"
// "1 copy", "5,770 copies".
std::string counted(int64_t n, std::string_view one, std::string_view many);

}  // namespace epilogue
