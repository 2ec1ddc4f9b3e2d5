// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_cache.h"

#include <algorithm>

#include "base/clock.h"
#include "passes/pipeline.h"

namespace epilogue::plan {
namespace {

bool used_before(const std::shared_ptr<const Entry>& a, const std::shared_ptr<const Entry>& b) {
  return a->last_used() < b->last_used();
}

}  // namespace

PlanCache::PlanCache(CompileOptions options)
    : options_(std::move(options)), entries_(std::make_unique<List>()) {
  passes::require_known_names(options_.skip);
  if (options_.max_plans == 0) throw Error("[compile] expected max_plans of 1 or more, got 0");
}

// One plan is made at a time: threads that want the same one wait for it.
std::shared_ptr<const Entry> PlanCache::add_entry(
    std::span<const Tensor> in, FunctionRef<std::shared_ptr<const Entry>()> make) {
  const std::lock_guard<std::mutex> lock(making_);
  auto list = std::make_unique<List>();
  {
    const Reader before(entries_);
    if (find(*before, in) != nullptr) return nullptr;
    *list = *before;
  }
  ++made_.misses;
  const int64_t begin = monotonic_ns();
  std::shared_ptr<const Entry> entry = make();
  made_.compile_ms += static_cast<double>(monotonic_ns() - begin) / 1e6;
  list->insert(list->begin(), entry);
  // The new one is the caller's: it stays even if all are as old.
  if (list->size() > options_.max_plans)
    list->erase(std::min_element(list->begin() + 1, list->end(), used_before));
  entries_.replace(std::move(list));
  return entry;
}

std::shared_ptr<const Entry> PlanCache::last() const {
  const Reader list(entries_);
  const auto last = std::max_element(list->begin(), list->end(), used_before);
  return last != list->end() ? *last : nullptr;
}

void PlanCache::clear() {
  const std::lock_guard<std::mutex> lock(making_);
  entries_.replace(std::make_unique<List>());
}

CompileStats PlanCache::stats() const {
  CompileStats s;
  {
    const std::lock_guard<std::mutex> lock(making_);
    s = made_;
  }
  s.calls = calls_.sum();
  s.plans = static_cast<int64_t>(Reader(entries_)->size());
  if (const std::shared_ptr<const Entry> entry = last()) {
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
