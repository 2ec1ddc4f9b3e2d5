// SPDX-License-Identifier: Apache-2.0
#include "train/gradients.h"

#include <span>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "train/trainer_parts.h"

namespace epilogue::train {

Gradients::Gradients(nn::Module& network, const TrainerOptions& options)
    : network_(network), options_(options), plan_(options.plan) {}

MicroResult Gradients::add(const Examples& part, double weight,
                           const std::function<void()>& update) {
  if (options_.mode == Mode::compile) return add_compiled(part, weight, update);
  MicroResult result = add_eager(part, weight);
  if (update) update();
  return result;
}

MicroResult Gradients::add_eager(const Examples& part, double weight) const {
  MicroResult result;
  Tensor loss;
  {
    const PrecisionScope precision(options_.precision, part.inputs);
    const Tensor outputs = network_(part.inputs);
    loss = loss_of(options_.loss, outputs, part.targets);
    if (options_.reads_loss && options_.loss == Loss::cross_entropy) {
      const NoGrad no_grad;
      result.correct = count_correct(outputs, part.targets);
    }
  }
  if (options_.reads_loss) {
    result.loss = loss.item();
  } else {
    result.unread_loss = loss;
  }
  (weight == 1 ? loss : mul(loss, weight)).backward();
  return result;
}

// All calls take the plan of the first, also those of fewer examples, so that a run that resumes by
// its name ends with the same bits.
CompiledStep& Gradients::compiled(std::span<const Tensor> inputs) {
  if (step_) return *step_;
  const auto loss = [&network = network_, kind = options_.loss,
                     dtype = options_.precision](std::span<const Tensor> in) {
    const PrecisionScope precision(dtype, in[0]);
    return mul(loss_of(kind, network(in[0]), in[1]), in[2]);
  };
  if (options_.tune == Tune::measure && plan_.empty()) {
    CompiledStep trial = compile_step(loss, {.tune = Tune::measure});
    trial.prepare(inputs);
    plan_ = trial.choice();
  }
  return step_.emplace(compile_step(loss, {.choice = plan_}));
}

// Forward, loss and backward as one plan. How many answers were right is not among its results.
MicroResult Gradients::add_compiled(const Examples& part, double weight,
                                    const std::function<void()>& update) {
  const Tensor in[] = {part.inputs, part.targets,
                       full({}, weight, DType::f32, part.inputs.device())};
  CompiledStep& step = compiled(in);
  if (options_.reads_loss) return {.loss = step(in).item() / weight};
  return {.unread_loss = div(update ? step.train(in, update) : step(in), weight)};
}

}  // namespace epilogue::train
