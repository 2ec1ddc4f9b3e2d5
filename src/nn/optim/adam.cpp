// SPDX-License-Identifier: Apache-2.0
#include "epilogue/optim.h"
#include "nn/optim/options_text.h"
#include "nn/optim/param_groups.h"
#include "ops/ops.h"
#include "ops/optimizer_steps.h"
#include "ops/run_op.h"

namespace epilogue::optim {
namespace {

constexpr std::string_view kMaxExpAvgSq = "max_exp_avg_sq";  // with amsgrad alone

void require_adam_options(std::string_view name, const AdamOptions& o) {
  require_not_negative(name, "learning rate", o.lr);
  require_not_negative(name, "eps", o.eps);
  require_option(o.beta1 >= 0 && o.beta1 < 1, name, "beta1 in [0, 1)", o.beta1);
  require_option(o.beta2 >= 0 && o.beta2 < 1, name, "beta2 in [0, 1)", o.beta2);
  require_not_negative(name, "weight_decay", o.weight_decay);
}

std::vector<ParamGroup<AdamOptions>> as_adam(const std::vector<ParamGroup<AdamWOptions>>& groups) {
  std::vector<ParamGroup<AdamOptions>> result;
  result.reserve(groups.size());
  for (const auto& [params, o] : groups)
    result.push_back({params,
                      {.lr = o.lr,
                       .beta1 = o.beta1,
                       .beta2 = o.beta2,
                       .eps = o.eps,
                       .weight_decay = o.weight_decay,
                       .amsgrad = o.amsgrad,
                       .maximize = o.maximize}});
  return result;
}

}  // namespace

Adam::Adam(std::string_view class_name, bool decoupled,
           const std::vector<ParamGroup<AdamOptions>>& groups)
    : Optimizer(class_name, params_of(groups)), decoupled_(decoupled) {
  options_.reserve(groups.size());
  for (const auto& group : groups) {
    require_adam_options(class_name, group.options);
    options_.push_back(group.options);
  }
}
Adam::Adam(const std::vector<ParamGroup<AdamOptions>>& groups) : Adam("Adam", false, groups) {}
Adam::Adam(std::vector<Tensor> params, AdamOptions options)
    : Adam(std::vector<ParamGroup<AdamOptions>>{{std::move(params), options}}) {}

AdamW::AdamW(const std::vector<ParamGroup<AdamWOptions>>& groups)
    : Adam("AdamW", true, as_adam(groups)) {}
AdamW::AdamW(std::vector<Tensor> params, AdamWOptions options)
    : AdamW(std::vector<ParamGroup<AdamWOptions>>{{std::move(params), options}}) {}

void Adam::step_group(size_t group, const Participants& with, const StepOptions& step) {
  const AdamOptions& o = options_[group];
  const size_t n = with.params.size();
  std::vector<Tensor> in(kAdamLists * n);
  for (size_t i = 0; i < n; ++i) {
    const Tensor& param = with.params[i];
    const size_t index = with.index[i];
    in[kAdamParams * n + i] = param;
    in[kAdamGrads * n + i] = with.grads[i];
    in[kAdamExpAvgs * n + i] = state_or_zeros(index, "exp_avg", param);
    in[kAdamExpAvgSqs * n + i] = state_or_zeros(index, "exp_avg_sq", param);
    if (o.amsgrad) in[kAdamMaxExpAvgSqs * n + i] = state_or_zeros(index, kMaxExpAvgSq, param);
    in[kAdamSteps * n + i] = state_or_zeros(index, "step", param);
    in[kAdamCopies * n + i] = with.copies[i];
  }
  in.push_back(step.grad_scale);
  in.push_back(step.found_inf);
  const Attr attrs[] = {o.lr,  o.beta1,   o.beta2,    o.weight_decay,
                        o.eps, o.amsgrad, o.maximize, step.clip_coefficient};
  run_op(decoupled_ ? kFusedAdamW_ : kFusedAdam_, in, attrs);
}

void Adam::check_options(size_t group) const {
  require_adam_options(class_name(), options_[group]);
}

void Adam::set_lr(size_t group, double lr) {
  require_not_negative(class_name(), "learning rate", lr);
  options_[checked_group(group)].lr = lr;
}

bool Adam::needs_state(std::string_view name,
                       const std::map<std::string, std::string>& options) const {
  return name != kMaxExpAvgSq || bool_of(options, "amsgrad");
}

std::vector<std::string_view> Adam::state_names() const {
  return {"step", "exp_avg", "exp_avg_sq", kMaxExpAvgSq};
}

std::map<std::string, std::string> Adam::group_options(size_t group) const {
  const AdamOptions& o = options_[group];
  return {{"lr", number_text(o.lr)},
          {"beta1", number_text(o.beta1)},
          {"beta2", number_text(o.beta2)},
          {"eps", number_text(o.eps)},
          {"weight_decay", number_text(o.weight_decay)},
          {"amsgrad", bool_text(o.amsgrad)},
          {"maximize", bool_text(o.maximize)}};
}

void Adam::set_group_options(size_t group, const std::map<std::string, std::string>& text) {
  const AdamOptions o = {.lr = number_of(text, "lr"),
                         .beta1 = number_of(text, "beta1"),
                         .beta2 = number_of(text, "beta2"),
                         .eps = number_of(text, "eps"),
                         .weight_decay = number_of(text, "weight_decay"),
                         .amsgrad = bool_of(text, "amsgrad"),
                         .maximize = bool_of(text, "maximize")};
  require_adam_options(class_name(), o);
  options_[group] = o;
}

}  // namespace epilogue::optim
