// SPDX-License-Identifier: Apache-2.0
// A value that many threads read and one replaces now and then. Readers never wait, and share no
// memory that they write, where each has a stripe of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_stripe.h"

namespace epilogue {

// A replaced value lives until no reader is left that began before: replace() looks, at values that
// it replaced earlier too. All functions are thread-safe; the end of the object is not.
template <class T>
class Snapshot {
 public:
  Snapshot() = default;
  explicit Snapshot(std::unique_ptr<const T> value) : current_(value.release()) {}
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot() { delete current_.load(); }

  // The value as it is now, for as long as this lives. It may be null.
  class Reader {
   public:
    explicit Reader(const Snapshot& of)
        : stripe_(thread_stripe()), count_(of.stripes_[stripe_].readers) {
      // Locked on any stripe: the value must not be loaded before the others see the count.
      count_.fetch_add(1, std::memory_order_seq_cst);
      value_ = of.current_.load(std::memory_order_seq_cst);
    }
    ~Reader() { add_striped(count_, -1, stripe_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    const T* get() const { return value_; }
    const T* operator->() const { return value_; }
    const T& operator*() const { return *value_; }

   private:
    size_t stripe_;
    std::atomic<int64_t>& count_;
    const T* value_;
  };

  void replace(std::unique_ptr<const T> value) {
    std::vector<std::unique_ptr<const T>> dead;  // ends after the lock
    const std::lock_guard<std::mutex> lock(replacing_);
    retired_.push_back(
        {std::unique_ptr<const T>(current_.exchange(value.release(), std::memory_order_seq_cst)),
         (uint64_t{1} << kStripes) - 1});
    // A stripe without readers now has none from before.
    for (size_t s = 0; s < kStripes; ++s)
      if (stripes_[s].readers.load(std::memory_order_seq_cst) == 0)
        for (Retired& old : retired_) old.waits_for &= ~(uint64_t{1} << s);
    std::erase_if(retired_, [&](Retired& old) {
      if (old.waits_for == 0) dead.push_back(std::move(old.value));
      return old.waits_for == 0;
    });
  }

 private:
  struct alignas(kStripeBytes) Stripe {
    mutable std::atomic<int64_t> readers{0};
  };
  struct Retired {
    std::unique_ptr<const T> value;
    uint64_t waits_for;  // a bit for each stripe that had readers ever since
  };

  std::array<Stripe, kStripes> stripes_;
  std::atomic<const T*> current_{nullptr};
  std::mutex replacing_;
  std::vector<Retired> retired_;
};

}  // namespace epilogue
