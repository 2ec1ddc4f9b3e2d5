// SPDX-License-Identifier: Apache-2.0
// How Hugging Face models name and store the tensors of an MLP.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/nn.h"

namespace epilogue::nn {

enum class HfLayout : uint8_t {
  plain,       // weights [out, in]
  packed,      // gate and up in one tensor [2 hidden, dim], gate rows first
  transposed,  // weights [in, out] (GPT-2's Conv1D)
};

// One naming. "<prefix>.<up>.weight" and so on; `.bias` beside each weight or beside none.
struct HfFamily {
  std::string_view name;
  Activation activation;
  std::string_view gate;  // empty: not gated, or packed
  std::string_view up;
  std::string_view down;
  HfLayout layout = HfLayout::plain;

  bool gated() const { return !gate.empty() || layout == HfLayout::packed; }
  // gate (where it is a tensor of its own), up, down.
  std::vector<std::string_view> modules() const;
};

// The family whose weights are all below `prefix`. Codes: HfMlpNotFound, HfMlpIncomplete.
Result<const HfFamily*> find_hf_family(const TensorSource& source, std::string_view prefix);

// "model.layers.0.mlp" + "up_proj.weight"; the prefix may be empty or end in a dot.
std::string join_name(std::string_view prefix, std::string_view name);

// "LABEL: CODE: DETAIL", fit for one line of a terminal.
Failure hf_failure(const TensorSource& source, FailureCode code, std::string_view detail);

}  // namespace epilogue::nn
