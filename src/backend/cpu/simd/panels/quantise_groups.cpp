// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/quantise_groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace epilogue::simd {
namespace {

// Shares of a column's range that are tried. Beyond all of it where the range is symmetric: with
// 8/7 both ends are whole steps.
constexpr std::array<float, 20> kShares = {1.0F,   1.143F, 1.1F,  1.05F,  0.975F, 0.95F,  0.925F,
                                           0.9F,   0.875F, 0.85F, 0.825F, 0.8F,   0.775F, 0.75F,
                                           0.725F, 0.7F,   0.65F, 0.6F,   0.55F,  0.5F};
// Columns at a time: their state stays in L1.
constexpr int64_t kBlock = 64;

struct Columns {
  std::array<float, kBlock> low{};
  std::array<float, kBlock> high{};
  std::array<float, kBlock> scale{};
  std::array<float, kBlock> inverse{};
  std::array<float, kBlock> zero{};
  std::array<float, kBlock> error{};
  std::array<float, kBlock> best_error{};
  std::array<uint16_t, kBlock> stored{};
  std::array<bool, kBlock> is_finite{};
};

// The nearest step, ties to even: adding 1.5 * 2^23 rounds, and vectorises where nearbyint does
// not.
inline float nearest_step(float value, float inverse, float zero) {
  constexpr float magic = 12582912.0F;
  const float v = std::clamp(value * inverse + zero, -1.0F, 16.0F);
  return std::clamp((v + magic) - magic, 0.0F, float{kMostSteps});
}

void find_ranges(const float* values, int64_t width, int64_t n, int64_t size, Columns& c) {
  c.low.fill(0);
  c.high.fill(0);
  std::array<float, kBlock> poison{};  // NaN exactly where an element is not finite
  for (int64_t k = 0; k < size; ++k)
    for (int64_t j = 0; j < n; ++j) {
      const float v = values[k * width + j];
      c.low[static_cast<size_t>(j)] = std::min(c.low[static_cast<size_t>(j)], v);
      c.high[static_cast<size_t>(j)] = std::max(c.high[static_cast<size_t>(j)], v);
      poison[static_cast<size_t>(j)] += v * 0.0F;
    }
  for (size_t j = 0; j < kBlock; ++j) c.is_finite[j] = poison[j] == 0;
}

// Scale and zero of column j if `share` of its range is covered; false: no such scale can be held.
void try_share(float share, const GroupFormat& f, size_t j, Columns& c) {
  float scale = 0;
  if (f.has_zeros) {
    scale = share * (c.high[j] - c.low[j]) / kMostSteps;
  } else {
    const float extreme = -c.low[j] > c.high[j] ? c.low[j] : c.high[j];
    scale = -share * extreme / kMiddleStep;
  }
  from_f32(f.scales, &scale, &c.stored[j], 1);
  to_f32(f.scales, &c.stored[j], &scale, 1);
  if (std::isinf(scale)) c.is_finite[j] = false;
  const bool is_usable = std::abs(1 / scale) <= std::numeric_limits<float>::max();
  c.scale[j] = is_usable ? scale : 0;
  c.inverse[j] = is_usable ? 1 / scale : 0;
  if (!is_usable) c.stored[j] = 0;
  c.zero[j] = kMiddleStep;
  if (f.has_zeros)
    c.zero[j] =
        std::clamp(std::nearbyint(-share * c.low[j] * c.inverse[j]), 0.0F, float{kMostSteps});
}

void round_columns(const float* values, int64_t width, int64_t n, const GroupFormat& f,
                   const GroupSteps& out) {
  Columns c;
  find_ranges(values, width, n, f.size, c);
  c.best_error.fill(std::numeric_limits<float>::infinity());
  for (const float share : kShares) {
    for (int64_t j = 0; j < n; ++j) try_share(share, f, static_cast<size_t>(j), c);
    c.error.fill(0);
    for (int64_t k = 0; k < f.size; ++k)
      for (size_t j = 0; j < kBlock && static_cast<int64_t>(j) < n; ++j) {
        const float v = values[k * width + static_cast<int64_t>(j)];
        const float step = nearest_step(v, c.inverse[j], c.zero[j]);
        const float off = (step - c.zero[j]) * c.scale[j] - v;
        c.error[j] += off * off;
      }
    for (int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<size_t>(j);
      if (share != kShares[0] && !(c.error[i] < c.best_error[i])) continue;
      c.best_error[i] = c.error[i];
      out.scales[j] = c.stored[i];
      out.zeros[j] = static_cast<uint8_t>(c.zero[i]);
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    const auto i = static_cast<size_t>(j);
    if (!c.is_finite[i]) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      from_f32(f.scales, &nan, out.scales + j, 1);
      out.zeros[j] = kMiddleStep;
      c.inverse[i] = 0;
      continue;
    }
    float scale = 0;
    to_f32(f.scales, out.scales + j, &scale, 1);
    c.inverse[i] = scale == 0 ? 0 : 1 / scale;
  }
  for (int64_t k = 0; k < f.size; ++k)
    for (int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<size_t>(j);
      const float v = c.is_finite[i] ? values[k * width + j] : 0.0F;
      out.steps[k * width + j] =
          static_cast<uint8_t>(nearest_step(v, c.inverse[i], static_cast<float>(out.zeros[j])));
    }
}

}  // namespace

void round_group(const float* values, int64_t width, const GroupFormat& f, const GroupSteps& out) {
  for (int64_t j = 0; j < width; j += kBlock) {
    const int64_t n = std::min(kBlock, width - j);
    round_columns(values + j, width, n, f, {out.steps + j, out.scales + j, out.zeros + j});
  }
}

}  // namespace epilogue::simd
