// SPDX-License-Identifier: Apache-2.0
// Values that PyTorch computed: tests/data/training/golden.json, made by the script beside it.
#pragma once

#include <nlohmann/json.hpp>

#include "epilogue/tensor.h"
#include "support/test.h"

namespace epilogue::test {

inline const nlohmann::json& golden() {
  static const nlohmann::json data =
      nlohmann::json::parse(std::ifstream(EPILOGUE_TEST_DATA "/golden.json"));
  return data;
}

inline Dims dims_of(const nlohmann::json& sizes) {
  return Dims(std::span<const int64_t>(sizes.get<std::vector<int64_t>>()));
}

// One tensor per row of numbers.
inline std::vector<Tensor> tensors_of(const nlohmann::json& rows, const nlohmann::json& shapes,
                                      DType dtype) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < rows.size(); ++i)
    tensors.push_back(from_values(rows[i].get<std::vector<double>>(), dims_of(shapes[i]), dtype));
  return tensors;
}

// |got - expected| <= tolerance * max(1, |expected|) for each element; names the worst.
inline void expect_golden(const Tensor& got, const nlohmann::json& expected, double tolerance,
                          const std::string& what) {
  const std::vector<double> a = got.to_vector();
  const auto b = expected.get<std::vector<double>>();
  ASSERT_EQ(a.size(), b.size()) << what;
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  EXPECT_LE(worst, tolerance) << what << ", element " << at << ": got " << a[at] << ", expected "
                              << b[at];
}

}  // namespace epilogue::test
