// SPDX-License-Identifier: Apache-2.0
// A trainer's network beside examples that it does not learn from.
#include <algorithm>
#include <limits>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "train/trainer_parts.h"

namespace epilogue::train {
namespace {

// Sums over examples, in double.
struct Sums {
  double loss = 0;
  double correct = 0;
  double target = 0;
  double target_squares = 0;
};

void add_outputs(Loss loss, const Tensor& outputs, const Examples& part, Sums* sums) {
  const NoGrad no_grad;
  sums->loss += loss_of(loss, outputs, part.targets).item() * static_cast<double>(part.size());
  if (loss == Loss::cross_entropy) {
    sums->correct += static_cast<double>(count_correct(outputs, part.targets));
    return;
  }
  for (const double t : part.targets.to_vector()) {
    sums->target += t;
    sums->target_squares += t * t;
  }
}

// In evaluation mode while it lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& network)
      : network_(network), was_training_(network.is_training()) {
    network_.eval();
  }
  ~EvaluationMode() { network_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::Module& network_;
  bool was_training_;
};

}  // namespace

Tensor Trainer::predict(const Tensor& inputs) const {
  const NoGrad no_grad;
  const PrecisionScope precision(options().precision, inputs);
  return to(network()(inputs), DType::f32);
}

Evaluation Trainer::evaluate(const Examples& examples, Device device, int64_t rows) {
  if (rows < 1)
    throw Error("[Trainer] expected 1 or more rows at once, got " + std::to_string(rows));
  const EvaluationMode evaluating(network());
  const Loss loss = options().loss;
  Sums sums;
  for (int64_t begin = 0; begin < examples.size(); begin += rows) {
    const Examples host = examples.rows(begin, std::min(begin + rows, examples.size())).laid_out();
    const Examples part{host.inputs.to(device), host.targets.to(device)};
    add_outputs(loss, predict(part.inputs), part, &sums);
  }
  const auto n = static_cast<double>(examples.size());
  Evaluation result{.loss = sums.loss / n};
  if (loss == Loss::cross_entropy) {
    result.accuracy = sums.correct / n;
  } else {
    const double mean = sums.target / n;
    const double variance = sums.target_squares / n - mean * mean;
    result.r2 =
        variance > 0 ? 1 - result.loss / variance : std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

}  // namespace epilogue::train
