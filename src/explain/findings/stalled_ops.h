// SPDX-License-Identifier: Apache-2.0
// Ops that take longer than one core would: their threads wait for each other or for busy cores.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/findings/finding.h"

namespace epilogue::trace {

// A simple op on less than kManyBytes that takes longer than this waits for threads, too.
inline constexpr int64_t kStalledNs = 500'000;
// GB/s of an op on kManyBytes or more that waits for nobody.
inline constexpr double kFastGbPerS = 3;
// Slow ops count if so many times as many are not fast.
inline constexpr int64_t kFastCallsPerStalled = 2;
// ATen shares loops of 32,768 elements or more among its threads (at::internal::GRAIN_SIZE). A
// tensor of up to a mebibyte stays in a core's cache.
inline constexpr int64_t kSharedLoopBytes = 4 * 32'768;
inline constexpr int64_t kCachedBytes = 1 << 20;
// f32 in a cache, GB/s: one core of 2015 does three times the first. Runs of PyTorch on one and two
// cores showed medians from 5.4 up and fastest calls from 9; with more threads than cores, medians
// up to 3.3 and fastest calls up to 6.4.
inline constexpr double kSlowMedian = 3.5;
inline constexpr double kSlowFastest = 8;
// So slow in most calls, nothing but threads can be the cause, however fast some are.
inline constexpr double kSurelySlowMedian = 1;
inline constexpr int64_t kSomeCalls = 5;

// Loops over tensors that fit a cache, which threads share: if each takes longer than one core
// alone, the threads wait for each other.
class SmallLoops {
 public:
  // An op that works itself. Only contiguous f32 of kSharedLoopBytes to kCachedBytes counts.
  void add(const VisitedOp& op, bool is_counted_already);
  // Adds the slow ones to `losses` and gives the number of their calls; 0 unless the calls of one
  // simple op show it, most of them and the fastest.
  int64_t add_contended(OpLosses& losses) const;

 private:
  struct Calls {
    bool is_simple = false;
    int64_t count = 0;  // of these three without those that are counted already
    int64_t ns = 0;
    int64_t bytes = 0;
    std::vector<double> gb_per_s;
  };
  std::map<std::pair<std::string_view, int64_t>, Calls> calls_;  // by name and bytes
};

class StalledOps : public OpVisitor {
 public:
  void visit(const VisitedOp& op) override;

  struct Result {
    OpLosses ops;
    bool are_loops_slow = false;  // small loops show that threads wait
  };
  Result result() const;

 private:
  SmallLoops small_loops_;
  OpLosses stalled_;
  int64_t stalled_calls_ = 0;
  int64_t fast_calls_ = 0;
};

}  // namespace epilogue::trace
