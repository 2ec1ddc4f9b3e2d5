// SPDX-License-Identifier: Apache-2.0
// M, N, K and types of a matrix product, from an op's name and recorded inputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/gemms.h"

namespace epilogue::trace {

struct GemmProblem {
  GemmShape shape;
  std::string a_type;  // "bf16"; "" unknown
  std::string b_type;
};

// True for ops that are one matrix product: aten::mm, addmm, bmm, linear, matmul, _scaled_mm, ...
bool is_gemm_op(std::string_view op);
// True for ops whose GEMM kernels are not matrix products of their own: convolutions, RNNs.
bool hides_gemms(std::string_view op);

// Empty when the op is none, its shapes were not recorded or do not fit one another.
std::optional<GemmProblem> gemm_problem(std::string_view op, std::span<const OpInput> inputs);

std::optional<int64_t> element_bytes_x2(
    std::string_view type);  // twice the size: fp4 is half a byte

// Products of launch sizes, which come from a file.

// The product of sizes; empty when one is negative or it overflows.
inline std::optional<int64_t> product(std::span<const int64_t> sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(result, size, &result)) return std::nullopt;
  return result;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace epilogue::trace
