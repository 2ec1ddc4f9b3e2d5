// SPDX-License-Identifier: Apache-2.0
// CPU kernels of var and std: each piece in two passes through L1, pieces joined as Chan, Golub and
// LeVeque do (1979).
#include <cmath>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/lines/row_parts.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

struct VariancePart {
  double count;
  double mean;
  double squares;  // sum of (x - mean)^2
};

const char* decline_variance(const Call& call) {
  return has_float_type(call.in[0].dtype()) ? nullptr : kNeedsFloatType;
}

Rows rows_of_variance(const Call& call) {
  const Tensor& self = call.in[0];
  return {self, normalize_dims(call.op, call.attr<Dims>(0), self.dim())};
}

// squares around the piece's mean as f32 has it, then moved to the mean itself.
VariancePart part_of(const float* row, int64_t n) {
  if (n == 0) return {0, NAN, NAN};
  const auto& kernels = simd::row_kernels();
  const auto length = static_cast<size_t>(n);
  const auto count = static_cast<double>(n);
  const double mean = static_cast<double>(kernels.sum(row, length)) / count;
  const auto centre = static_cast<float>(mean);
  const double off = mean - static_cast<double>(centre);
  const double squares = static_cast<double>(kernels.squared_deviation(row, centre, length));
  return {count, mean, std::isnan(squares) ? squares : std::fmax(0, squares - count * off * off)};
}

void join(VariancePart& total, const VariancePart& part) {
  const double count = total.count + part.count;
  const double distance = part.mean - total.mean;
  total.squares += part.squares + distance * distance * total.count * part.count / count;
  total.mean += distance * part.count / count;
  total.count = count;
}

void run_variance(const Call& call) {
  const Tensor& out = call.out[0];
  const double correction = call.attr<double>(1);
  const bool is_root = &call.op == &kStd;
  reduce_rows(
      rows_of_variance(call), [](const float* row, int64_t, int64_t n) { return part_of(row, n); },
      join,
      [&](int64_t row, const VariancePart& part) {
        const double variance = part.squares / std::fmax(0, part.count - correction);
        store_element(out.dtype(), out.data(), row, is_root ? std::sqrt(variance) : variance);
      });
}

void describe_variance(const Call& call, KernelInfo& info) {
  info.name = kernel_name(&call.op == &kStd ? "std" : "var", call.in[0].dtype());
  describe_rows(rows_of_variance(call), info);
}

constexpr Kernel kKernels[] = {{"rows", decline_variance, run_variance, describe_variance}};
constexpr KernelList kVarianceLists[] = {{&kVar, kKernels}, {&kStd, kKernels}};

}  // namespace

std::span<const KernelList> variance_lists() { return kVarianceLists; }

}  // namespace epilogue::cpu
