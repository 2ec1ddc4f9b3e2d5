// SPDX-License-Identifier: Apache-2.0
// What the tests of compiled functions share: an exact answer, and how far others are from it.
#pragma once

#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::testing {

// || got - exact || / || exact ||.
inline double relative_l2(const Tensor& got, const std::vector<double>& exact) {
  const std::vector<double> values = got.to_vector();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    difference += (values[i] - exact[i]) * (values[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// The module's result in f64 arithmetic on the very numbers that it holds.
inline std::vector<double> exact_result(nn::Module& module, const Tensor& x) {
  const NoGrad no_grad;
  nn::NamedTensors state;
  for (const auto& [name, tensor] : module.state_dict()) state.emplace_back(name, clone(tensor));
  const DType dtype = module.parameters()[0].dtype();
  module.to(DType::f64);
  const std::vector<double> exact = module(to(x, DType::f64)).to_vector();
  module.to(dtype);
  module.load_state_dict(state);
  return exact;
}

// Room for two errors of the same size to differ: a hundredth of a rounding step of the result.
inline double floor_of(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8 / 100;
  return dtype == DType::f16 ? 0x1p-11 / 100 : 0x1p-24 / 100;
}

inline void expect_same_kind(const Tensor& compiled, const Tensor& eager, const std::string& what) {
  EXPECT_EQ(compiled.sizes(), eager.sizes()) << what;
  EXPECT_EQ(compiled.dtype(), eager.dtype()) << what;
}

// At most 1.05 times eager's error against f64; few numbers leave much of either to chance.
inline void expect_no_less_accurate(const Tensor& compiled, const Tensor& eager,
                                    const std::vector<double>& exact, const std::string& what) {
  expect_same_kind(compiled, eager, what);
  const double ours = relative_l2(compiled, exact);
  const double theirs = relative_l2(eager, exact);
  const double chance = 1 / std::sqrt(static_cast<double>(std::max<size_t>(exact.size(), 1)));
  EXPECT_LE(ours, (1.05 + chance) * theirs + floor_of(eager.dtype()))
      << what << ", eager's error " << theirs;
}

// What f32 sums of some hundred products lose at most; eager's is below it too.
inline constexpr double kF32Error = 2e-6;

// 16-bit results: no less accurate than eager. f32: within the error of f32 sums. There the order
// of a sum decides, and eager's few-row kernels have a better one (see the disabled test).
inline void expect_accurate(const Tensor& compiled, const Tensor& eager,
                            const std::vector<double>& exact, const std::string& what) {
  if (eager.dtype() != DType::f32) return expect_no_less_accurate(compiled, eager, exact, what);
  expect_same_kind(compiled, eager, what);
  EXPECT_LE(relative_l2(compiled, exact), kF32Error) << what;
}

}  // namespace epilogue::testing
