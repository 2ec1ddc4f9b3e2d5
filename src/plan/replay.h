// SPDX-License-Identifier: Apache-2.0
// Small batches on a device: the launches of a plan cost more than its kernels, so they are
// recorded once and repeated by one call.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "core/backend.h"

namespace epilogue::plan {

// Recordings of one plan. A recording holds for the addresses it was made with.
class Replays {
 public:
  // Runs `body`, or repeats what it launched when it ran with the same addresses before. The first
  // call with new addresses runs it, the second records it. `body` must launch the same work every
  // time and allocate nothing.
  void run(Backend& backend, const std::vector<void*>& addresses, FunctionRef<void()> body);
  // Memory inside the plan moved.
  void clear() { recordings_.clear(); }

 private:
  struct Recording {
    std::vector<void*> addresses;
    std::unique_ptr<LaunchGraph> graph;
    bool refused = false;
  };
  std::list<Recording> recordings_;  // the last used comes first
};

}  // namespace epilogue::plan
