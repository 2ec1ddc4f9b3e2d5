// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "core/element.h"

namespace epilogue {
namespace {

using Wide = unsigned __int128;

constexpr int64_t kGrain = 16384;  // elements; below it the wake-up of a thread costs more

std::mutex generator_mutex;
RngState generator;

// 24 random bits: exact in float, never 1.
constexpr uint32_t upper24(uint32_t word) { return word >> 8; }
double unit24(uint32_t word) { return static_cast<double>(upper24(word)) * 0x1p-24; }

// Calls make(seed, counter, i, count) for each counter, which serves elements i to i + count (of
// 4).
template <class Make>
void for_each_counter(int64_t n, Make&& make) {
  const RngState start = take_random_numbers(n);
  parallel_for((n + 3) / 4, kGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      make(start.seed, start.offset + static_cast<uint64_t>(block), block * 4,
           std::min<int64_t>(4, n - block * 4));
  });
}

// Calls make(words, k) for the k-th of the four values of each counter; `store` rounds the result.
template <class Make, class Store>
void fill(const Tensor& out, Make&& make, Store&& store) {
  dispatch(out.dtype(), [&]<class T>() {
    T* data = static_cast<T*>(out.data());
    for_each_counter(out.numel(), [&](uint64_t seed, uint64_t counter, int64_t i, int64_t count) {
      const auto words = philox4x32(seed, counter, 0);
      for (int64_t k = 0; k < count; ++k)
        data[i + k] = store.template operator()<T>(make(words, static_cast<size_t>(k)));
    });
  });
}
template <class Make>
void fill(const Tensor& out, Make&& make) {
  fill(out, make, []<class T>(double value) { return round_from_double<T>(value); });
}

// The largest T below `bound`.
template <class T>
T below(double bound) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const T rounded = static_cast<T>(bound);
    return static_cast<double>(rounded) < bound
               ? rounded
               : std::nextafter(rounded, -std::numeric_limits<T>::infinity());
  } else {
    // A 16-bit pattern is sign and magnitude: one step down is -1 above zero and +1 below.
    T value = round_from_double<T>(bound);
    if (widen(value) < bound) return value;
    constexpr uint16_t kSign = 0x8000;
    if ((value.bits & ~kSign) == 0) {
      value.bits = kSign | 1;
    } else {
      value.bits =
          static_cast<uint16_t>((value.bits & kSign) != 0 ? value.bits + 1 : value.bits - 1);
    }
    return value;
  }
}

}  // namespace

void manual_seed(uint64_t seed) { set_rng_state({.seed = seed, .offset = 0}); }

RngState rng_state() {
  const std::lock_guard<std::mutex> lock(generator_mutex);
  return generator;
}

void set_rng_state(RngState state) {
  const std::lock_guard<std::mutex> lock(generator_mutex);
  generator = state;
}

void fill_uniform(const Tensor& out, double low, double high) {
  // Rounding to the dtype may reach `high`, which does not belong to the interval.
  fill(
      out, [&](const auto& words, size_t k) { return low + (high - low) * unit24(words[k]); },
      [high, low]<class T>(double value) {
        const T rounded = round_from_double<T>(value);
        if constexpr (is_floating(DTypeOf<T>::value))
          if (widen(rounded) >= high && low < high) [[unlikely]]
            return below<T>(high);
        return rounded;
      });
}

void fill_normal(const Tensor& out, double mean, double stddev) {
  // Box-Muller on the word pairs (0,1) and (2,3): cosine for the even value, sine for the odd.
  fill(out, [&](const auto& words, size_t k) {
    const size_t pair = k & ~size_t{1};
    const double u = unit24(words[pair]) + 0x1p-25;  // never 0
    const double radius = std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * unit24(words[pair + 1]);
    return mean + stddev * radius * ((k & 1) == 0 ? std::cos(angle) : std::sin(angle));
  });
}

void fill_bernoulli(const Tensor& out, double p) {
  const uint32_t limit = bernoulli_limit(p);
  fill(out, [&](const auto& words, size_t k) { return upper24(words[k]) < limit ? 1.0 : 0.0; });
}

// A block of counters, of four numbers each.
RngState take_random_numbers(int64_t n) {
  const std::lock_guard<std::mutex> lock(generator_mutex);
  const RngState start = generator;
  generator.offset += static_cast<uint64_t>((n + 3) / 4);
  return start;
}

// A number is u 2^-24 < p where u < p 2^24, which for integers u is u < ceil(p 2^24).
uint32_t bernoulli_limit(double p) { return static_cast<uint32_t>(std::ceil(p * 0x1p24)); }

namespace {
Tensor empty_floating(const char* who, const Dims& sizes, DType dtype) {
  if (!is_floating(dtype))
    throw Error("[" + std::string(who) + "] expected a floating dtype, got " +
                std::string(dtype_name(dtype)));
  return empty(sizes, dtype);
}
}  // namespace

Tensor uniform(Dims sizes, double low, double high, DType dtype) {
  Tensor t = empty_floating("uniform", sizes, dtype);
  fill_uniform(t, low, high);
  return t;
}

Tensor rand(Dims sizes, DType dtype) {
  Tensor t = empty_floating("rand", sizes, dtype);
  fill_uniform(t, 0, 1);
  return t;
}

Tensor randn(Dims sizes, DType dtype) {
  Tensor t = empty_floating("randn", sizes, dtype);
  fill_normal(t, 0, 1);
  return t;
}

Tensor randint(int64_t low, int64_t high, Dims sizes) {
  if (low >= high)
    throw Error("[randint] expected low < high, got " + std::to_string(low) + " and " +
                std::to_string(high));
  Tensor t = empty(sizes, DType::i64);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  auto* data = t.data_as<int64_t>();
  for_each_counter(t.numel(), [&](uint64_t seed, uint64_t counter, int64_t i, int64_t count) {
    // floor(64 random bits * range / 2^64): no number is more likely by more than range / 2^64.
    const auto upper = philox4x32(seed, counter, 0);
    const auto lower = philox4x32(seed, counter, 1);
    for (int64_t k = 0; k < count; ++k) {
      const auto w = static_cast<size_t>(k);
      const uint64_t bits = uint64_t{upper[w]} << 32 | lower[w];
      const auto scaled = static_cast<uint64_t>(static_cast<Wide>(bits) * range >> 64);
      data[i + k] = static_cast<int64_t>(static_cast<uint64_t>(low) + scaled);
    }
  });
  return t;
}

}  // namespace epilogue
