// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm beyond the op table: known values, larger shapes, mixed dtypes, masks,
// thread counts, messages.
#include "base/thread_pool.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::norms_test {

TEST(Norms, KnownValues) {
  // 1, 2, 3, 4: mean 2.5, biased variance 1.25, mean of squares 7.5.
  const Tensor x = from_values({1, 2, 3, 4}, {1, 4});
  const double r = 1 / std::sqrt(1.25);
  expect_near(layer_norm(x, {4}, {}, {}, 0), {-1.5 * r, -0.5 * r, 0.5 * r, 1.5 * r}, 1e-6);
  const Tensor weight = from_values({1, 2, 0, -1}, {4});
  const Tensor bias = from_values({0, 1, 5, 0}, {4});
  expect_near(layer_norm(x, {4}, weight, bias, 0), {-1.5 * r, 1 - r, 5, -1.5 * r}, 1e-6);
  const double q = 1 / std::sqrt(7.5);
  expect_near(rms_norm(x, {4}, {}, 0.0), {q, 2 * q, 3 * q, 4 * q}, 1e-6);
  expect_near(rms_norm(x, {4}, weight, 0.0), {q, 4 * q, 0, -4 * q}, 1e-6);
  // eps counts: x = 0 gives 0, not NaN; with eps 1 and variance 1.25 the divisor is 1.5.
  expect_near(layer_norm(zeros({2, 3}), {3}), std::vector<double>(6, 0), 0);
  expect_near(rms_norm(zeros({2, 3}), {3}), std::vector<double>(6, 0), 0);
  expect_near(layer_norm(x, {4}, {}, {}, 1), {-1, -1. / 3, 1. / 3, 1}, 1e-6);
}

TEST(Norms, AFarMeanDoesNotCancel) {
  // Variance in one pass would lose everything here.
  Tensor x = numbers({3, 256}, DType::f64);
  const Tensor expected = layer_norm(x, {256});
  const Tensor shifted = layer_norm(to(add(x, 4096.0), DType::f32), {256});
  EXPECT_EQ(difference(shifted, to(expected, DType::f32), {0, 2e-3}), "");
}

TEST(Norms, RowsPastEveryTileAndChunk) {
  for (const Dims& sizes : {Dims{3, 5000}, Dims{3001, 24}, Dims{40, 768}, Dims{7, 3, 129}}) {
    const Dims shape = {sizes[sizes.rank() - 1]};
    const Tensor x = numbers(sizes);
    const Tensor dy = mul(numbers(sizes), -0.5);
    const Tensor weight = numbers(shape);
    const Tensor in[] = {x, weight, weight};
    const Attr attrs[] = {shape, 1e-5};
    const Outputs out = run_op(kNativeLayerNorm, in, attrs);
    const auto expected = reference_results(kNativeLayerNorm, in, attrs, out.span());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(difference(out[i], expected[i], {1e-5, 1e-5}), "");

    const Tensor back_in[] = {dy, x, out[1], out[2], weight, weight};
    const Attr back_attrs[] = {shape, Dims{1, 1, 1}};
    const Outputs back = run_op(kNativeLayerNormBackward, back_in, back_attrs);
    const auto back_expected =
        reference_results(kNativeLayerNormBackward, back_in, back_attrs, back.span());
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(difference(back[i], back_expected[i], {1e-5, 1e-3}), "") << to_string(sizes) << i;
  }
}

TEST(Norms, F32ParametersBesideBf16Inputs) {
  const Tensor x = numbers({33, 130}, DType::bf16);
  const Tensor weight = numbers({130});
  const Tensor y = layer_norm(x, {130}, weight, weight);
  EXPECT_EQ(y.dtype(), DType::bf16);
  const Tensor exact =
      layer_norm(to(x, DType::f64), {130}, to(weight, DType::f64), to(weight, DType::f64));
  EXPECT_EQ(difference(y, to(exact, DType::bf16), {0x1p-7, 1e-3}), "");

  Tensor parameter = numbers({130});
  parameter.set_requires_grad(true);
  sum(rms_norm(x, {130}, parameter)).backward();
  EXPECT_EQ(parameter.grad().dtype(), DType::f32);
}

TEST(Norms, TheOutputMaskSkipsGradients) {
  const Tensor x = numbers({4, 6});
  const Tensor stat = ones({4, 1});
  const Tensor in[] = {x, x, stat, stat, ones({6}), ones({6})};
  const Attr attrs[] = {Dims{6}, Dims{0, 0, 1}};
  const Outputs out = run_op(kNativeLayerNormBackward, in, attrs);
  EXPECT_EQ(out[0].numel(), 0);
  EXPECT_EQ(out[1].numel(), 0);
  EXPECT_EQ(difference(out[2], sum(x, {0}), {1e-6, 1e-6}), "");
}

TEST(Norms, NoRowsGiveZeroParameterGradients) {
  Tensor weight = numbers({5});
  weight.set_requires_grad(true);
  sum(layer_norm(zeros({0, 5}), {5}, weight)).backward();
  EXPECT_EQ(weight.grad().to_vector(), std::vector<double>(5, 0));
}

TEST(Norms, ThreadsDoNotChangeABit) {
  const Tensor x = numbers({2000, 70});
  const Tensor stat = ones({2000, 1});
  const Tensor in[] = {x, mul(x, 0.5), stat, stat, ones({70}), ones({70})};
  const Attr attrs[] = {Dims{70}, Dims{1, 1, 1}};
  const int before = num_threads();
  set_num_threads(1);
  const Outputs one = run_op(kNativeLayerNormBackward, in, attrs);
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    const Outputs more = run_op(kNativeLayerNormBackward, in, attrs);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(more[i].to_vector(), one[i].to_vector()) << threads;
  }
  set_num_threads(before);
}

TEST(Norms, TheDefaultEpsIsTheMachineEpsilonOfTheComputation) {
  const double tiny = 1e-3;
  const Tensor x = full({1, 4}, tiny, DType::f64);
  const double e64 = std::numeric_limits<double>::epsilon();
  expect_near(rms_norm(x, {4}), std::vector<double>(4, tiny / std::sqrt(tiny * tiny + e64)), 1e-12);
  const double e32 = std::numeric_limits<float>::epsilon();
  expect_near(rms_norm(to(x, DType::f32), {4}),
              std::vector<double>(4, tiny / std::sqrt(tiny * tiny + e32)), 1e-6);
}

TEST(Norms, Messages) {
  EXPECT_ERROR(layer_norm(ones({2, 3}), {2}),
               "[aten::native_layer_norm] expected an input whose shape ends with the "
               "normalized_shape [2], got f32[2, 3]");
  EXPECT_ERROR(layer_norm(ones({2, 3}), {}),
               "[aten::native_layer_norm] expected an input whose shape ends with the "
               "normalized_shape [], got f32[2, 3]");
  EXPECT_ERROR(rms_norm(ones({2, 3}), {3}, ones({2})),
               "[aten::_fused_rms_norm] expected a weight or bias of shape [3] for f32[2, 3], got "
               "f32[2]");
  EXPECT_ERROR(rms_norm(ones({2, 3}), {3}, ones({3}, DType::bf16)),
               "[aten::_fused_rms_norm] expected a weight or bias of shape [3] for f32[2, 3], got "
               "bf16[3]");
  EXPECT_ERROR(rms_norm(ones({3}, DType::i64), {3}),
               "[aten::_fused_rms_norm] expected a floating tensor, got i64[3]");
}

}  // namespace epilogue::test::norms_test
