// SPDX-License-Identifier: Apache-2.0
// The network that the flags of `epilogue train` describe.
#pragma once

#include <memory>

#include "epilogue/nn.h"
#include "epilogue/predictor.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

train::NetworkOptions network_options(const TrainRun& run, int64_t inputs, int64_t outputs);

// Throws Error where memory does not hold it.
std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs);

}  // namespace epilogue::tool
