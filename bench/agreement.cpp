// SPDX-License-Identifier: Apache-2.0
#include "bench/agreement.h"

#include <algorithm>
#include <cmath>

#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

constexpr int64_t kCheckedRows = 8;
// f32 sums of up to this many products are within the base tolerance.
constexpr double kShortSum = 4096;

Tolerance base_tolerance(DType dtype) {
  if (dtype == DType::bf16) return {5e-3, 8e-3};
  if (dtype == DType::f16) return {7e-4, 1e-3};
  return {2e-6, 3e-6};
}

}  // namespace

double relative_l2(const Tensor& got, const Tensor& expected) {
  if (got.numel() != expected.numel())
    throw Error("[relative_l2] expected " + to_string(expected) + ", got " + to_string(got));
  const std::vector<double> x = got.to_vector();
  const std::vector<double> y = expected.to_vector();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

Tolerance tolerance_for(DType dtype, const Model& model) {
  double factor = 1;
  if (model.stages.size() > 2) factor = std::sqrt(static_cast<double>(model.stages.size() - 1));
  double longest_sum = 1;
  for (const Stage& stage : model.stages)
    longest_sum = std::max(longest_sum, static_cast<double>(stage.weight.size(1)));
  if (dtype == DType::f32) factor *= std::max(1.0, std::sqrt(longest_sum / kShortSum));
  const Tolerance base = base_tolerance(dtype);
  return {base.against_exact * factor, base.between * factor};
}

std::vector<int64_t> checked_rows(int64_t rows) {
  std::vector<int64_t> numbers;
  const int64_t count = std::min(rows, kCheckedRows);
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(count == 1 ? 0 : i * (rows - 1) / (count - 1));
  return numbers;
}

Tensor rows_of(const Tensor& y, const std::vector<int64_t>& row_numbers) {
  std::vector<Tensor> rows;
  for (const int64_t row : row_numbers) rows.push_back(slice(y, 0, row, row + 1));
  return cat(rows);
}

}  // namespace epilogue::bench
