// SPDX-License-Identifier: Apache-2.0
// The plans of one compiled function.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/snapshot.h"
#include "base/thread_stripe.h"
#include "plan/compiled_entry.h"

namespace epilogue::plan {

// Thread-safe: calls read a list of entries that nobody changes, and who makes a plan replaces the
// list.
class PlanCache {
 public:
  using List = std::vector<std::shared_ptr<const Entry>>;
  using Reader = Snapshot<List>::Reader;

  // Throws Error on a name in `skip` that is no pass, and on max_plans of 0.
  explicit PlanCache(CompileOptions options);

  // Runs `use(entry)` with the entry that holds for these inputs, made by `make` where there is
  // none. The entry is the caller's only as long as `use` runs.
  template <class Use>
  void with_entry(std::span<const Tensor> in, FunctionRef<std::shared_ptr<const Entry>()> make,
                  Use&& use) {
    for (;;) {
      {
        const Reader list(entries_);
        if (const Entry* const entry = find(*list, in)) {
          if (list->size() > 1) entry->mark_used();
          return use(*entry);
        }
      }
      // Its guards may not hold any more, if the function changes what they watch.
      if (const std::shared_ptr<const Entry> made = add_entry(in, make)) return use(*made);
    }
  }
  void count_call() { calls_.add(); }

  // The entry that was used last; null before the first.
  std::shared_ptr<const Entry> last() const;
  const CompileOptions& options() const { return options_; }
  CompileStats stats() const;
  void clear();

 private:
  static const Entry* find(const List& list, std::span<const Tensor> in) {
    for (const std::shared_ptr<const Entry>& entry : list)
      if (entry->accepts(in)) return entry.get();
    return nullptr;
  }
  // Null where another thread made it meanwhile.
  std::shared_ptr<const Entry> add_entry(std::span<const Tensor> in,
                                         FunctionRef<std::shared_ptr<const Entry>()> make);

  CompileOptions options_;
  Snapshot<List> entries_;
  StripedCount calls_;
  mutable std::mutex making_;  // guards what follows, and the list's replacement
  CompileStats made_;
};

}  // namespace epilogue::plan
