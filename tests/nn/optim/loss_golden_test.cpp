// SPDX-License-Identifier: Apache-2.0
// Cross entropy, fused forward and backward, against PyTorch's runs.
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "nn/golden.h"
#include "ops/op_testing.h"
#include "support/test.h"

namespace epilogue::loss_golden_test {

using nlohmann::json;
using test::expect_golden;

Reduction reduction_named(const std::string& name) {
  if (name == "none") return Reduction::none;
  return name == "mean" ? Reduction::mean : Reduction::sum;
}

// Weights, smoothing, ignored rows, every reduction, and a gradient that differs by row.
TEST(CrossEntropyGolden, LossAndGradientEqualPyTorchs) {
  const json& data = test::golden()["cross_entropy"];
  ASSERT_EQ(data["cases"].size(), 12U);
  const Dims sizes = {data["rows"].get<int64_t>(), data["classes"].get<int64_t>()};
  const Tensor target =
      from_values(data["targets"].get<std::vector<double>>(), {sizes[0]}, DType::i64);
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6;
    for (const json& c : data["cases"]) {
      Tensor z = from_values(data["logits"].get<std::vector<double>>(), sizes, dtype);
      z.set_requires_grad(true);
      nn::CrossEntropyOptions options;
      if (c["weighted"])
        options.weight = from_values(data["weight"].get<std::vector<double>>(), {sizes[1]}, dtype);
      options.reduction = reduction_named(c["reduction"]);
      options.label_smoothing = c["smoothing"];
      const Tensor loss = nn::CrossEntropyLoss(options)(z, target);
      const std::string what = c["reduction"].get<std::string>() +
                               (c["weighted"] ? " weighted" : "") + " smoothing " +
                               c["smoothing"].dump();
      expect_golden(loss.detach(), c["loss"], tolerance, what);
      // 1, 2, ... as the script's.
      Tensor upstream = to(add(arange(loss.numel()), ones({}, DType::i64)), dtype);
      loss.backward(view(upstream, loss.sizes()));
      expect_golden(z.grad(), c["gradient"], tolerance, what + " gradient");
    }
  }
}

TEST(CrossEntropyGolden, IsOneKernelForwardAndOneBackward) {
  Tensor z = randn({8, 10});
  z.set_requires_grad(true);
  const Tensor target = zeros({8}, DType::i64);
  testing::CallTree tree;
  const Tensor loss = nn::CrossEntropyLoss()(z, target);
  EXPECT_EQ(tree.text, "aten::cross_entropy_loss(aten::cross_entropy_loss_forward(*))");
  tree.text.clear();
  loss.backward();
  EXPECT_EQ(tree.text, "aten::cross_entropy_loss_backward(*)");
}

TEST(MseLossModule, IsTheFunction) {
  const Tensor x = from_values({1, 2, 3, 4}, {2, 2});
  const Tensor y = zeros({2, 2});
  EXPECT_EQ(nn::MSELoss()(x, y).item(), 7.5);
  EXPECT_EQ(nn::MSELoss(Reduction::sum)(x, y).item(), 30);
}

}  // namespace epilogue::loss_golden_test
