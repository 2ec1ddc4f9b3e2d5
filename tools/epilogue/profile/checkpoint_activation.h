// SPDX-License-Identifier: Apache-2.0
// Which activation the MLP of a checkpoint has, and how that is known.
#pragma once

#include <optional>
#include <string>

#include "epilogue/nn.h"

namespace epilogue::tool {

struct CheckpointActivation {
  nn::Activation activation;
  std::string how;  // "of config.json", "assumed for llama"
};

// `asked` (--activation, if it was given) where it fits the MLP's shape; else what the config.json
// beside the weights says; else the usual one of the family, which is an assumption.
CheckpointActivation checkpoint_activation(const std::string& weights, const nn::HfMlp& mlp,
                                           std::optional<nn::Activation> asked);

}  // namespace epilogue::tool
