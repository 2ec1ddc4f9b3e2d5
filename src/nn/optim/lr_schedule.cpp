// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "epilogue/optim.h"
#include "nn/optim/options_text.h"

namespace epilogue::optim {

LrFactor constant_lr() {
  return [](int64_t) { return 1.0; };
}

LrFactor step_lr(int64_t step_size, double gamma) {
  if (step_size < 1)
    throw Error("[step_lr] expected a step_size of 1 or more, got " + std::to_string(step_size));
  return [=](int64_t step) {
    const int64_t drops = step / step_size;
    return std::pow(gamma, static_cast<double>(drops));
  };
}

LrFactor cosine_lr(int64_t total_steps, int64_t warmup_steps, double min_factor) {
  if (warmup_steps < 0 || warmup_steps >= total_steps)
    throw Error("[cosine_lr] expected 0 <= warmup_steps < total_steps, got " +
                std::to_string(warmup_steps) + " and " + std::to_string(total_steps));
  return [=](int64_t step) {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                              static_cast<double>(total_steps - warmup_steps));
    return min_factor + (1 - min_factor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  };
}

LrScheduler::LrScheduler(Optimizer& optimizer, LrFactor factor)
    : optimizer_(optimizer), factor_(std::move(factor)) {
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) base_lrs_.push_back(optimizer_.lr(g));
  apply();
}

void LrScheduler::apply() {
  const double factor = factor_(last_step_);
  for (size_t g = 0; g < base_lrs_.size(); ++g) optimizer_.set_lr(g, base_lrs_[g] * factor);
}

void LrScheduler::step() {
  ++last_step_;
  apply();
}

StateDict LrScheduler::state_dict() const {
  StateDict dict;
  dict.metadata["last_step"] = number_text(last_step_);
  for (size_t g = 0; g < base_lrs_.size(); ++g)
    dict.metadata["base_lr." + std::to_string(g)] = number_text(base_lrs_[g]);
  return dict;
}

void LrScheduler::load_state_dict(const StateDict& state) {
  const int64_t last_step = integer_of(state.metadata, "last_step");
  std::vector<double> base_lrs;
  base_lrs.reserve(base_lrs_.size());
  for (size_t g = 0; g < base_lrs_.size(); ++g)
    base_lrs.push_back(number_of(state.metadata, "base_lr." + std::to_string(g)));
  if (state.metadata.contains("base_lr." + std::to_string(base_lrs.size())))
    throw Error("[load_state_dict] expected learning rates of " + std::to_string(base_lrs.size()) +
                " groups, got more");
  last_step_ = last_step;
  base_lrs_ = std::move(base_lrs);
  apply();
}

}  // namespace epilogue::optim
