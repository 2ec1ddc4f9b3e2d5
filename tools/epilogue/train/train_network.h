// SPDX-License-Identifier: Apache-2.0
// The parts of a training run that its flags choose: network, optimizer, schedule, gradients.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "epilogue/nn.h"
#include "epilogue/optim.h"
#include "tools/epilogue/train/trainer.h"

namespace epilogue::tool {

// mlp: `layers` times (linear to `hidden`, gelu, dropout), and a linear to the outputs.
// geglu: a linear to hidden / 2, `layers` times x + GatedMLP(RMSNorm(x)) of that hidden width,
// RMSNorm, dropout, and a linear to the outputs.
std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs);

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainRun& run, std::vector<Tensor> params);

// A rise from 0 over the warm-up, then the schedule over the steps that remain.
optim::LrFactor make_schedule(const TrainRun& run, int64_t total_steps);

// The dtype of the autocast region; empty without one.
std::optional<DType> amp_dtype(const TrainRun& run);

// `plan`: the name of the compiled plan, run.plan at first; written where it is measured. Throws
// Error for a mode that does not exist.
GradientFunction make_gradients(const TrainRun& run, train::Task task, const nn::Module& network,
                                const std::shared_ptr<std::string>& plan);

// Outputs of the network for these inputs, without a graph, in the dtype of the run, as f32.
Tensor predict(const TrainRun& run, const nn::Module& network, const Tensor& inputs);

Tensor loss_of(train::Task task, const Tensor& outputs, const Tensor& targets);

// Rows whose greatest output is that of their class.
int64_t count_correct(const Tensor& outputs, const Tensor& targets);

}  // namespace epilogue::tool
