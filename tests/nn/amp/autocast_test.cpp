// SPDX-License-Identifier: Apache-2.0
// Autocast: result dtypes as PyTorch's, gradients through casts, the weight cache, nesting,
// threads.
#include "ops/autocast.h"
#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "nn/golden.h"
#include "ops/op_testing.h"
#include "support/test.h"

namespace epilogue::amp::autocast_test {

using epilogue::testing::CallTree;
using test::golden;

Tensor weight(Dims sizes = {2, 2}) {
  Tensor w = randn(sizes);
  w.set_requires_grad(true);
  return w;
}

Tensor run(const std::string& op, const Tensor& a) {
  const Tensor f32 = ones({2, 2});
  const Tensor labels = from_values({0, 1}, {2}, DType::i64);
  const Tensor batched = view(a, {1, 2, 2});
  if (op == "aten::mm") return mm(a, a);
  if (op == "aten::addmm") return addmm(a, a, a);
  if (op == "aten::bmm") return bmm(batched, batched);
  if (op == "aten::matmul") return matmul(a, a);
  if (op == "aten::linear") return linear(a, a);
  if (op == "aten::mse_loss") return mse_loss(a, a);
  if (op == "aten::nll_loss") return nll_loss(a, labels);
  if (op == "aten::cross_entropy_loss") return cross_entropy(a, labels);
  if (op == "aten::cat") return cat({a, a});
  if (op == "aten::cat with f32") return cat({a, f32});
  if (op == "aten::add") return add(a, a);
  if (op == "aten::mul") return mul(a, f32);
  if (op == "aten::gelu") return gelu(a);
  if (op == "aten::exp") return exp(a);
  if (op == "aten::softmax") return softmax(a, 1);
  if (op == "aten::log_softmax") return log_softmax(a, 1);
  if (op == "aten::layer_norm") return layer_norm(a, {2});
  if (op == "aten::sum") return sum(a);
  ADD_FAILURE() << "unknown op " << op;
  return a;
}

TEST(Autocast, GivesEveryOpPyTorchsResultDtype) {
  int checked = 0;
  for (const auto& row : golden()["autocast"]) {
    const DType input = parse_dtype(row["input"].get<std::string>());
    const auto op = row["op"].get<std::string>();
    std::string result;
    {
      const Autocast autocast({.dtype = parse_dtype(row["region"].get<std::string>())});
      try {
        result = dtype_name(run(op, ones({2, 2}, input)).dtype());
      } catch (const Error&) {
        result = "error";
      }
    }
    EXPECT_EQ(result, row["result"]) << row.dump();
    ++checked;
  }
  EXPECT_EQ(checked, 144);
}

TEST(Autocast, CudasListsAreOfItsOwn) {
  const auto rule = [](const OpDef& op, DeviceType device) {
    return op.autocast[static_cast<size_t>(device)];
  };
  for (const OpDef* op : {&kMm, &kAddmm, &kBmm, &kMatmul, &kLinear})
    EXPECT_EQ(rule(*op, DeviceType::cuda), AutocastRule::lower) << op->name;
  for (const OpDef* op : {&kExp, &kLayerNorm, &kNativeLayerNorm, &kMseLoss, &kNllLoss})
    EXPECT_EQ(rule(*op, DeviceType::cuda), AutocastRule::f32) << op->name;
  for (const OpDef* op : {&kSoftmax, &kLogSoftmax, &kSum}) {
    EXPECT_EQ(rule(*op, DeviceType::cuda), AutocastRule::f32_result) << op->name;
    EXPECT_EQ(rule(*op, DeviceType::cpu), AutocastRule::none) << op->name;
    EXPECT_GT(op->autocast_attr, 0) << op->name;
  }
}

// x32, W32 and b32 are cast once each; the loss casts back: the tree is that of the dtypes.
TEST(Autocast, CastsInputsOutsideTheOp) {
  const Tensor w = weight();
  const Tensor x = ones({2, 2});
  CallTree tree;
  {
    const NoGrad no_grad;
    const Autocast autocast;
    linear(x, w);
  }
  EXPECT_EQ(tree.text,
            "aten::to(aten::_to_copy(*)) aten::to(aten::_to_copy(*)) "
            "aten::linear(aten::t(aten::transpose(aten::as_strided)) aten::matmul(aten::mm(*)))");
}

TEST(Autocast, CastsAWeightOncePerRegionAndActivationsEachTime) {
  const Tensor w = weight();
  const Tensor x = ones({2, 2});
  const auto casts = [&](bool cache_enabled) {
    CallTree tree;
    {
      const Autocast autocast({.cache_enabled = cache_enabled});
      for (int i = 0; i < 3; ++i) mm(x, w);
    }
    int64_t n = 0;
    for (size_t at = 0; (at = tree.text.find("_to_copy", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(casts(true), 3 + 1);
  EXPECT_EQ(casts(false), 3 + 3);
  EXPECT_EQ(casts(true), 3 + 1) << "the cache ends with its region";
}

TEST(Autocast, SharedCastSumsItsGradientsInF32) {
  Tensor w = weight({3, 3});
  const Tensor x = ones({2, 3});
  Tensor loss;
  {
    const Autocast autocast;
    const Tensor h = mm(x, w);
    EXPECT_EQ(h.dtype(), DType::bf16);
    loss = sum(mm(h, w));
  }
  loss.backward();
  ASSERT_TRUE(w.grad().defined());
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  // d/dw sum(x w w) = x^T (1 w^T) + (x w)^T 1, in bf16 steps.
  Tensor w32 = w.detach();
  w32.set_requires_grad(true);
  sum(mm(mm(x, w32), w32)).backward();
  const std::vector<double> expected = w32.grad().to_vector();
  const std::vector<double> got = w.grad().to_vector();
  double scale = 0;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.03 * scale);
}

// A cast that was made without the tape must not serve a later use that needs the graph.
TEST(Autocast, CastsMadeUnderNoGradDoNotBreakLaterGraphs) {
  Tensor w = weight();
  const Autocast autocast;
  {
    const NoGrad no_grad;
    mm(ones({2, 2}), w);
  }
  sum(mm(ones({2, 2}), w)).backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST(Autocast, AWeightWrittenInsideTheRegionIsCastAgain) {
  Tensor w = full({2, 2}, 1);
  w.set_requires_grad(true);
  const Autocast autocast;
  const NoGrad no_grad;
  EXPECT_EQ(mm(ones({2, 2}), w).to_vector()[0], 2);
  fill_(w, 3);
  EXPECT_EQ(mm(ones({2, 2}), w).to_vector()[0], 6);
}

TEST(Autocast, NestsAndDisables) {
  const Tensor a = ones({2, 2});
  EXPECT_FALSE(is_autocast_enabled());
  EXPECT_EQ(autocast_dtype(), DType::bf16);
  EXPECT_EQ(autocast_dtype(DeviceType::cuda), DType::f16);
  {
    const Autocast outer;
    EXPECT_TRUE(is_autocast_enabled());
    EXPECT_FALSE(is_autocast_enabled(DeviceType::cuda));
    EXPECT_EQ(mm(a, a).dtype(), DType::bf16);
    {
      const Autocast off({.enabled = false});
      EXPECT_FALSE(is_autocast_enabled());
      EXPECT_EQ(mm(a, a).dtype(), DType::f32);
      {
        const Autocast inner({.dtype = DType::f16});
        EXPECT_EQ(mm(a, a).dtype(), DType::f16);
      }
      EXPECT_EQ(mm(a, a).dtype(), DType::f32);
    }
    EXPECT_EQ(mm(a, a).dtype(), DType::bf16);
    const Autocast other_device({.device = DeviceType::cuda});
    EXPECT_EQ(mm(a, a).dtype(), DType::bf16);
  }
  EXPECT_EQ(mm(a, a).dtype(), DType::f32);
  EXPECT_ERROR(Autocast({.dtype = DType::f32}), "[autocast] expected bf16 or f16, got f32");
  EXPECT_ERROR(Autocast({.dtype = DType::i64}), "[autocast] expected bf16 or f16, got i64");
}

TEST(Autocast, EndsItsRegionWhenAnOpThrows) {
  try {
    const Autocast autocast;
    mm(ones({2, 3}), ones({2, 3}));
  } catch (const Error&) {
  }
  EXPECT_FALSE(is_autocast_enabled());
  EXPECT_EQ(thread_state().autocast, nullptr);
}

TEST(Autocast, IsOfOneThread) {
  const Autocast autocast;
  DType dtype = DType::bf16;
  std::thread([&] { dtype = mm(ones({2, 2}), ones({2, 2})).dtype(); }).join();
  EXPECT_EQ(dtype, DType::f32);
}

// The optimizer's copies save the casts; the numbers and the gradients are the same.
TEST(Autocast, TakesAnOptimizersCopiesInsteadOfCasting) {
  const auto run_model = [](bool with_copies, std::string& ops) {
    manual_seed(5);
    nn::Linear model(8, 8, false);
    optim::SGD sgd(model.parameters(), {.lr = 0.5});
    if (with_copies) sgd.keep_low_precision_copies(DType::bf16);
    const Tensor x = randn({4, 8}, DType::bf16);
    const auto step = [&] {
      Tensor loss;
      {
        const Autocast autocast;
        loss = sum(model(x));
      }
      sgd.zero_grad();
      loss.backward();
      sgd.step();
    };
    step();
    {
      CallTree tree;
      step();
      ops = tree.text;
    }
    const std::vector<double> gradient = model.weight.grad().to_vector();
    fill_(model.weight.detach(), 0.25);  // written by others: the copy is stale and not taken
    const Autocast autocast;
    EXPECT_EQ(mm(ones({1, 8}), model.weight).to_vector()[0], 2);
    model.to(DType::f64);  // another storage, whose version may be any
    model.to(DType::f32);
    fill_(model.weight.detach(), 0.5);
    EXPECT_EQ(mm(ones({1, 8}), model.weight).to_vector()[0], 4);
    return gradient;
  };
  std::string with;
  std::string without;
  EXPECT_EQ(run_model(true, with), run_model(false, without));
  EXPECT_TRUE(without.starts_with("aten::to(aten::_to_copy(*)) aten::linear")) << without;
  EXPECT_TRUE(with.starts_with("aten::linear")) << with;
}

TEST(Autocast, ASkippedStepDoesNotVouchForACopyOfOtherWeights) {
  Tensor weight = ones({8, 8});
  weight.set_requires_grad(true);
  optim::SGD sgd({weight}, {.lr = 0.5});
  sgd.keep_low_precision_copies(DType::bf16);
  fill_(weight.detach(), 0.25);  // as a checkpoint does that is loaded
  weight.set_grad(ones({8, 8}));
  sgd.step({.found_inf = ones({})});
  const NoGrad no_grad;
  const Autocast autocast;
  EXPECT_EQ(mm(ones({1, 8}), weight).to_vector()[0], 2);
}

}  // namespace epilogue::amp::autocast_test
