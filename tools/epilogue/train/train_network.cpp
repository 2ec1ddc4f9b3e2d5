// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_network.h"

#include <algorithm>

#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/compile_step.h"
#include "epilogue/ops.h"
#include "tools/epilogue/memory_limit.h"

namespace epilogue::tool {
namespace {

using train::Task;

constexpr double kSgdMomentum = 0.9;
constexpr double kStepGamma = 0.1;
constexpr int64_t kStepParts = 3;

// Of the weights and their gradients, at least, in either kind of network.
void require_network_memory(const TrainRun& run, int64_t inputs) {
  const auto hidden = static_cast<double>(run.hidden);
  const double first = static_cast<double>(inputs) * hidden / 2;
  const double others = static_cast<double>(run.layers - 1) * hidden * hidden;
  require_memory("--hidden, --layers", 2 * (first + others), DType::f32);
}

void add_dropout(nn::Sequential& network, double p) {
  if (p > 0) network.emplace<nn::Dropout>(p);
}

}  // namespace

std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs) {
  require_network_memory(run, inputs);
  auto network = std::make_shared<nn::Sequential>();
  int64_t width = inputs;
  if (run.arch == "mlp") {
    for (int64_t i = 0; i < run.layers; ++i) {
      network->emplace<nn::Linear>(width, run.hidden);
      network->emplace<nn::GELU>(Gelu::tanh);
      add_dropout(*network, run.dropout);
      width = run.hidden;
    }
  } else {
    width = std::max<int64_t>(1, run.hidden / 2);
    network->emplace<nn::Linear>(inputs, width);
    for (int64_t i = 0; i < run.layers; ++i)
      network->emplace<nn::Block>(width, nn::Norm::rms,
                                  std::make_shared<nn::GatedMLP>(width, run.hidden));
    network->emplace<nn::RMSNorm>(Dims{width});
    add_dropout(*network, run.dropout);
  }
  network->emplace<nn::Linear>(width, outputs);
  return network;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainRun& run, std::vector<Tensor> params) {
  if (run.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(
        std::move(params), optim::AdamWOptions{.lr = run.lr, .weight_decay = run.weight_decay});
  if (run.optimizer == "adam")
    return std::make_unique<optim::Adam>(
        std::move(params), optim::AdamOptions{.lr = run.lr, .weight_decay = run.weight_decay});
  return std::make_unique<optim::SGD>(
      std::move(params),
      optim::SGDOptions{.lr = run.lr, .momentum = kSgdMomentum, .weight_decay = run.weight_decay});
}

optim::LrFactor make_schedule(const TrainRun& run, int64_t total_steps) {
  if (run.schedule == "cosine") return optim::cosine_lr(total_steps, run.warmup);
  const int64_t rest = total_steps - run.warmup;
  const optim::LrFactor after =
      run.schedule == "step"
          ? optim::step_lr(std::max<int64_t>(1, (rest + kStepParts - 1) / kStepParts), kStepGamma)
          : optim::constant_lr();
  return [after, warmup = run.warmup](int64_t step) {
    return step < warmup ? static_cast<double>(step) / static_cast<double>(warmup)
                         : after(step - warmup);
  };
}

std::optional<DType> amp_dtype(const TrainRun& run) {
  if (run.amp == "none") return {};
  return parse_dtype(run.amp);
}

Tensor loss_of(Task task, const Tensor& outputs, const Tensor& targets) {
  return task == Task::classification ? cross_entropy(outputs, targets)
                                      : mse_loss(outputs, targets);
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

namespace {

// The run's autocast on the inputs' device; none where it asks for none.
class RunAutocast {
 public:
  RunAutocast(const std::optional<DType>& dtype, const Tensor& inputs) {
    if (dtype)
      autocast_.emplace(amp::AutocastOptions{.device = inputs.device().type, .dtype = dtype});
  }

 private:
  std::optional<amp::Autocast> autocast_;
};

// Forward, loss and backward as one plan. How many answers were right is not among its results.
// `plan` is the plan's name, written where it is measured at the first call: all calls take it,
// also those of fewer examples, so that a run that resumes by it ends with the same bits.
GradientFunction compiled_gradients(const TrainRun& run, Task task, const nn::Module& network,
                                    const std::shared_ptr<std::string>& plan) {
  const auto loss = [&network, task, dtype = amp_dtype(run)](std::span<const Tensor> in) {
    const RunAutocast autocast(dtype, in[0]);
    return mul(loss_of(task, network(in[0]), in[1]), in[2]);
  };
  std::optional<CompiledStep> step;
  const bool measures = run.tune == "measure";
  return [=](const train::Examples& part, double weight) mutable {
    const Tensor in[] = {part.inputs, part.targets,
                         full({}, weight, DType::f32, part.inputs.device())};
    if (!step && measures && plan->empty()) {
      CompiledStep trial = compile_step(loss, {.tune = Tune::measure});
      trial.prepare(in);
      *plan = trial.choice();
    }
    if (!step) step = compile_step(loss, {.choice = *plan});
    return MicroResult{(*step)(in).item() / weight, {}};
  };
}

}  // namespace

GradientFunction make_gradients(const TrainRun& run, Task task, const nn::Module& network,
                                const std::shared_ptr<std::string>& plan) {
  if (run.mode == "compile") return compiled_gradients(run, task, network, plan);
  return [&network, task, dtype = amp_dtype(run)](const train::Examples& part, double weight) {
    MicroResult result;
    Tensor loss;
    {
      const RunAutocast autocast(dtype, part.inputs);
      const Tensor outputs = network(part.inputs);
      loss = loss_of(task, outputs, part.targets);
      const NoGrad no_grad;
      if (task == Task::classification) result.correct = count_correct(outputs, part.targets);
    }
    result.loss = loss.item();
    (weight == 1 ? loss : mul(loss, weight)).backward();
    return result;
  };
}

Tensor predict(const TrainRun& run, const nn::Module& network, const Tensor& inputs) {
  const NoGrad no_grad;
  const RunAutocast autocast(amp_dtype(run), inputs);
  return to(network(inputs), DType::f32);
}

}  // namespace epilogue::tool
