// SPDX-License-Identifier: Apache-2.0
// The plans of one compiled function, the one that ran last first.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/compiled_entry.h"

namespace epilogue::plan {

class PlanCache {
 public:
  // Throws Error on a name in `skip` that is no pass.
  explicit PlanCache(CompileOptions options);

  // The entry that holds for these inputs, made by `make` where there is none.
  Entry& find_or_make(std::span<const Tensor> in,
                      const std::function<std::unique_ptr<Entry>()>& make);
  void count_call() { ++stats_.calls; }

  // nullptr before the first.
  const Entry* last() const { return entries_.empty() ? nullptr : entries_[0].get(); }
  const CompileOptions& options() const { return options_; }
  CompileStats stats() const;
  void clear() { entries_.clear(); }

 private:
  CompileOptions options_;
  std::vector<std::unique_ptr<Entry>> entries_;
  CompileStats stats_;
};

}  // namespace epilogue::plan
