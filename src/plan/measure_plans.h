// SPDX-License-Identifier: Apache-2.0
// Plans of the same call against each other, in turns.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/choice_store.h"
#include "plan/plan.h"

namespace epilogue::plan {

struct Contender {
  std::string name;
  Plan* plan;
  KernelTuning tuning;
};

// Runs each in interleaved rounds within some hundred milliseconds (three rounds at least) and
// names the one with the least median; the first one unless another is more than 2 % faster, so
// that noise does not choose. `before_call` runs before every call and is not timed.
Choice fastest(std::span<const Contender> contenders, std::span<const Tensor> in,
               std::span<Tensor> out, const std::function<void()>& before_call);

}  // namespace epilogue::plan
