// SPDX-License-Identifier: Apache-2.0
// Mistakes with norms, losses and dropout.
#include "errors/mistakes.h"
#include "support/test.h"

namespace epilogue::test::network_messages_test {

TEST(NetworkMessages, Norms) {
  const std::string shape = " expected an input whose shape ends with the normalized_shape ";
  EXPECT_ERROR(layer_norm(f32({2, 3}), {4}),
               "[aten::native_layer_norm]" + shape + "[4], got f32[2, 3]");
  EXPECT_ERROR(layer_norm(f32({2, 3}), {}),
               "[aten::native_layer_norm]" + shape + "[], got f32[2, 3]");
  EXPECT_ERROR(rms_norm(f32({3}), {2, 3}),
               "[aten::_fused_rms_norm]" + shape + "[2, 3], got f32[3]");
  EXPECT_ERROR(
      layer_norm(f32({2, 3}), {3}, f32({2})),
      "[aten::native_layer_norm] expected a weight or bias of shape [3] for f32[2, 3], got f32[2]");
  EXPECT_ERROR(
      rms_norm(f32({2, 3}), {3}, bf16({3})),
      "[aten::_fused_rms_norm] expected a weight or bias of shape [3] for f32[2, 3], got bf16[3]");
  EXPECT_ERROR(layer_norm(i64({2, 3}), {3}),
               "[aten::native_layer_norm] expected a floating tensor, got i64[2, 3]");
  EXPECT_ERROR(rms_norm({}, {3}), "[aten::rms_norm] expected a tensor for 'input', got undefined");
}

TEST(NetworkMessages, NormsWithoutAnEps) {
  const Tensor x = f32({2, 3});
  const double nan = std::nan("");
  EXPECT_ERROR(layer_norm(x, {3}, {}, {}, nan),
               "[aten::native_layer_norm] expected a finite eps >= 0, got nan");
  EXPECT_ERROR(layer_norm(x, {3}, {}, {}, -1),
               "[aten::native_layer_norm] expected a finite eps >= 0, got -1.000000");
  EXPECT_ERROR(rms_norm(x, {3}, {}, INFINITY),
               "[aten::_fused_rms_norm] expected a finite eps >= 0, got inf");
  EXPECT_EQ(message_of([&] { rms_norm(x, {3}, {}, 0.0); }), "(no error)");
}

TEST(NetworkMessages, Losses) {
  const std::string targets =
      " expected scores [n, classes] with i64 targets [n], or [classes] with one target, got ";
  EXPECT_ERROR(mse_loss(f32({2, 3}), f32({4})),
               "[aten::mse_loss] expected a target of the input's shape [2, 3], got f32[4]");
  EXPECT_ERROR(mse_loss(i64({2}), i64({2})),
               "[aten::mse_loss] expected a floating tensor, got i64[2] and i64[2]");
  EXPECT_ERROR(nll_loss(f32({2, 3}), i64({3})),
               "[aten::nll_loss_forward]" + targets + "f32[2, 3] and i64[3]");
  EXPECT_ERROR(nll_loss(f32({2, 3}), f32({2})),
               "[aten::nll_loss_forward]" + targets + "f32[2, 3] and f32[2]");
  EXPECT_ERROR(cross_entropy(f32({2, 3}), i64({2, 1})),
               "[aten::cross_entropy_loss]" + targets + "f32[2, 3] and i64[2, 1]");
  EXPECT_ERROR(nll_loss(f32({2, 3}), i64({2}), f32({2})),
               "[aten::nll_loss_forward] expected one weight per class, [3], got f32[2]");
  EXPECT_ERROR(nll_loss(i64({2, 3}), i64({2})),
               "[aten::nll_loss_forward] expected a floating tensor, got i64[2, 3]");
  EXPECT_ERROR(cross_entropy(f32({2, 3}), i64({2}), {}, Reduction::mean, -100, 1.5),
               "[aten::cross_entropy_loss] expected a label_smoothing in [0, 1], got 1.500000");
  EXPECT_ERROR(cross_entropy(f32({2, 3}), {}),
               "[aten::cross_entropy_loss] expected a tensor for 'target', got undefined");
}

TEST(NetworkMessages, ClassesOutOfRange) {
  const Tensor scores = f32({2, 3});
  EXPECT_ERROR(
      nll_loss(scores, from_values({0, 3}, {2}, DType::i64)),
      "[aten::nll_loss_forward] expected class targets in [0, 3) or the ignore_index -100, got 3");
  EXPECT_ERROR(cross_entropy(scores, from_values({-1, 0}, {2}, DType::i64)),
               "[aten::cross_entropy_loss_forward] expected class targets in [0, 3) or the "
               "ignore_index -100, got -1");
}

TEST(NetworkMessages, Dropout) {
  EXPECT_ERROR(dropout(f32({2}), 1.5),
               "[aten::dropout] expected a probability in [0, 1], got 1.500000");
  EXPECT_ERROR(dropout(f32({2}), -0.1),
               "[aten::dropout] expected a probability in [0, 1], got -0.100000");
  EXPECT_ERROR(dropout(f32({2}), std::nan("")),
               "[aten::dropout] expected a probability in [0, 1], got nan");
  EXPECT_ERROR(dropout(i64({2}), 0.5), "[aten::dropout] expected a floating tensor, got i64[2]");
}

}  // namespace epilogue::test::network_messages_test
