// SPDX-License-Identifier: Apache-2.0
// Objects that calls borrow, one each: what a call works in, kept for the next one.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_stripe.h"

namespace epilogue {

// Thread-safe. Holds as many objects as were ever borrowed at once. A thread gets the object back
// that it gave, where nobody took it meanwhile.
template <class T>
class SlotPool {
 public:
  SlotPool() = default;
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  ~SlotPool() {
    for (Slot& slot : slots_) delete slot.object.load();
  }

  // An object for the length of a call.
  class Loan {
   public:
    Loan(SlotPool& pool, T* object, size_t stripe)
        : pool_(pool), object_(object), stripe_(stripe) {}
    ~Loan() { pool_.give(object_, stripe_); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_; }

   private:
    SlotPool& pool_;
    T* object_;
    size_t stripe_;
  };

  // `make()` gives a std::unique_ptr<T>, where all objects are lent.
  template <class Make>
  Loan borrow(Make&& make) {
    const size_t mine = thread_stripe();
    for (size_t i = 0; i < kStripes; ++i) {
      std::atomic<T*>& slot = slots_[(mine + i) % kStripes].object;
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* const object = slot.exchange(nullptr, std::memory_order_acquire))
        return {*this, object, mine};
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!more_.empty()) {
        T* const object = more_.back().release();
        more_.pop_back();
        return {*this, object, mine};
      }
    }
    return {*this, make().release(), mine};
  }

  // Whether one of the objects that are not lent fits. Not beside borrow().
  template <class Fits>
  bool any(Fits&& fits) const {
    for (const Slot& slot : slots_)
      if (const T* const object = slot.object.load(); object != nullptr && fits(*object))
        return true;
    for (const std::unique_ptr<T>& object : more_)
      if (fits(*object)) return true;
    return false;
  }

 private:
  struct alignas(kStripeBytes) Slot {
    std::atomic<T*> object{nullptr};
  };

  void give(T* object, size_t stripe) noexcept {
    std::atomic<T*>& slot = slots_[stripe].object;
    T* none = nullptr;
    if (is_own_stripe(stripe)) {
      // Other threads empty this slot, but only this one fills it.
      if (slot.load(std::memory_order_relaxed) == nullptr)
        return slot.store(object, std::memory_order_release);
    } else if (slot.compare_exchange_strong(none, object, std::memory_order_release,
                                            std::memory_order_relaxed)) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    more_.emplace_back(object);
  }

  std::array<Slot, kStripes> slots_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> more_;  // where several threads have one stripe
};

}  // namespace epilogue
