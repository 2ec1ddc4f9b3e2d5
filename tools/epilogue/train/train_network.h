// SPDX-License-Identifier: Apache-2.0
// The network that the flags of `epilogue train` describe.
#pragma once

#include <memory>

#include "epilogue/nn.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

// mlp: `layers` times (linear to `hidden`, gelu, dropout), and a linear to the outputs.
// geglu: a linear to hidden / 2, `layers` times x + GatedMLP(RMSNorm(x)) of that hidden width,
// RMSNorm, dropout, and a linear to the outputs.
// Throws Error where memory does not hold it.
std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs);

}  // namespace epilogue::tool
