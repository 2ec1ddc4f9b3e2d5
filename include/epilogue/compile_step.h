// SPDX-License-Identifier: Apache-2.0
// compile_step(): forward, loss and backward of a training step as one plan.
//
//   nn::GatedMLP mlp(768, 3072);
//   CompiledStep step = compile_step(mlp, [](const Tensor& y, const Tensor& t) {
//     return mse_loss(y, t);
//   });
//   for (...) {
//     Tensor loss = step.train(x, target, [&] { optimizer.step(); });
//   }
//
// or, with gradients that stay, to add up those of several micro-batches:
//
//   for (...) {
//     Tensor loss = step(x, target);   // adds to each parameter's .grad, as backward() does
//     optimizer.step();
//     optimizer.zero_grad();
//   }
//
// Of a mean loss, micro-batches of unequal sizes count by their share of the rows:
//
//   for (const optim::MicroBatch& part : optim::micro_batches(x.size(0), 4))
//     step(rows_of(x, part), rows_of(target, part), part.share);
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/compile.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Memory that a step holds between its kernels, at most, by what it saves for its backward pass.
struct StepMemory {
  int64_t planned_bytes = 0;  // as compiled
  int64_t automatic_bytes = 0;
  int64_t save_bytes = 0;
  int64_t recompute_bytes = 0;
};

// A compiled training step. A call from `update` or a receiver is another one meanwhile, too. Not
// to run beside other steps or backward() of the same parameters.
//
// The function must be pure, as compile() says, and its loss one element. The number of rows is not
// free: each gets a plan. Whether a tensor requires a gradient is part of what a plan holds for.
class CompiledStep : public CompiledBase {
 public:
  // The loss of a batch.
  using Loss = std::function<Tensor(std::span<const Tensor> inputs)>;
  // Gets the leaves (parameters, and inputs that require a gradient) and their gradients.
  using Receiver =
      std::function<void(std::span<const Tensor> leaves, std::span<const Tensor> gradients)>;

  // The loss of a batch, and what else the forward pass is to give: no gradient flows from that.
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
  using Update = std::function<void(std::span<const Tensor> results)>;

  // Throws Error on an empty loss, a name in `skip` that is no pass, max_plans of 0, and where
  // linears are to be collapsed: their weights change.
  explicit CompiledStep(Loss loss, CompileOptions options = {});
  explicit CompiledStep(Function function, CompileOptions options = {});

  // Runs the step and gives the loss, outside the autograd graph. Gradients are added to the
  // leaves' .grad, as Tensor::backward() does: calls accumulate until it is dropped. Throws Error
  // as Compiled does; where an input is no leaf; where nothing requires a gradient.
  //
  // `loss_weight` multiplies the loss, what is returned and the gradients. With each micro-batch's
  // share of the rows as its weight, accumulated gradients are those of the mean loss of the whole
  // batch, and the results add up to that loss. One plan serves all weights but 1, which has its
  // own. Throws Error where it is not finite.
  Tensor operator()(std::span<const Tensor> inputs, double loss_weight = 1);
  Tensor operator()(const Tensor& x, const Tensor& target, double loss_weight = 1);
  // The same, but the gradients go to `receiver` and no .grad is touched. Those of a plan that
  // train() made are copies. Throws Error on an empty receiver too.
  Tensor run(std::span<const Tensor> inputs, const Receiver& receiver, double loss_weight = 1);

  // Runs the step, then `update` (clipping, an optimizer's step) with each leaf's gradient as its
  // .grad, added to what earlier calls left there. Afterwards .grad is undefined; nothing is to be
  // zeroed. Gradients lie in the plan's memory, where they share places with what the step needed
  // before them, and the next call overwrites them: what `update` wants to keep it must clone.
  // Throws Error as operator(), on an empty update, and what `update` throws.
  Tensor train(std::span<const Tensor> inputs, const std::function<void()>& update,
               double loss_weight = 1);
  Tensor train(const Tensor& x, const Tensor& target, const std::function<void()>& update,
               double loss_weight = 1);

  // As train() where there is an update, which gets what the function gave; else as operator().
  // All that the function gave; the loss is the first.
  std::vector<Tensor> results(std::span<const Tensor> inputs, const Update& update = {},
                              double loss_weight = 1);

  // Makes the plan for such inputs (and for weights other than 1, if this is one) without running
  // it.
  void prepare(std::span<const Tensor> inputs, double loss_weight = 1);

  // Of the plan that ran (or was made) last.
  StepMemory memory() const;

 private:
  class Impl;
  Impl& impl() const;
};

// The plans that a step may have, by their names: what CompileOptions::choice takes.
std::vector<std::string> compiled_step_plan_names();

inline CompiledStep compile_step(CompiledStep::Loss loss, CompileOptions options = {}) {
  return CompiledStep(std::move(loss), std::move(options));
}

// A step of two inputs, x and target: loss(model(x), target). The model must outlive the result,
// and be no temporary.
template <class Model, class LossOf>
requires std::is_invocable_r_v<Tensor, const Model&, const Tensor&> CompiledStep
compile_step(const Model&& model, LossOf loss, CompileOptions options = {})
= delete;
template <class Model, class LossOf>
requires std::is_invocable_r_v<Tensor, const Model&, const Tensor&> &&
    std::is_invocable_r_v<Tensor, const LossOf&, const Tensor&, const Tensor&>
        CompiledStep compile_step(const Model& model, LossOf loss, CompileOptions options = {}) {
  return CompiledStep(
      [&model, loss = std::move(loss)](std::span<const Tensor> in) {
        if (in.size() != 2)
          throw Error("[compile_step] expected x and target, got " + std::to_string(in.size()) +
                      " inputs");
        return Tensor(loss(model(in[0]), in[1]));
      },
      std::move(options));
}

}  // namespace epilogue

#pragma GCC visibility pop
