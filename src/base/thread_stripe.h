// SPDX-License-Identifier: Apache-2.0
// Counters and slots that many threads use without waiting for each other: one per stripe, and each
// thread has a stripe of its own where there are not too many threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace epilogue {

inline constexpr size_t kStripes = 16;
// Processors fetch cache lines in pairs.
inline constexpr size_t kStripeBytes = 128;

// This thread's, below kStripes.
inline size_t thread_stripe() {
  static std::atomic<size_t> threads{0};
  static thread_local const size_t stripe = threads.fetch_add(1, std::memory_order_relaxed);
  return stripe % kStripes;
}

// A count that every call of every thread adds to.
class StripedCount {
 public:
  void add() { stripes_[thread_stripe()].n.fetch_add(1, std::memory_order_relaxed); }
  int64_t sum() const {
    int64_t n = 0;
    for (const Stripe& s : stripes_) n += s.n.load(std::memory_order_relaxed);
    return n;
  }

 private:
  struct alignas(kStripeBytes) Stripe {
    std::atomic<int64_t> n{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace epilogue
