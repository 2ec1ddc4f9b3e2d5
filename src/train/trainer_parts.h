// SPDX-License-Identifier: Apache-2.0
// The parts of a trainer, as its options choose them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "epilogue/train.h"

namespace epilogue::train {

// Throws Error where options do not fit together. All below take options with_defaults().
void check_options(const TrainerOptions& options);

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainerOptions& options,
                                                 std::vector<Tensor> params);

// A rise from 0 over the warm-up, then the schedule over the steps that remain.
optim::LrFactor make_schedule(const TrainerOptions& options);

// The dtype of the autocast region; empty without one.
std::optional<DType> autocast_dtype(Precision precision);

// That region on the inputs' device.
class PrecisionScope {
 public:
  PrecisionScope(Precision precision, const Tensor& inputs);

 private:
  std::optional<amp::Autocast> autocast_;
};

Tensor loss_of(Loss loss, const Tensor& outputs, const Tensor& targets);

// Rows of outputs [n, classes] whose greatest value is that of their class.
int64_t count_correct(const Tensor& outputs, const Tensor& targets);

}  // namespace epilogue::train
