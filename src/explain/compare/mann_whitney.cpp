// SPDX-License-Identifier: Apache-2.0
#include "explain/compare/mann_whitney.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace epilogue::trace {
namespace {

struct RankedValue {
  int64_t value = 0;
  bool is_b = false;
  int64_t rank_x2 = 0;  // twice the mean rank of those that are equal: a whole number
};

struct Ranking {
  std::vector<RankedValue> values;  // by value
  int64_t b_sum_x2 = 0;
  double ties = 0;  // the sum of t^3 - t over groups of t equal values
};

Ranking rank_values(std::span<const int64_t> a, std::span<const int64_t> b) {
  Ranking r;
  for (const int64_t v : a) r.values.push_back({v, false});
  for (const int64_t v : b) r.values.push_back({v, true});
  std::sort(r.values.begin(), r.values.end(),
            [](const RankedValue& x, const RankedValue& y) { return x.value < y.value; });
  for (size_t i = 0; i < r.values.size();) {
    size_t end = i;
    while (end < r.values.size() && r.values[end].value == r.values[i].value) ++end;
    const auto t = static_cast<double>(end - i);
    r.ties += t * t * t - t;
    for (size_t k = i; k < end; ++k) {
      r.values[k].rank_x2 = static_cast<int64_t>(i + 1 + end);
      if (r.values[k].is_b) r.b_sum_x2 += r.values[k].rank_x2;
    }
    i = end;
  }
  return r;
}

// chances[s]: that the ranks of `chosen` values add up to s (twice), if any choice is as likely.
std::vector<double> rank_sum_chances(const Ranking& r, size_t chosen) {
  int64_t total = 0;
  for (const RankedValue& v : r.values) total += v.rank_x2;
  const auto sums = static_cast<size_t>(total) + 1;
  std::vector<std::vector<double>> ways(chosen + 1, std::vector<double>(sums));
  ways[0][0] = 1;
  for (const RankedValue& v : r.values) {
    const auto rank = static_cast<size_t>(v.rank_x2);
    for (size_t n = chosen; n >= 1; --n)
      for (size_t s = sums; s-- > rank;) ways[n][s] += ways[n - 1][s - rank];
  }
  double all = 0;
  for (const double w : ways[chosen]) all += w;
  for (double& w : ways[chosen]) w /= all;
  return std::move(ways[chosen]);
}

// The upper tail of the normal distribution.
double tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

}  // namespace

MannWhitney mann_whitney(std::span<const int64_t> a, std::span<const int64_t> b) {
  const Ranking r = rank_values(a, b);
  const auto n = static_cast<double>(a.size());
  const auto m = static_cast<double>(b.size());
  const double u = static_cast<double>(r.b_sum_x2) / 2 - m * (m + 1) / 2;
  MannWhitney result;
  result.superiority = u / (n * m);
  if (r.values.size() <= kMostExactValues) {
    result.is_exact = true;
    const std::vector<double> chances = rank_sum_chances(r, b.size());
    result.p_larger = result.p_smaller = 0;
    for (size_t s = 0; s < chances.size(); ++s) {
      if (static_cast<int64_t>(s) >= r.b_sum_x2) result.p_larger += chances[s];
      if (static_cast<int64_t>(s) <= r.b_sum_x2) result.p_smaller += chances[s];
    }
    return result;
  }
  const double all = n + m;
  const double variance = n * m / 12 * (all + 1 - r.ties / (all * (all - 1)));
  if (variance <= 0) return result;  // all values are equal
  constexpr double kContinuity = 0.5;
  const double sigma = std::sqrt(variance);
  result.p_larger = tail((u - n * m / 2 - kContinuity) / sigma);
  result.p_smaller = tail((n * m / 2 - u - kContinuity) / sigma);
  return result;
}

double smallest_p(size_t a, size_t b) {
  double p = 1;
  for (size_t i = 1; i <= b; ++i) p *= static_cast<double>(i) / static_cast<double>(a + i);
  return p;
}

double median_difference(std::span<const int64_t> a, std::span<const int64_t> b) {
  // Above this many values every k-th by size stands for its neighbours.
  constexpr size_t kMost = 1000;
  const auto thinned = [](std::span<const int64_t> values) {
    std::vector<int64_t> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() <= kMost) return sorted;
    std::vector<int64_t> some;
    some.reserve(kMost);
    for (size_t i = 0; i < kMost; ++i)
      some.push_back(sorted[(2 * i + 1) * sorted.size() / (2 * kMost)]);
    return some;
  };
  std::vector<double> differences;
  const std::vector<int64_t> before = thinned(a);
  for (const int64_t y : thinned(b))
    for (const int64_t x : before)
      differences.push_back(static_cast<double>(y) - static_cast<double>(x));
  const size_t middle = differences.size() / 2;
  std::nth_element(differences.begin(), differences.begin() + static_cast<ptrdiff_t>(middle),
                   differences.end());
  const double upper = differences[middle];
  if (differences.size() % 2 == 1) return upper;
  const double lower =
      *std::max_element(differences.begin(), differences.begin() + static_cast<ptrdiff_t>(middle));
  return (lower + upper) / 2;
}

}  // namespace epilogue::trace
