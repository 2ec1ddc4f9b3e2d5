// SPDX-License-Identifier: Apache-2.0
// Loops over tensors that fit a cache, which threads share: where each takes longer than one core
// alone, the threads wait for each other.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/host/host_losses.h"

namespace epilogue::trace {

using LossesByName = std::map<std::string_view, HostLoss>;

class SmallLoops {
 public:
  // An op at work. Others than contiguous f32 of kSharedLoopBytes and more do
  // not count.
  void add(const Trace& trace, const Event& op, OpBytes bytes, bool is_counted_already);
  // Adds the slow ones by name; none unless the calls of one simple op show it, most of them and
  // the fastest.
  void add_contended(LossesByName& losses);
  // Calls that are slow because of it.
  int64_t slow_calls() const { return slow_calls_; }

 private:
  struct Calls {
    bool is_simple = false;
    int64_t count = 0;  // of these three without those that are counted already
    int64_t ns = 0;
    int64_t bytes = 0;
    std::vector<double> gb_per_s;
  };
  int64_t slow_calls_ = 0;
  std::map<std::pair<std::string_view, int64_t>, Calls> calls_;  // by name and bytes
};

}  // namespace epilogue::trace
