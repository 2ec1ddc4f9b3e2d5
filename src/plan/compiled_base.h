// SPDX-License-Identifier: Apache-2.0
// What compiled functions and steps share: their plans.
#pragma once

#include "epilogue/compile.h"
#include "plan/plan_cache.h"

namespace epilogue {

class CompiledBase::Plans {
 public:
  explicit Plans(CompileOptions options) : cache_(std::move(options)) {}
  virtual ~Plans() = default;
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  plan::PlanCache& cache() { return cache_; }
  // The plan that ran last; null before the first.
  std::shared_ptr<const plan::Entry> last() const { return cache_.last(); }

 private:
  plan::PlanCache cache_;
};

}  // namespace epilogue
