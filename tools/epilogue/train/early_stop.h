// SPDX-License-Identifier: Apache-2.0
// When a run has learned what it will: so many evaluations without a lower test loss.
#pragma once

#include <cstdint>
#include <limits>

#include "epilogue/checkpoint.h"

namespace epilogue::tool {

class EarlyStop {
 public:
  // 0: the run never ends early, and no epoch counts as the best.
  explicit EarlyStop(int64_t patience) : patience_(patience) {}

  int64_t patience() const { return patience_; }
  // True where the epoch is the best so far.
  bool add(int64_t epoch, double test_loss);
  bool is_over() const { return patience_ > 0 && waited_ >= patience_; }
  int64_t best_epoch() const { return best_epoch_; }  // 0: none
  int64_t waited() const { return waited_; }          // evaluations since the best

  // For checkpoints. load() of a state without it begins anew.
  train::StateDict state() const;
  void load(const train::StateDict& state);

 private:
  int64_t patience_;
  int64_t best_epoch_ = 0;
  double best_loss_ = std::numeric_limits<double>::infinity();
  int64_t waited_ = 0;
};

}  // namespace epilogue::tool
