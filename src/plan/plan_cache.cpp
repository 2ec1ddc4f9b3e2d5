// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_cache.h"

#include <algorithm>

#include "base/clock.h"
#include "passes/pipeline.h"

namespace epilogue::plan {

PlanCache::PlanCache(CompileOptions options) : options_(std::move(options)) {
  passes::require_known_names(options_.skip);
  if (options_.max_plans == 0) throw Error("[compile] expected max_plans of 1 or more, got 0");
}

Entry& PlanCache::find_or_make(std::span<const Tensor> in,
                               const std::function<std::unique_ptr<Entry>()>& make) {
  for (auto& entry : entries_) {
    if (!entry->accepts(in)) continue;
    std::swap(entry, entries_[0]);
    return *entries_[0];
  }
  ++stats_.misses;
  const int64_t begin = monotonic_ns();
  std::unique_ptr<Entry> entry = make();
  stats_.compile_ms += static_cast<double>(monotonic_ns() - begin) / 1e6;
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > options_.max_plans) entries_.pop_back();
  return *entries_[0];
}

CompileStats PlanCache::stats() const {
  CompileStats s = stats_;
  s.plans = static_cast<int64_t>(entries_.size());
  if (const Entry* entry = last()) {
    s.kernels = entry->kernels();
    s.intermediate_bytes = entry->intermediate_bytes();
    s.scratch_bytes = entry->scratch_bytes();
    s.eager_kernels = entry->eager_kernels();
    s.moved_bytes = entry->moved_bytes();
    s.eager_moved_bytes = entry->eager_moved_bytes();
  }
  return s;
}

}  // namespace epilogue::plan
