// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (base/philox.h is the definition), one counter per 64-bit lane: the multiplication
// of two 32-bit numbers is one instruction there, and reads the lower halves alone. So what the
// upper halves hold between the rounds does not matter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/bernoulli.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cstring>

#include "backend/cpu/simd/bernoulli.h"
#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/targets.h"
#include "base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

using D64 = hn::ScalableTag<uint64_t>;
using V64 = hn::Vec<D64>;
constexpr size_t kCounters = hn::MaxLanes(D64());  // of a vector
constexpr size_t kWords = 4;                       // of a counter
constexpr size_t kGroup = kCounters * kWords;      // numbers of a vector of counters

// The lower halves' product, of 64 bits.
template <class D>
HWY_INLINE hn::Vec<D> product(D d, hn::Vec<D> v, uint32_t multiplier) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    return hn::Set(d, uint64_t{static_cast<uint32_t>(hn::GetLane(v))} * multiplier);
  } else {
    const hn::Repartition<uint32_t, D> d32;
    return hn::MulEven(hn::BitCast(d32, v), hn::Set(d32, multiplier));
  }
}

// 1 where the upper 24 bits of the lower half are below the limit: then the difference is negative.
HWY_INLINE V64 is_below(V64 word, V64 limit) {
  const D64 d;
  const V64 number = hn::And(hn::ShiftRight<8>(word), hn::Set(d, 0xFFFFFF));
  return hn::ShiftRight<63>(hn::Sub(number, limit));
}

// The keys of all rounds, in every lane.
struct Keys {
  explicit Keys(uint64_t seed) {
    auto first = static_cast<uint32_t>(seed);
    auto second = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      k0[round] = hn::Set(D64(), first);
      k1[round] = hn::Set(D64(), second);
      first += kPhiloxKeySteps[0];
      second += kPhiloxKeySteps[1];
    }
  }
  V64 k0[kPhiloxRounds];
  V64 k1[kPhiloxRounds];
};

struct State {
  V64 c0;
  V64 c1;
  V64 c2;
  V64 c3;
};

HWY_INLINE State first_state(V64 counter) {
  const V64 zero = hn::Zero(D64());
  return {counter, hn::ShiftRight<32>(counter), zero, zero};
}

HWY_INLINE State next_state(const State& s, V64 k0, V64 k1) {
  const D64 d;
  const V64 a = product(d, s.c0, kPhiloxMultipliers[0]);
  const V64 b = product(d, s.c2, kPhiloxMultipliers[1]);
  return {hn::Xor(hn::Xor(hn::ShiftRight<32>(b), s.c1), k0), b,
          hn::Xor(hn::Xor(hn::ShiftRight<32>(a), s.c3), k1), a};
}

// The four numbers of each counter as bytes, in the lower half of its lane.
HWY_INLINE V64 four_bytes(const State& s, V64 limit) {
  const V64 low = hn::Or(is_below(s.c0, limit), hn::ShiftLeft<8>(is_below(s.c1, limit)));
  const V64 high = hn::Or(is_below(s.c2, limit), hn::ShiftLeft<8>(is_below(s.c3, limit)));
  return hn::Or(low, hn::ShiftLeft<16>(high));
}

// The numbers of kCounters counters.
HWY_INLINE void store_group(V64 bytes, uint8_t* out) {
  HWY_ALIGN uint64_t lanes[kCounters];
  hn::Store(bytes, D64(), lanes);
  for (size_t i = 0; i < kCounters; ++i) {
    const auto four = static_cast<uint32_t>(lanes[i]);
    std::memcpy(out + kWords * i, &four, kWords);
  }
}

// Two of them at once, in registers: a round waits for its products longer than it computes.
void store_groups(const Keys& keys, uint64_t counter, V64 limit, uint8_t* out) {
  State first = first_state(hn::Iota(D64(), counter));
  State second = first_state(hn::Iota(D64(), counter + kCounters));
  for (int round = 0; round < kPhiloxRounds; ++round) {
    first = next_state(first, keys.k0[round], keys.k1[round]);
    second = next_state(second, keys.k0[round], keys.k1[round]);
  }
  store_group(four_bytes(first, limit), out);
  store_group(four_bytes(second, limit), out + kGroup);
}

void bernoulli(uint64_t seed, uint64_t counter, uint32_t limit, uint8_t* out, size_t n) {
  constexpr size_t kStep = 2 * kGroup;
  const Keys keys(seed);
  const V64 limits = hn::Set(D64(), limit);
  for (; n >= kStep; n -= kStep, out += kStep, counter += 2 * kCounters)
    store_groups(keys, counter, limits, out);
  if (n == 0) return;
  uint8_t rest[kStep];
  store_groups(keys, counter, limits, rest);
  std::memcpy(out, rest, n);
}

// Bytes have a part of a lane's width; the compiler vectorises the plain loop.
template <class T>
void expand(const uint8_t* HWY_RESTRICT keep, T one, T* HWY_RESTRICT out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(keep[i] * one);
}

}  // namespace

constexpr BernoulliKernels table = {
    .bernoulli = bernoulli, .expand16 = expand<uint16_t>, .expand32 = expand<uint32_t>};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const BernoulliKernels& bernoulli_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
