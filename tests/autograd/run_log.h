// SPDX-License-Identifier: Apache-2.0
// A run observer that writes down what it hears, one indented line per op and range.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/observer.h"

namespace epilogue::test {

// Listens while it lives, to one thread.
class RunLog final : public RunObserver {
 public:
  struct Entry {
    int depth;
    std::string name;
    int64_t sequence_nr;
    uint64_t forward_thread;
    bool is_op;
  };

  RunLog() { set_run_observer(this); }
  ~RunLog() override { set_run_observer(nullptr); }
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void op_begin(const OpDef& op, std::span<const Tensor>, std::span<const Attr>,
                int64_t sequence_nr) override {
    entries_.push_back({depth_++, std::string(op.name), sequence_nr, 0, true});
  }
  void op_end() override { --depth_; }
  void kernel_ran(const KernelRun&) override { ++kernels_; }
  void range_begin(std::string_view name, RangeKind, int64_t sequence_nr,
                   uint64_t forward_thread) override {
    entries_.push_back({depth_++, std::string(name), sequence_nr, forward_thread, false});
  }
  void range_end() override { --depth_; }

  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }
  int kernels() const { return kernels_; }
  int count(std::string_view name) const {
    return static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                          [&](const Entry& e) { return e.name == name; }));
  }
  // The first entry of that name.
  const Entry& at(std::string_view name) const {
    return *std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& e) { return e.name == name; });
  }
  // Names, two spaces per level; ops inside ops are left out.
  std::string tree() const {
    std::string text;
    int inside_op = -1;
    for (const Entry& e : entries_) {
      if (inside_op >= 0 && e.depth > inside_op) continue;
      inside_op = e.is_op ? e.depth : -1;
      text += std::string(2 * static_cast<size_t>(e.depth), ' ') + e.name + "\n";
    }
    return text;
  }

 private:
  std::vector<Entry> entries_;
  int depth_ = 0;
  int kernels_ = 0;
};

}  // namespace epilogue::test
