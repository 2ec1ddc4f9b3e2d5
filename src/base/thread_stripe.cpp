// SPDX-License-Identifier: Apache-2.0
#include "base/thread_stripe.h"

#include <bit>

namespace epilogue {
namespace {

// A bit for each stripe that a living thread has alone.
constinit std::atomic<uint32_t> taken_stripes{0};

// Gives the stripe back when its thread ends. Thread-local destructors that run later share one.
struct StripeLease {
  size_t stripe = kSharedStripe;
  ~StripeLease() {
    detail::this_thread_stripe = kSharedStripe + 1;
    if (is_own_stripe(stripe))
      taken_stripes.fetch_and(~(uint32_t{1} << stripe), std::memory_order_release);
  }
};
thread_local StripeLease stripe_lease;

size_t free_stripe() {
  uint32_t taken = taken_stripes.load(std::memory_order_relaxed);
  for (;;) {
    const auto stripe = static_cast<size_t>(std::countr_one(taken));
    if (stripe >= kSharedStripe) return kSharedStripe;
    if (taken_stripes.compare_exchange_weak(taken, taken | (uint32_t{1} << stripe),
                                            std::memory_order_acquire, std::memory_order_relaxed))
      return stripe;
  }
}

}  // namespace

namespace detail {

constinit thread_local size_t this_thread_stripe = 0;

size_t take_stripe() noexcept {
  stripe_lease.stripe = free_stripe();
  this_thread_stripe = stripe_lease.stripe + 1;
  return stripe_lease.stripe;
}

}  // namespace detail
}  // namespace epilogue
