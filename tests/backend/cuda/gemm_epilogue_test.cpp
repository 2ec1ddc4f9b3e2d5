// SPDX-License-Identifier: Apache-2.0
// Programs that a product can run while it writes.
#include "backend/cuda/products/gemm_epilogue.h"
#include "support/test.h"

namespace epilogue::cuda::gemm_epilogue_test {

const MatrixView kBias{nullptr, DType::bf16, 0, 1};
const MatrixView kMatrix{nullptr, DType::bf16, 64, 1};
const MatrixView kColumn{nullptr, DType::bf16, 1, 0};
const MatrixView kWideBias{nullptr, DType::f32, 0, 1};

std::optional<GemmEpilogue> match(std::vector<PointwiseStep> steps,
                                  std::vector<MatrixView> operands) {
  PointwiseProgram program{1 + static_cast<int>(operands.size()), std::move(steps), {}};
  program.outputs = {program.steps.empty() ? 0 : program.values() - 1};
  return match_gemm_epilogue(program, operands, DType::bf16);
}

using Fn = PointwiseFn;

TEST(GemmEpilogue, BiasGeluAndResidualAreFused) {
  EXPECT_EQ(match({}, {}), (GemmEpilogue{}));
  EXPECT_EQ(match({{Fn::add, 0, 1}}, {kBias}), (GemmEpilogue{.bias = 0}));
  EXPECT_EQ(match({{Fn::add, 1, 0}}, {kBias}), (GemmEpilogue{.bias = 0}));
  EXPECT_EQ(match({{Fn::gelu_tanh, 0}}, {}), (GemmEpilogue{.gelu_tanh = true}));
  EXPECT_EQ(match({{Fn::add, 0, 1}, {Fn::gelu_tanh, 2}}, {kBias}),
            (GemmEpilogue{.bias = 0, .gelu_tanh = true}));
  EXPECT_EQ(match({{Fn::add, 1, 0}}, {kMatrix}), (GemmEpilogue{.residual = 0}));
  EXPECT_EQ(match({{Fn::add, 0, 1}, {Fn::add, 2, 3}}, {kBias, kMatrix}),
            (GemmEpilogue{.bias = 0, .residual = 1}));
}

TEST(GemmEpilogue, WhatCublasLtComputesInAnotherOrderIsNot) {
  EXPECT_EQ(match({{Fn::gelu_tanh, 0}, {Fn::add, 2, 1}}, {kBias}), std::nullopt);
  EXPECT_EQ(match({{Fn::gelu_tanh, 0}, {Fn::add, 2, 1}}, {kMatrix}), std::nullopt);
  EXPECT_EQ(match({{Fn::add, 0, 1}, {Fn::gelu_tanh, 2}}, {kMatrix}), std::nullopt);
}

TEST(GemmEpilogue, OtherProgramsAreNot) {
  EXPECT_EQ(match({{Fn::relu, 0}}, {}), std::nullopt);  // its epilogue turns NaN into 0
  EXPECT_EQ(match({{Fn::gelu_erf, 0}}, {}), std::nullopt);
  EXPECT_EQ(match({{Fn::add, 0, 1, 0, 2}}, {kBias}), std::nullopt);  // alpha 2
  EXPECT_EQ(match({{Fn::add, 0, kConstantOperand, 3}}, {}), std::nullopt);
  EXPECT_EQ(match({{Fn::add, 0, 1}}, {kColumn}), std::nullopt);
  EXPECT_EQ(match({{Fn::add, 0, 1}}, {kWideBias}), std::nullopt);
  EXPECT_EQ(match({{Fn::add, 0, 0}}, {}), std::nullopt);  // x + x
  EXPECT_EQ(match({{Fn::add, 0, 1}, {Fn::add, 3, 2}}, {kBias, kBias}), std::nullopt);
}

TEST(GemmEpilogue, AnOutputBeforeTheLastStepIsNot) {
  const PointwiseProgram program{1, {{Fn::gelu_tanh, 0}}, {0}};
  EXPECT_EQ(match_gemm_epilogue(program, {}, DType::bf16), std::nullopt);
}

TEST(Gated, ActivationTimesUpIsRecognised) {
  EXPECT_EQ(match_gated({2, {{Fn::silu, 0}, {Fn::mul, 2, 1}}, {3}}), Fn::silu);
  EXPECT_EQ(match_gated({2, {{Fn::gelu_tanh, 0}, {Fn::mul, 1, 2}}, {3}}), Fn::gelu_tanh);
  EXPECT_EQ(match_gated({2, {{Fn::silu, 1}, {Fn::mul, 2, 1}}, {3}}), std::nullopt);
  EXPECT_EQ(match_gated({2, {{Fn::silu, 0}, {Fn::mul, 2, 2}}, {3}}), std::nullopt);
  EXPECT_EQ(match_gated({2, {{Fn::silu, 0}, {Fn::add, 2, 1}}, {3}}), std::nullopt);
  EXPECT_EQ(match_gated({3, {{Fn::silu, 0}, {Fn::mul, 3, 1}}, {4}}), std::nullopt);
}

}  // namespace epilogue::cuda::gemm_epilogue_test
