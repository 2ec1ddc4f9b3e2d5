// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/philox.h"
#include "core/element.h"
#include "epilogue/autograd.h"

namespace epilogue {
namespace {

// A fixed weight in [0.5, 1.5) for the i-th element of the k-th output: no two errors cancel.
double weight(size_t output, int64_t i) {
  return 0.5 + static_cast<double>(philox4x32(output, static_cast<uint64_t>(i), 7)[0]) * 0x1p-32;
}

double weighted_sum(const std::vector<Tensor>& outputs) {
  double total = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const std::vector<double> values = outputs[k].to_vector();
    for (size_t i = 0; i < values.size(); ++i)
      total += weight(k, static_cast<int64_t>(i)) * values[i];
  }
  return total;
}

}  // namespace

GradcheckResult gradcheck(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                          std::span<const Tensor> inputs, GradcheckOptions options) {
  if (!f) throw Error("[gradcheck] expected a function, got an empty one");
  const std::vector<Tensor> outputs = f(inputs);
  std::vector<Tensor> weights;
  for (size_t k = 0; k < outputs.size(); ++k) {
    weights.push_back(empty(outputs[k].sizes(), outputs[k].dtype()));
    for (int64_t i = 0; i < outputs[k].numel(); ++i)
      store_element(outputs[k].dtype(), weights[k].data(), i, weight(k, i));
  }
  std::vector<Tensor> checked;
  for (const Tensor& t : inputs) {
    if (!t.defined() || !t.requires_grad()) continue;
    if (t.dtype() != DType::f64)
      throw Error("[gradcheck] expected inputs of f64, got " + to_string(t));
    checked.push_back(t);
  }
  const std::vector<Tensor> analytic = grad(outputs, checked, weights);

  const NoGrad no_grad;
  GradcheckResult result;
  double worst = 0;
  for (size_t k = 0; k < checked.size(); ++k) {
    const std::vector<double> gradient =
        analytic[k].defined() ? analytic[k].to_vector()
                              : std::vector<double>(static_cast<size_t>(checked[k].numel()), 0.0);
    size_t index = 0;
    for_each_offset(checked[k].sizes(), checked[k].strides(), [&](int64_t offset) {
      double& x = static_cast<double*>(checked[k].data())[offset];
      const double x0 = x;
      x = x0 + options.step;
      const double up = weighted_sum(f(inputs));
      x = x0 - options.step;
      const double down = weighted_sum(f(inputs));
      x = x0;
      const double numeric = (up - down) / (2 * options.step);
      const double error = std::abs(numeric - gradient[index]);
      const double allowed = options.absolute + options.relative * std::abs(numeric);
      if (!(error <= allowed) && (result.ok || error > worst)) {
        worst = error;
        result.ok = false;
        result.message = "input " + std::to_string(k) + " element " + std::to_string(index) +
                         ": analytic " + std::to_string(gradient[index]) + ", numeric " +
                         std::to_string(numeric);
      }
      ++index;
    });
  }
  return result;
}

}  // namespace epilogue
