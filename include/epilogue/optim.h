// SPDX-License-Identifier: Apache-2.0
// Optimizers, learning-rate schedules, gradient clipping and accumulation: torch.optim's formulas,
// order of operations, defaults and state names.
//
//   optim::AdamW optimizer(model.parameters(), {.lr = 3e-4});
//   optim::LrScheduler schedule(optimizer, optim::cosine_lr(1000, 100));
//   for (...) {
//     optimizer.zero_grad();
//     mse_loss(model(x), y).backward();
//     optim::clip_grad_norm_(optimizer.parameters(), 1.0);
//     optimizer.step();
//     schedule.step();
//   }
//
// A step is one kernel over all parameters of a group (aten::_fused_adamw_, _fused_adam_,
// _fused_sgd_). Not thread-safe: one thread works with an optimizer and its parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue::optim {

// State that a checkpoint must hold to go on as if it had not stopped: tensors by name, and
// everything else as text (numbers so that they read back exactly).
struct StateDict {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;
};

// A step's treatment of gradients on their way into the update; .grad() itself is only read.
struct StepOptions {
  // 0-dim f32: gradients are multiplied by float(1 / grad_scale). Undefined: 1.
  Tensor grad_scale = {};
  // 0-dim f32: where it is not 0 the step changes nothing and does not count. Undefined: 0.
  Tensor found_inf = {};
  // Gradients are multiplied by this after grad_scale: clip_coefficient()'s.
  double clip_coefficient = 1;
};

// Members that take a group throw Error where there is no such group.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // "AdamW".
  const std::string& class_name() const { return class_name_; }
  // All parameters, group by group.
  std::vector<Tensor> parameters() const;
  size_t num_groups() const { return groups_.size(); }
  const std::vector<Tensor>& group(size_t i) const { return groups_[checked_group(i)]; }

  virtual double lr(size_t group = 0) const = 0;
  // Throw Error unless `lr` is finite and not negative.
  virtual void set_lr(size_t group, double lr) = 0;
  void set_lr(double lr);  // of all groups

  // Updates every parameter that has a gradient; those without are skipped whole (no decay, no
  // state). The range "Optimizer.step#AdamW.step". Throws Error, changing nothing, where options
  // were set to what the constructor refuses, and where a parameter's dtype is no longer that of
  // its state (Module::to(DType) after a step).
  void step(const StepOptions& options = {});
  // Drops the gradients of all parameters, or fills them with zeros. The range
  // "Optimizer.zero_grad#AdamW.zero_grad".
  void zero_grad(bool set_to_none = true);

  // From now on every step also writes a rounded copy of each f32 parameter, in the same pass, and
  // autocast to that dtype takes it instead of casting the weight again. Throws Error on dtypes
  // other than bf16 and f16, and when called twice.
  void keep_low_precision_copies(DType dtype);
  // The copy of a parameter; undefined where there is none.
  Tensor low_precision_copy(const Tensor& parameter) const;

  // Tensors "state.<i>.<name>", i counting the parameters over all groups, name as in PyTorch
  // ("step", "exp_avg", "momentum_buffer", ...); metadata "optimizer" and
  // "param_groups.<g>.<option>". The tensors share memory with the optimizer.
  StateDict state_dict() const;
  // Copies the state in. Throws Error, changing nothing, when it is another class's, has other
  // groups or shapes, holds an entry twice, lacks one, or counts steps in other than whole numbers.
  // A parameter without any entry is one before its first step.
  void load_state_dict(const StateDict& state);

 protected:
  Optimizer(std::string_view class_name, std::vector<std::vector<Tensor>> groups);

  // Parameters of one group that take part in a step, and their gradients.
  struct Participants {
    std::vector<size_t> index;  // over all groups
    std::vector<Tensor> params;
    std::vector<Tensor> grads;
    std::vector<Tensor> copies;  // undefined where none is kept
  };
  size_t checked_group(size_t i) const;  // `i`, or Error
  virtual void step_group(size_t group, const Participants& with, const StepOptions& options) = 0;
  // Throws Error where they are not what the constructor takes.
  virtual void check_options(size_t group) const = 0;
  // The options of a group as text, by name; and back.
  virtual std::map<std::string, std::string> group_options(size_t group) const = 0;
  virtual void set_group_options(size_t group, const std::map<std::string, std::string>& text) = 0;
  // The state tensors that a parameter may have.
  virtual std::vector<std::string_view> state_names() const = 0;
  // Whether a parameter that has state has this one, with its group's options.
  virtual bool needs_state(std::string_view name,
                           const std::map<std::string, std::string>& options) const;

  // State of parameter i; undefined before its first step.
  Tensor& state(size_t i, std::string_view name);
  // The same, made of zeros where it was undefined: like the parameter, or 0-dim f32 ("step").
  Tensor& state_or_zeros(size_t i, std::string_view name, const Tensor& param);

 private:
  using StateOfOne = std::map<std::string, Tensor, std::less<>>;
  Participants participants(size_t group, size_t first_index) const;
  void require_states_fit() const;
  void require_whole(const std::vector<StateOfOne>& states,
                     const std::vector<std::map<std::string, std::string>>& options) const;

  std::string class_name_;
  std::vector<std::vector<Tensor>> groups_;
  std::vector<StateOfOne> state_;  // by parameter
  std::vector<Tensor> copies_;     // by parameter; may be empty
};

// Parameters with options of their own.
template <class Options>
struct ParamGroup {
  std::vector<Tensor> params;
  Options options;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

// g += weight_decay p; b = momentum b + (1 - dampening) g, the first time b = g; p -= lr b, or with
// nesterov lr (g + momentum b). Throws Error on options that are negative or not finite, and on
// nesterov without momentum or with dampening.
class SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> params, SGDOptions options = {});
  explicit SGD(std::initializer_list<Tensor> params, SGDOptions options = {})
      : SGD(std::vector<Tensor>(params), options) {}
  explicit SGD(const std::vector<ParamGroup<SGDOptions>>& groups);

  SGDOptions& options(size_t group = 0) { return options_[checked_group(group)]; }
  double lr(size_t group = 0) const override { return options_[checked_group(group)].lr; }
  using Optimizer::set_lr;
  void set_lr(size_t group, double lr) override;

 protected:
  void step_group(size_t group, const Participants& with, const StepOptions& options) override;
  void check_options(size_t group) const override;
  std::map<std::string, std::string> group_options(size_t group) const override;
  void set_group_options(size_t group, const std::map<std::string, std::string>& text) override;
  std::vector<std::string_view> state_names() const override;

 private:
  void step_some(size_t group, const Participants& with, const std::vector<size_t>& which,
                 bool is_first, const StepOptions& options);

  std::vector<SGDOptions> options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

// m = lerp(m, g, 1 - beta1); v = beta2 v + (1 - beta2) g^2;
// p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps), v its greatest so far with
// amsgrad. Weight decay adds weight_decay p to g. Throws Error on options that are negative or not
// finite, and on betas outside [0, 1).
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> params, AdamOptions options = {});
  explicit Adam(std::initializer_list<Tensor> params, AdamOptions options = {})
      : Adam(std::vector<Tensor>(params), options) {}
  explicit Adam(const std::vector<ParamGroup<AdamOptions>>& groups);

  AdamOptions& options(size_t group = 0) { return options_[checked_group(group)]; }
  double lr(size_t group = 0) const override { return options_[checked_group(group)].lr; }
  using Optimizer::set_lr;
  void set_lr(size_t group, double lr) override;

 protected:
  Adam(std::string_view class_name, bool decoupled,
       const std::vector<ParamGroup<AdamOptions>>& groups);

  void step_group(size_t group, const Participants& with, const StepOptions& options) override;
  void check_options(size_t group) const override;
  bool needs_state(std::string_view name,
                   const std::map<std::string, std::string>& options) const override;
  std::map<std::string, std::string> group_options(size_t group) const override;
  void set_group_options(size_t group, const std::map<std::string, std::string>& text) override;
  std::vector<std::string_view> state_names() const override;

 private:
  bool decoupled_;
  std::vector<AdamOptions> options_;
};

// Adam with decoupled weight decay: p *= 1 - lr weight_decay before the update.
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> params, AdamWOptions options = {});
  explicit AdamW(std::initializer_list<Tensor> params, AdamWOptions options = {})
      : AdamW(std::vector<Tensor>(params), options) {}
  explicit AdamW(const std::vector<ParamGroup<AdamWOptions>>& groups);
};

// The factor of the learning rate of step t (from 0).
using LrFactor = std::function<double(int64_t step)>;
LrFactor constant_lr();
// gamma^(t / step_size), rounded down: torch's StepLR. Throws Error on step_size < 1 and on a gamma
// that is negative or not finite.
LrFactor step_lr(int64_t step_size, double gamma = 0.1);
// t / warmup_steps at first, then min_factor + (1 - min_factor) (1 + cos(pi p)) / 2 with p from 0
// to 1 at total_steps: transformers' get_cosine_schedule_with_warmup; without warm-up torch's
// CosineAnnealingLR. It stays at min_factor afterwards. Throws Error unless
// 0 <= warmup_steps < total_steps and min_factor is finite and not negative.
LrFactor cosine_lr(int64_t total_steps, int64_t warmup_steps = 0, double min_factor = 0);

// Sets each group's learning rate to the one that it had at construction times the factor. Call
// step() after the optimizer's. The optimizer must outlive it. Throws Error, changing nothing,
// where the factor gives a rate that is negative or not finite.
class LrScheduler {
 public:
  LrScheduler(Optimizer& optimizer, LrFactor factor);  // throws Error on an empty function
  void step();
  int64_t last_step() const { return last_step_; }

  // Metadata only: "last_step" and "base_lr.<g>".
  StateDict state_dict() const;
  // Throws Error, changing nothing, where an entry is missing, not a number, negative, or of
  // another number of groups.
  void load_state_dict(const StateDict& state);

 private:
  void apply(int64_t step, std::vector<double> base_lrs);

  Optimizer& optimizer_;
  LrFactor factor_;
  std::vector<double> base_lrs_;
  int64_t last_step_ = 0;
};

// The norm of all gradients taken as one vector: norm_type 2, 1, another positive number, or
// infinity (the largest magnitude). Undefined gradients do not count; without any it is 0.
double grad_norm(const std::vector<Tensor>& params, double norm_type = 2);
// min(1, max_norm / (norm + 1e-6)); NaN where the norm is. Throws Error unless max_norm >= 0.
double clip_coefficient(double norm, double max_norm);
// Multiplies every gradient by clip_coefficient(), also where it is 1, and returns the norm before.
// Throws Error, changing nothing, unless max_norm >= 0; infinity is fine.
// With error_if_nonfinite an infinite or NaN norm throws Error and changes nothing; without it a
// NaN makes every gradient NaN, as in PyTorch.
double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);
// Clamps every gradient to [-clip_value, clip_value]; NaN stays. Throws Error unless
// clip_value >= 0.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

// Rows [begin, end) of a batch, and their share of it. With the mean losses of the parts times
// their shares, accumulated gradients are those of the mean loss of the whole batch, also where the
// last part is short.
struct MicroBatch {
  int64_t begin;
  int64_t end;
  double share;
};
// `rows` in `count` parts of ceil(rows / count) rows, the last one shorter (fewer parts where they
// run out). Throws Error on count < 1 and on rows < 0.
std::vector<MicroBatch> micro_batches(int64_t rows, int64_t count);

}  // namespace epilogue::optim

#pragma GCC visibility pop
