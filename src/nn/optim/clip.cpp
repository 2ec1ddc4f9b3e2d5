// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "epilogue/autograd.h"
#include "epilogue/optim.h"
#include "nn/optim/options_text.h"
#include "ops/ops.h"
#include "ops/run_op.h"

namespace epilogue::optim {
namespace {

// Gradients by dtype: an op on a list takes one.
std::vector<std::vector<Tensor>> gradients_of(const std::vector<Tensor>& params) {
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& p : params) {
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& list) {
      return list[0].dtype() == grad.dtype() && list[0].device() == grad.device();
    });
    (same == lists.end() ? lists.emplace_back() : *same).push_back(grad.detach());
  }
  return lists;
}

double norm_of(std::span<const double> values, double order) {
  double sum = 0;
  for (const double v : values) {
    if (!std::isinf(order)) {
      sum += std::pow(v, order);
    } else if (std::isnan(v) || v > sum) {  // a NaN stays: nothing is above it
      sum = v;
    }
  }
  return std::isinf(order) ? sum : std::pow(sum, 1 / order);
}

double norm_of_gradients(const std::vector<std::vector<Tensor>>& lists, double order) {
  if (!(order > 0))
    throw Error("[grad_norm] expected a positive norm_type, got " + number_text(order));
  std::vector<double> norms;
  for (const std::vector<Tensor>& list : lists) {
    const Attr attrs[] = {order};
    for (const double norm : run_op(kForeachNorm, list, attrs)[0].to_vector())
      norms.push_back(norm);
  }
  return norm_of(norms, order);
}

}  // namespace

double grad_norm(const std::vector<Tensor>& params, double norm_type) {
  const NoGrad no_grad;
  return norm_of_gradients(gradients_of(params), norm_type);
}

double clip_coefficient(double norm, double max_norm) {
  if (!(max_norm >= 0))
    throw Error("[clip_coefficient] expected a max_norm >= 0, got " + number_text(max_norm));
  constexpr double kGuard = 1e-6;  // torch's, against division by 0
  const double coefficient = max_norm / (norm + kGuard);
  return coefficient > 1 ? 1 : coefficient;  // NaN stays
}

double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  const NoGrad no_grad;
  const std::vector<std::vector<Tensor>> lists = gradients_of(params);
  const double norm = norm_of_gradients(lists, norm_type);
  if (error_if_nonfinite && !std::isfinite(norm))
    throw Error("[clip_grad_norm_] expected gradients with a finite norm of order " +
                number_text(norm_type) + ", got " + number_text(norm) +
                "; to scale them anyway, leave error_if_nonfinite off");
  const Attr attrs[] = {clip_coefficient(norm, max_norm)};
  for (const std::vector<Tensor>& list : lists) run_op(kForeachMul_, list, attrs);
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
  if (!(clip_value >= 0))
    throw Error("[clip_grad_value_] expected a value >= 0, got " + number_text(clip_value));
  const NoGrad no_grad;
  for (const std::vector<Tensor>& list : gradients_of(params)) {
    const Attr low[] = {-clip_value};
    const Attr high[] = {clip_value};
    run_op(kForeachClampMin_, list, low);
    run_op(kForeachClampMax_, list, high);
  }
}

}  // namespace epilogue::optim
