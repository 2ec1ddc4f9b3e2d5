// SPDX-License-Identifier: Apache-2.0
#include "train/gradients.h"

#include <span>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "train/trainer_parts.h"

namespace epilogue::train {

Gradients::Gradients(nn::Module& network, const TrainerOptions& options)
    : network_(network), options_(options), plan_(options.plan) {}

MicroResult Gradients::add(const Examples& part, double weight, const Update& update) {
  if (options_.mode == Mode::compile) return add_compiled(part, weight, update);
  MicroResult result = add_eager(part, weight);
  if (update) update(result);
  return result;
}

MicroResult Gradients::add_eager(const Examples& part, double weight) const {
  MicroResult result;
  Tensor loss;
  {
    const PrecisionScope precision(options_.precision, part.inputs);
    const Tensor outputs = network_(part.inputs);
    loss = loss_of(options_.loss, outputs, part.targets);
    if (counts()) {
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
  const CompiledStep::Function function = [&network = network_, kind = options_.loss,
                                           dtype = options_.precision,
                                           counts = counts()](std::span<const Tensor> in) {
    const PrecisionScope precision(dtype, in[0]);
    const Tensor outputs = network(in[0]);
    std::vector<Tensor> results = {mul(loss_of(kind, outputs, in[1]), in[2])};
    if (counts) results.push_back(outputs);
    return results;
  };
  if (options_.tune == Tune::measure && plan_.empty()) {
    CompiledStep trial(function, {.tune = Tune::measure});
    trial.prepare(inputs);
    plan_ = trial.choice();
  }
  return step_.emplace(function, CompileOptions{.choice = plan_});
}

// Forward, loss and backward as one plan.
MicroResult Gradients::add_compiled(const Examples& part, double weight, const Update& update) {
  const Tensor in[] = {part.inputs, part.targets,
                       full({}, weight, DType::f32, part.inputs.device())};
  CompiledStep& step = compiled(in);
  MicroResult result;
  const auto read = [&](std::span<const Tensor> results) {
    if (!options_.reads_loss) {
      result.unread_loss = div(results[0], weight);
      return;
    }
    result.loss = results[0].item() / weight;
    if (counts()) result.correct = count_correct(results[1], part.targets);
  };
  if (!update) {
    read(step.results(in));
  } else {
    step.results(in, [&](std::span<const Tensor> results) {
      read(results);
      update(result);
    });
  }
  return result;
}

}  // namespace epilogue::train
