// SPDX-License-Identifier: Apache-2.0
#include "explain/render/table_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace epilogue::trace {

std::string table_time(double us, TimeUnit unit) {
  if (unit == TimeUnit::automatic)
    unit = us >= 1e6   ? TimeUnit::seconds
           : us >= 1e3 ? TimeUnit::milliseconds
                       : TimeUnit::microseconds;
  switch (unit) {
    case TimeUnit::seconds: return fmt::format("{:.3f}s", us / 1e6);
    case TimeUnit::milliseconds: return fmt::format("{:.3f}ms", us / 1e3);
    default: return fmt::format("{:.3f}us", us);
  }
}

std::string table_share(double part_us, double total_us) {
  return total_us == 0 ? "NaN" : fmt::format("{:.2f}%", part_us * 100.0 / total_us);
}

std::string table_memory(int64_t bytes) {
  constexpr double kKb = 1024;
  const auto n = static_cast<double>(bytes);
  if (std::abs(n) >= kKb * kKb * kKb) return fmt::format("{:.2f} Gb", n / (kKb * kKb * kKb));
  if (std::abs(n) >= kKb * kKb) return fmt::format("{:.2f} Mb", n / (kKb * kKb));
  if (std::abs(n) >= kKb) return fmt::format("{:.2f} Kb", n / kKb);
  return fmt::format("{} b", bytes);
}

FlopsScale flops_scale(uint64_t smallest) {
  constexpr std::array<const char*, 6> kUnits = {"FLOPs",  "KFLOPs", "MFLOPs",
                                                 "GFLOPs", "TFLOPs", "PFLOPs"};
  const double thousands = std::log10(static_cast<double>(smallest)) / 3;
  const double k = std::floor(std::clamp(thousands, 0.0, static_cast<double>(kUnits.size() - 1)));
  return {std::pow(10, k * -3.0), kUnits[static_cast<size_t>(k)]};
}

std::string table_flops(uint64_t flops, const FlopsScale& scale) {
  return flops == 0 ? "--" : fmt::format("{:8.3f}", static_cast<double>(flops) * scale.factor);
}

}  // namespace epilogue::trace
