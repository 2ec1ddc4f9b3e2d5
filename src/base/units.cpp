// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace epilogue {
namespace {

// Three significant digits of value / step^k, with the k-th unit. The limits lie half a digit low:
// what would round to 1000 takes the next unit.
template <size_t N>
std::string scaled(double value, double step, const std::array<std::string_view, N>& units) {
  size_t k = 0;
  while (k + 1 < N && std::abs(value) >= step - 0.5) {
    value /= step;
    ++k;
  }
  const double a = std::abs(value);
  const int digits = k == 0 && value == std::floor(value) ? 0 : a < 9.995 ? 2 : a < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, units[k]);
}

}  // namespace

std::string format_duration_ns(double ns) {
  return scaled(ns, 1000, std::array<std::string_view, 4>{"ns", "us", "ms", "s"});
}
std::string format_bytes(double bytes) {
  return scaled(bytes, 1024, std::array<std::string_view, 5>{"B", "KiB", "MiB", "GiB", "TiB"});
}
std::string format_flops(double flops) {
  return scaled(
      flops, 1000,
      std::array<std::string_view, 6>{"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}
std::string format_count(int64_t n) {
  std::string digits = std::to_string(n);
  if (n < 0) digits.erase(0, 1);
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return n < 0 ? "-" + digits : digits;
}

std::string counted(int64_t n, std::string_view one, std::string_view many) {
  return format_count(n).append(" ").append(n == 1 ? one : many);
}

}  // namespace epilogue
