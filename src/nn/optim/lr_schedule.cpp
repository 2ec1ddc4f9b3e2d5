// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "epilogue/optim.h"
#include "nn/optim/options_text.h"

namespace epilogue::optim {

namespace {

double rate_of(const Text& metadata, const std::string& key) {
  const double rate = number_of(metadata, key);
  require_not_negative("load_state_dict", "\"" + key + "\"", rate);
  return rate;
}

}  // namespace

LrFactor constant_lr() {
  return [](int64_t) { return 1.0; };
}

LrFactor step_lr(int64_t step_size, double gamma) {
  if (step_size < 1)
    throw Error("[step_lr] expected a step_size of 1 or more, got " + std::to_string(step_size));
  require_not_negative("step_lr", "gamma", gamma);
  return [=](int64_t step) {
    const int64_t drops = step / step_size;
    return std::pow(gamma, static_cast<double>(drops));
  };
}

LrFactor cosine_lr(int64_t total_steps, int64_t warmup_steps, double min_factor) {
  if (warmup_steps < 0 || warmup_steps >= total_steps)
    throw Error("[cosine_lr] expected 0 <= warmup_steps < total_steps, got " +
                std::to_string(warmup_steps) + " and " + std::to_string(total_steps));
  require_not_negative("cosine_lr", "min_factor", min_factor);
  return [=](int64_t step) {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                              static_cast<double>(total_steps - warmup_steps));
    return min_factor + (1 - min_factor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  };
}

LrScheduler::LrScheduler(Optimizer& optimizer, LrFactor factor)
    : optimizer_(optimizer), factor_(std::move(factor)) {
  if (!factor_) throw Error("[LrScheduler] expected a factor, got an empty function");
  std::vector<double> base_lrs;
  base_lrs.reserve(optimizer_.num_groups());
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) base_lrs.push_back(optimizer_.lr(g));
  apply(0, std::move(base_lrs));
}

void LrScheduler::apply(int64_t step, std::vector<double> base_lrs) {
  const double factor = factor_(step);
  for (const double base : base_lrs)
    require_not_negative("LrScheduler", "learning rate", base * factor);
  for (size_t g = 0; g < base_lrs.size(); ++g) optimizer_.set_lr(g, base_lrs[g] * factor);
  last_step_ = step;
  base_lrs_ = std::move(base_lrs);
}

void LrScheduler::step() { apply(last_step_ + 1, base_lrs_); }

StateDict LrScheduler::state_dict() const {
  StateDict dict;
  dict.metadata["last_step"] = number_text(last_step_);
  for (size_t g = 0; g < base_lrs_.size(); ++g)
    dict.metadata["base_lr." + std::to_string(g)] = number_text(base_lrs_[g]);
  return dict;
}

void LrScheduler::load_state_dict(const StateDict& state) {
  const int64_t last_step = integer_of(state.metadata, "last_step");
  if (last_step < 0)
    throw Error("[load_state_dict] expected a \"last_step\" of 0 or more, got " +
                std::to_string(last_step));
  std::vector<double> base_lrs;
  base_lrs.reserve(base_lrs_.size());
  for (size_t g = 0; g < base_lrs_.size(); ++g)
    base_lrs.push_back(rate_of(state.metadata, "base_lr." + std::to_string(g)));
  if (state.metadata.contains("base_lr." + std::to_string(base_lrs.size())))
    throw Error("[load_state_dict] expected learning rates of " + std::to_string(base_lrs.size()) +
                " groups, got more");
  apply(last_step, std::move(base_lrs));
}

}  // namespace epilogue::optim
