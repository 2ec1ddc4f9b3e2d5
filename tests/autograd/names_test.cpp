// SPDX-License-Identifier: Apache-2.0
// A profiler's view of a backward pass: names, nesting and sequence numbers as in PyTorch.
#include "autograd/leaf.h"
#include "autograd/run_log.h"
#include "support/test.h"

namespace epilogue::names_test {

using test::leaf;
using test::random_leaf;
using test::RunLog;

constexpr const char* kEvaluate = "autograd::engine::evaluate_function: ";

TEST(Names, LinearReluLossAsInPyTorchsTrace) {
  const Tensor x = ones({2, 3});
  const Tensor w = random_leaf({4, 3}, DType::f32);
  const Tensor b = random_leaf({4}, DType::f32);
  const Tensor loss = mse_loss(relu(linear(x, w, b)), zeros({2, 4}));
  const RunLog log;
  loss.backward();
  EXPECT_EQ(log.depth(), 0);
  EXPECT_EQ(log.tree(),
            "autograd::engine::evaluate_function: MseLossBackward0\n"
            "  MseLossBackward0\n"
            "    aten::mse_loss_backward\n"
            "autograd::engine::evaluate_function: ReluBackward0\n"
            "  ReluBackward0\n"
            "    aten::threshold_backward\n"
            "autograd::engine::evaluate_function: AddmmBackward0\n"
            "  AddmmBackward0\n"
            "    aten::t\n"
            "    aten::mm\n"
            "    aten::t\n"
            "  aten::sum\n"
            "  aten::view\n"
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad\n"
            "  torch::autograd::AccumulateGrad\n"
            "autograd::engine::evaluate_function: TBackward0\n"
            "  TBackward0\n"
            "    aten::t\n"
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad\n"
            "  torch::autograd::AccumulateGrad\n");
}

TEST(Names, AccumulationIntoAGradThatIsThere) {
  const Tensor x = leaf({1, 2}, {2});
  (x + 1.0).backward(ones({2}));
  const Tensor y = x + 1.0;
  const Tensor seed = ones({2});
  const RunLog log;
  y.backward(seed);
  EXPECT_EQ(log.tree(),
            "autograd::engine::evaluate_function: AddBackward0\n"
            "  AddBackward0\n"
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad\n"
            "  torch::autograd::AccumulateGrad\n"
            "    aten::add_\n");
}

TEST(Names, OfManyNodes) {
  const Tensor x = random_leaf({2, 3});
  struct Case {
    const char* name;
    Tensor y;
  };
  const Case cases[] = {
      {"MmBackward0", mm(x, t(x))},
      {"BmmBackward0", bmm(view(x, {1, 2, 3}), view(x, {1, 3, 2}))},
      {"TBackward0", t(x)},
      {"TransposeBackward0", transpose(x, 0, 1)},
      {"ViewBackward0", view(x, {6})},
      {"UnsafeViewBackward0", unsafe_view(x, {6})},
      {"ExpandBackward0", expand(x, {2, 2, 3})},
      {"SliceBackward0", slice(x, 0, 0, 1)},
      {"CatBackward0", cat({x, x})},
      {"CloneBackward0", clone(x)},
      {"ToCopyBackward0", to(x, DType::f32)},
      {"GeluBackward0", gelu(x)},
      {"SiluBackward0", silu(x)},
      {"TanhBackward0", tanh(x)},
      {"SigmoidBackward0", sigmoid(x)},
      {"ExpBackward0", exp(x)},
      {"NegBackward0", neg(x)},
      {"MulBackward0", x * x},
      {"DivBackward0", x / 2.0},
      {"SubBackward0", x - 1.0},
      {"SumBackward0", sum(x)},
      {"MeanBackward0", mean(x)},
      {"SoftmaxBackward0", softmax(x, 1)},
      {"LogSoftmaxBackward0", log_softmax(x, 1)},
      {"NativeLayerNormBackward0", layer_norm(x, {3})},
      {"FusedRmsNormBackward0", rms_norm(x, {3})},
      {"NllLossBackward0", nll_loss(x, zeros({2}, DType::i64))},
  };
  for (const Case& c : cases) {
    const RunLog log;
    c.y.backward(ones(c.y.sizes(), c.y.dtype()));
    ASSERT_GE(log.entries().size(), 2U);
    const auto first = std::find_if(log.entries().begin(), log.entries().end(),
                                    [](const auto& e) { return e.name.starts_with(kEvaluate); });
    ASSERT_NE(first, log.entries().end());
    EXPECT_EQ(first->name, std::string(kEvaluate) + c.name);
    EXPECT_EQ((first + 1)->name, c.name);
    EXPECT_EQ((first + 1)->depth, first->depth + 1);
  }
}

// The number by which a profiler links a backward node to its forward op.
TEST(Names, SequenceNumbersOfForwardAndBackwardMatch) {
  const Tensor x = ones({2, 3});
  const Tensor w = random_leaf({4, 3}, DType::f32);
  const Tensor b = random_leaf({4}, DType::f32);
  const RunLog log;
  const Tensor loss = mse_loss(gelu(linear(x, w, b)), zeros({2, 4}));
  const int64_t linear_nr = log.at("aten::linear").sequence_nr;
  EXPECT_EQ(log.at("aten::t").sequence_nr, linear_nr);
  EXPECT_EQ(log.at("aten::addmm").sequence_nr, linear_nr + 1);
  EXPECT_EQ(log.at("aten::gelu").sequence_nr, linear_nr + 2);
  EXPECT_EQ(log.at("aten::mse_loss").sequence_nr, linear_nr + 3);
  loss.backward();
  EXPECT_EQ(log.at("TBackward0").sequence_nr, linear_nr);
  EXPECT_EQ(log.at("AddmmBackward0").sequence_nr, linear_nr + 1);
  EXPECT_EQ(log.at("GeluBackward0").sequence_nr, linear_nr + 2);
  EXPECT_EQ(log.at("MseLossBackward0").sequence_nr, linear_nr + 3);
  EXPECT_EQ(log.at("GeluBackward0").forward_thread, current_thread_id());
  // Ops of the walk itself are not recorded and carry no number.
  EXPECT_EQ(log.at("aten::gelu_backward").sequence_nr, -1);
  EXPECT_EQ(log.at(std::string(kEvaluate) + "GeluBackward0").sequence_nr, -1);
}

TEST(Names, OpsWithoutRecordingTakeNoNumber) {
  const Tensor x = ones({2});
  const Tensor w = leaf({1, 2}, {2});
  const RunLog log;
  (void)(x * 2.0);
  (void)(w * 2.0);
  (void)(w - 2.0);
  const NoGrad off;
  (void)(w + 2.0);
  EXPECT_EQ(log.entries()[1].sequence_nr, log.entries()[0].sequence_nr);
  EXPECT_EQ(log.entries()[2].sequence_nr, log.entries()[1].sequence_nr + 1);
  EXPECT_EQ(log.entries()[3].sequence_nr, -1);
}

TEST(Names, RangesAreClosedWhenARuleFails) {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = sum(x * x);
  y.backward();
  RunLog log;
  EXPECT_THROW(y.backward(), Error);
  EXPECT_EQ(log.depth(), 0);
  EXPECT_THROW((void)mm(x, x), Error);
  EXPECT_EQ(log.depth(), 0);
}

}  // namespace epilogue::names_test
