// SPDX-License-Identifier: Apache-2.0
// Counters and slots that many threads use without waiting for each other: one per stripe. A thread
// has a stripe of its own as long as it lives, if there are not too many threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace epilogue {

inline constexpr size_t kStripes = 16;
// Shared by all threads that found no other one free.
inline constexpr size_t kSharedStripe = kStripes - 1;
// Processors fetch cache lines in pairs.
inline constexpr size_t kStripeBytes = 128;

namespace detail {
// The thread's stripe plus 1; 0: none yet.
extern constinit thread_local size_t this_thread_stripe;
size_t take_stripe() noexcept;
}  // namespace detail

// This thread's, below kStripes.
inline size_t thread_stripe() {
  const size_t known = detail::this_thread_stripe;
  return known != 0 ? known - 1 : detail::take_stripe();
}

// A value that one thread alone writes needs no locked instruction.
inline bool is_own_stripe(size_t stripe) { return stripe != kSharedStripe; }

// Adds to a number of this stripe that others read.
inline void add_striped(std::atomic<int64_t>& number, int64_t n, size_t stripe) {
  if (is_own_stripe(stripe)) {
    number.store(number.load(std::memory_order_relaxed) + n, std::memory_order_release);
  } else {
    number.fetch_add(n, std::memory_order_release);
  }
}

// A count that every call of every thread adds to.
class StripedCount {
 public:
  void add() {
    const size_t stripe = thread_stripe();
    add_striped(stripes_[stripe].n, 1, stripe);
  }
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
