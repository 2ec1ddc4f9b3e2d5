// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "epilogue/ops.h"

namespace epilogue::train {
namespace {

constexpr double kAdamLr = 0.002;
constexpr double kSgdLr = 0.05;
constexpr double kAdamWDecay = 0.01;
constexpr int64_t kWarmupDivisor = 20;  // 5 % of the steps
constexpr double kStepGamma = 0.1;
constexpr int64_t kStepParts = 3;

template <class Got>
void require(bool holds, const char* expected, const Got& got) {
  if (!holds) throw Error(fmt::format("[Trainer] expected {}, got {}", expected, got));
}

}  // namespace

TrainerOptions with_defaults(TrainerOptions o) {
  if (!o.lr) o.lr = o.optimizer == Optimizer::sgd ? kSgdLr : kAdamLr;
  if (!o.weight_decay) o.weight_decay = o.optimizer == Optimizer::adamw ? kAdamWDecay : 0.0;
  if (!o.warmup_steps)
    o.warmup_steps = o.schedule == Schedule::constant ? 0 : o.total_steps / kWarmupDivisor;
  return o;
}

void check_options(const TrainerOptions& o) {
  require(o.accumulate >= 1, "1 or more micro-batches", o.accumulate);
  require(!o.clip_norm || *o.clip_norm > 0, "a clip_norm above 0", o.clip_norm.value_or(0));
  require(o.total_steps >= 0, "total_steps of 0 or more", o.total_steps);
  require(o.schedule == Schedule::constant || o.total_steps > 0,
          "total_steps, which the schedule is spread over", "none");
  require(*o.warmup_steps >= 0, "warmup_steps of 0 or more", *o.warmup_steps);
  require(o.total_steps == 0 || *o.warmup_steps < o.total_steps,
          fmt::format("fewer warmup_steps than the {} steps of the run", o.total_steps).c_str(),
          *o.warmup_steps);
  require(o.mode == Mode::compile || o.plan.empty(), "Mode::compile beside a plan", "Mode::eager");
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainerOptions& o,
                                                 std::vector<Tensor> params) {
  switch (o.optimizer) {
    case Optimizer::adamw:
      return std::make_unique<optim::AdamW>(
          std::move(params), optim::AdamWOptions{.lr = *o.lr, .weight_decay = *o.weight_decay});
    case Optimizer::adam:
      return std::make_unique<optim::Adam>(
          std::move(params), optim::AdamOptions{.lr = *o.lr, .weight_decay = *o.weight_decay});
    case Optimizer::sgd: break;
  }
  return std::make_unique<optim::SGD>(
      std::move(params),
      optim::SGDOptions{.lr = *o.lr, .momentum = o.momentum, .weight_decay = *o.weight_decay});
}

optim::LrFactor make_schedule(const TrainerOptions& o) {
  const int64_t warmup = *o.warmup_steps;
  if (o.schedule == Schedule::cosine) return optim::cosine_lr(o.total_steps, warmup);
  const int64_t rest = o.total_steps - warmup;
  const optim::LrFactor after =
      o.schedule == Schedule::step
          ? optim::step_lr(std::max<int64_t>(1, (rest + kStepParts - 1) / kStepParts), kStepGamma)
          : optim::constant_lr();
  return [after, warmup](int64_t step) {
    return step < warmup ? static_cast<double>(step) / static_cast<double>(warmup)
                         : after(step - warmup);
  };
}

std::optional<DType> autocast_dtype(Precision precision) {
  switch (precision) {
    case Precision::f32: return {};
    case Precision::bf16: return DType::bf16;
    case Precision::f16: return DType::f16;
  }
  return {};
}

PrecisionScope::PrecisionScope(Precision precision, const Tensor& inputs) {
  if (const auto dtype = autocast_dtype(precision))
    autocast_.emplace(amp::AutocastOptions{.device = inputs.device().type, .dtype = dtype});
}

Tensor loss_of(Loss loss, const Tensor& outputs, const Tensor& targets) {
  return loss == Loss::cross_entropy ? cross_entropy(outputs, targets) : mse_loss(outputs, targets);
}

int64_t count_correct(const Tensor& outputs, const Tensor& targets) {
  const Tensor logits = contiguous(to(outputs.detach().to(Device{}), DType::f32));
  const int64_t classes = logits.size(1);
  const auto* row = logits.data_as<float>();
  const Tensor wanted = contiguous(targets.to(Device{}));
  const auto* target = wanted.data_as<int64_t>();
  int64_t correct = 0;
  for (int64_t i = 0; i < logits.size(0); ++i, row += classes)
    correct += std::max_element(row, row + classes) - row == target[i] ? 1 : 0;
  return correct;
}

}  // namespace epilogue::train
