// SPDX-License-Identifier: Apache-2.0
// The plans of one compiled function, the one that ran last first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "plan/compiled_entry.h"

namespace epilogue::plan {

// The one call that may use plans: their memory is theirs alone.
class OneCall {
 public:
  // Throws Error where another one is under way.
  explicit OneCall(std::atomic<bool>& busy) : busy_(busy) {
    if (busy_.exchange(true, std::memory_order_acquire))
      throw Error(
          "[compile] expected one call at a time of a compiled function and its copies, got one "
          "during another: give each thread its own compile()");
  }
  ~OneCall() { busy_.store(false, std::memory_order_release); }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  std::atomic<bool>& busy_;
};

class PlanCache {
 public:
  // Throws Error on a name in `skip` that is no pass, and on max_plans of 0.
  explicit PlanCache(CompileOptions options);

  // The entry that holds for these inputs, made by `make` where there is none.
  Entry& find_or_make(std::span<const Tensor> in,
                      const std::function<std::unique_ptr<Entry>()>& make);
  void count_call() { ++stats_.calls; }

  // nullptr before the first.
  const Entry* last() const { return entries_.empty() ? nullptr : entries_[0].get(); }
  const CompileOptions& options() const { return options_; }
  CompileStats stats() const;
  void clear() {
    const OneCall call = one_call();
    entries_.clear();
  }
  // For the length of a call.
  OneCall one_call() { return OneCall(busy_); }

 private:
  CompileOptions options_;
  std::vector<std::unique_ptr<Entry>> entries_;
  CompileStats stats_;
  std::atomic<bool> busy_{false};
};

}  // namespace epilogue::plan
