// SPDX-License-Identifier: Apache-2.0
#include "core/element.h"
#include "epilogue/optim.h"
#include "nn/optim/options_text.h"
#include "nn/optim/param_groups.h"
#include "ops/ops.h"
#include "ops/optimizer_steps.h"
#include "ops/run_op.h"

namespace epilogue::optim {
namespace {

constexpr std::string_view kBuffer = "momentum_buffer";

void require_sgd_options(const SGDOptions& o) {
  require_not_negative("SGD", "learning rate", o.lr);
  require_not_negative("SGD", "momentum", o.momentum);
  require_not_negative("SGD", "dampening", o.dampening);
  require_not_negative("SGD", "weight_decay", o.weight_decay);
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    throw Error("[SGD] expected a momentum and zero dampening with nesterov, got momentum " +
                number_text(o.momentum) + " and dampening " + number_text(o.dampening));
}

}  // namespace

SGD::SGD(const std::vector<ParamGroup<SGDOptions>>& groups) : Optimizer("SGD", params_of(groups)) {
  options_.reserve(groups.size());
  for (const auto& group : groups) {
    require_sgd_options(group.options);
    options_.push_back(group.options);
  }
}
SGD::SGD(std::vector<Tensor> params, SGDOptions options)
    : SGD(std::vector<ParamGroup<SGDOptions>>{{std::move(params), options}}) {}

// The first step of a parameter sets its buffer: parameters that join later get a call of their
// own.
void SGD::step_group(size_t group, const Participants& with, const StepOptions& options) {
  std::vector<size_t> first;
  std::vector<size_t> later;
  for (size_t i = 0; i < with.params.size(); ++i) {
    const bool is_first = options_[group].momentum != 0 && !state(with.index[i], kBuffer).defined();
    (is_first ? first : later).push_back(i);
  }
  if (!first.empty()) step_some(group, with, first, true, options);
  if (!later.empty()) step_some(group, with, later, false, options);
}

void SGD::step_some(size_t group, const Participants& with, const std::vector<size_t>& which,
                    bool is_first, const StepOptions& step) {
  const SGDOptions& o = options_[group];
  const size_t n = which.size();
  std::vector<Tensor> in(kSgdLists * n);
  for (size_t j = 0; j < n; ++j) {
    const size_t i = which[j];
    in[kSgdParams * n + j] = with.params[i];
    in[kSgdGrads * n + j] = with.grads[i];
    if (o.momentum != 0)
      in[kSgdMomentumBuffers * n + j] = state_or_zeros(with.index[i], kBuffer, with.params[i]);
    in[kSgdCopies * n + j] = with.copies[i];
  }
  in.push_back(step.grad_scale);
  in.push_back(step.found_inf);
  const Attr attrs[] = {o.weight_decay, o.momentum, o.lr,     o.dampening,
                        o.nesterov,     o.maximize, is_first, step.clip_coefficient};
  run_op(kFusedSgd_, in, attrs);
  // A skipped first step was none: the next one must set the buffer.
  if (is_first && step.found_inf.defined() && step.found_inf.item() != 0)
    for (const size_t i : which) state(with.index[i], kBuffer) = Tensor();
}

void SGD::check_options(size_t group) const { require_sgd_options(options_[group]); }

void SGD::set_lr(size_t group, double lr) {
  require_not_negative("SGD", "learning rate", lr);
  options_[checked_group(group)].lr = lr;
}

std::vector<std::string_view> SGD::state_names() const { return {kBuffer}; }

std::map<std::string, std::string> SGD::group_options(size_t group) const {
  const SGDOptions& o = options_[group];
  return {{"lr", number_text(o.lr)},
          {"momentum", number_text(o.momentum)},
          {"dampening", number_text(o.dampening)},
          {"weight_decay", number_text(o.weight_decay)},
          {"nesterov", bool_text(o.nesterov)},
          {"maximize", bool_text(o.maximize)}};
}

void SGD::set_group_options(size_t group, const std::map<std::string, std::string>& text) {
  const SGDOptions o = {.lr = number_of(text, "lr"),
                        .momentum = number_of(text, "momentum"),
                        .dampening = number_of(text, "dampening"),
                        .weight_decay = number_of(text, "weight_decay"),
                        .nesterov = bool_of(text, "nesterov"),
                        .maximize = bool_of(text, "maximize")};
  require_sgd_options(o);
  options_[group] = o;
}

}  // namespace epilogue::optim
