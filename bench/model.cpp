// SPDX-License-Identifier: Apache-2.0
#include "bench/model.h"

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "nn/activation.h"

namespace epilogue::bench {
namespace {

// On the host, whatever device it comes from.
Tensor exact(const Tensor& t) { return t.defined() ? to(t.to(Device{}), DType::f64) : Tensor(); }

Tensor exact_rows_of(const Tensor& x, std::span<const int64_t> row_numbers) {
  std::vector<Tensor> rows;
  for (const int64_t row : row_numbers) rows.push_back(exact(slice(x, 0, row, row + 1)));
  return cat(rows);
}

Tensor exact_stage(const Stage& stage, const Tensor& x, std::span<const int64_t> row_numbers) {
  Tensor v = linear(x, exact(stage.weight), exact(stage.bias));
  if (stage.activation) v = nn::activate(v, *stage.activation);
  if (stage.up.defined()) v = mul(v, linear(x, exact(stage.up), exact(stage.up_bias)));
  if (stage.addend.defined()) v = add(v, exact_rows_of(stage.addend, row_numbers));
  return v;
}

}  // namespace

double product_flops(const Model& model, int64_t rows) {
  double flops = 0;
  for (const Stage& stage : model.stages) {
    const int64_t weights = stage.weight.numel() + (stage.up.defined() ? stage.up.numel() : 0);
    flops += 2.0 * static_cast<double>(rows) * static_cast<double>(weights);
  }
  return flops;
}

Tensor exact_rows(const Model& model, const Tensor& x, std::span<const int64_t> row_numbers) {
  const NoGrad no_grad;
  const Tensor rows = exact_rows_of(x, row_numbers);
  Tensor v = rows;
  if (model.norm == nn::Norm::rms)
    v = rms_norm(v, {v.size(1)}, exact(model.norm_weight), model.norm_eps);
  if (model.norm == nn::Norm::layer)
    v = layer_norm(v, {v.size(1)}, exact(model.norm_weight), exact(model.norm_bias),
                   model.norm_eps);
  for (const Stage& stage : model.stages) v = exact_stage(stage, v, row_numbers);
  return model.residual ? add(v, rows) : v;
}

}  // namespace epilogue::bench
