// SPDX-License-Identifier: Apache-2.0
// GradScaler: the algorithm step by step, real f16 overflow, accumulation, clipping, several
// optimizers.
#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "nn/golden.h"
#include "support/test.h"

namespace epilogue::amp::grad_scaler_test {

using test::golden;
using test::message_of;

Tensor parameter(double value = 1) {
  Tensor p = full({2}, value);
  p.set_requires_grad(true);
  return p;
}
// One iteration whose gradient is `slope` for every element.
bool iterate(GradScaler& scaler, optim::Optimizer& optimizer, double slope) {
  optimizer.zero_grad();
  scaler.scale(sum(mul(optimizer.parameters()[0], slope))).backward();
  const bool stepped = scaler.step(optimizer);
  scaler.update();
  return stepped;
}

TEST(GradScaler, RunsAsPyTorchs) {
  Tensor p = parameter();
  optim::SGD sgd({p}, {.lr = 0.1});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  ASSERT_EQ(golden()["scaler"].size(), 10U);
  for (const auto& row : golden()["scaler"]) {
    const bool overflow = row["overflow"];
    EXPECT_EQ(iterate(scaler, sgd, overflow ? INFINITY : 0.5), !overflow);
    EXPECT_EQ(scaler.get_scale(), row["scale"]);
    EXPECT_EQ(scaler.growth_tracker(), row["tracker"]);
    test::expect_golden(p, row["params"], 1e-7, row.dump());
  }
}

// Initial 65536, interval 2: ok, ok doubles; inf halves and skips; ok, ok doubles.
TEST(GradScaler, HandWorkedRun) {
  optim::SGD sgd({parameter()}, {.lr = 0.1});
  GradScaler scaler({.growth_interval = 2});
  EXPECT_EQ(scaler.get_scale(), 65536);
  EXPECT_TRUE(iterate(scaler, sgd, 1));
  EXPECT_TRUE(iterate(scaler, sgd, 1));
  EXPECT_EQ(scaler.get_scale(), 131072);
  EXPECT_EQ(scaler.growth_tracker(), 0);
  EXPECT_FALSE(iterate(scaler, sgd, NAN));
  EXPECT_EQ(scaler.get_scale(), 65536);
  EXPECT_TRUE(iterate(scaler, sgd, 1));
  EXPECT_EQ(scaler.growth_tracker(), 1);
  EXPECT_TRUE(iterate(scaler, sgd, 1));
  EXPECT_EQ(scaler.get_scale(), 131072);
}

TEST(GradScaler, GrowthStopsBelowInfinityAndBackoffHasNoFloor) {
  optim::SGD sgd({parameter()}, {.lr = 0});
  GradScaler high({.init_scale = 0x1p127, .growth_interval = 1});
  EXPECT_TRUE(iterate(high, sgd, 0));
  EXPECT_EQ(high.get_scale(), 0x1p127);
  EXPECT_EQ(high.growth_tracker(), 0);
  GradScaler low({.init_scale = 1});
  EXPECT_FALSE(iterate(low, sgd, INFINITY));
  EXPECT_EQ(low.get_scale(), 0.5);
}

// A model in f16: with a scale of 2^24 the gradients overflow in f16, are skipped, and the scale
// comes down until steps are taken; without a scale small gradients vanish.
TEST(GradScaler, SurvivesRealF16Overflow) {
  manual_seed(2);
  nn::Linear model(16, 16);
  optim::AdamW adamw(model.parameters());
  GradScaler scaler({.init_scale = 0x1p24});
  const Tensor x = randn({8, 16});
  const Tensor y = randn({8, 16});
  int skipped = 0;
  int taken = 0;
  std::vector<double> before = model.weight.to_vector();
  for (int i = 0; i < 20; ++i) {
    Tensor loss;
    {
      const Autocast autocast({.dtype = DType::f16});
      const Tensor out = model(x);
      ASSERT_EQ(out.dtype(), DType::f16);
      loss = mse_loss(out, y);
      ASSERT_EQ(loss.dtype(), DType::f32);
    }
    adamw.zero_grad();
    scaler.scale(loss).backward();
    ASSERT_EQ(model.weight.grad().dtype(), DType::f32);
    const double scale = scaler.get_scale();
    const bool stepped = scaler.step(adamw);
    scaler.update();
    const std::vector<double> after = model.weight.to_vector();
    for (const double v : after) ASSERT_TRUE(std::isfinite(v));
    EXPECT_EQ(after == before, !stepped);
    EXPECT_EQ(scaler.get_scale(), stepped ? scale : scale / 2);
    before = after;
    ++(stepped ? taken : skipped);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_GT(taken, 10);
  EXPECT_EQ(adamw.state_dict().tensors.back().second.item(), taken) << "skipped steps do not count";
}

TEST(GradScaler, ScalingKeepsSmallF16GradientsThatVanishWithout) {
  const auto gradient = [](double scale) {
    Tensor p = full({1}, 1);
    p.set_requires_grad(true);
    optim::SGD sgd({p}, {.lr = 1});
    GradScaler scaler({.init_scale = scale});
    const Tensor half = to(p, DType::f16);
    scaler.scale(to(mul(half, 0x1p-30), DType::f32)).backward();  // f16 ends at 2^-24
    scaler.unscale_(sgd);
    return p.grad().item();
  };
  EXPECT_EQ(gradient(1), 0);
  EXPECT_EQ(gradient(32768), 0x1p-30);
}

TEST(GradScaler, UnscalesOnceAndClipsTrueGradients) {
  Tensor p = parameter();
  optim::SGD sgd({p}, {.lr = 1});
  GradScaler scaler;
  scaler.scale(sum(mul(p, 3.0))).backward();
  EXPECT_EQ(p.grad().to_vector()[0], 3.0 * 65536);
  scaler.unscale_(sgd);
  EXPECT_EQ(p.grad().to_vector()[0], 3);
  EXPECT_NEAR(optim::clip_grad_norm_(sgd.parameters(), 1), 3 * std::sqrt(2.0), 1e-6);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_NEAR(p.to_vector()[0], 1 - std::sqrt(0.5), 1e-6);
  scaler.update();
}

// Scaled gradients add up over micro-batches; unscaling, step and update come once, at the end.
TEST(GradScaler, AccumulatesScaledGradients) {
  Tensor p = parameter();
  Tensor q = parameter();
  optim::SGD sgd({p}, {.lr = 0.5});
  optim::SGD plain({q}, {.lr = 0.5});
  GradScaler scaler;
  const Tensor x = randn({5, 2});
  const auto loss = [](const Tensor& w, const Tensor& rows) { return mean(mul(rows, w)); };
  for (const optim::MicroBatch& part : optim::micro_batches(5, 2))
    scaler.scale(mul(loss(p, slice(x, 0, part.begin, part.end)), part.share)).backward();
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  loss(q, x).backward();
  plain.step();
  test::expect_golden(p, q.to_vector(), 1e-6, "accumulated");
}

TEST(GradScaler, EachOptimizerDecidesForItselfAndUpdateForAll) {
  Tensor good = parameter();
  Tensor bad = parameter();
  optim::SGD one({good}, {.lr = 0.5});
  optim::SGD two({bad}, {.lr = 0.5});
  GradScaler scaler;
  scaler.scale(sum(good)).backward();
  scaler.scale(sum(mul(bad, INFINITY))).backward();
  EXPECT_TRUE(scaler.step(one));
  EXPECT_FALSE(scaler.step(two));
  scaler.update();
  EXPECT_EQ(good.to_vector()[0], 0.5);
  EXPECT_EQ(bad.to_vector()[0], 1);
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(GradScaler, DisabledDoesNothing) {
  Tensor p = parameter();
  optim::SGD sgd({p}, {.lr = 1});
  GradScaler scaler({.enabled = false});
  const Tensor loss = sum(p);
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(sgd);
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  EXPECT_EQ(p.to_vector()[0], 0);
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(scaler.state_dict().metadata.empty());
}

TEST(GradScaler, StateReadsBack) {
  optim::SGD sgd({parameter()});
  GradScaler a(
      {.init_scale = 3, .growth_factor = 1.5, .backoff_factor = 0.1, .growth_interval = 7});
  iterate(a, sgd, INFINITY);
  iterate(a, sgd, 1);
  const optim::StateDict state = a.state_dict();
  EXPECT_EQ(state.metadata.at("_growth_tracker"), "1");
  EXPECT_EQ(state.metadata.at("growth_interval"), "7");
  GradScaler b;
  b.load_state_dict(state);
  EXPECT_EQ(b.get_scale(), a.get_scale());
  EXPECT_EQ(b.state_dict().metadata, state.metadata);
  EXPECT_ERROR(b.load_state_dict({}), "[load_state_dict] expected \"scale\", got no such key");
}

TEST(GradScaler, Messages) {
  EXPECT_ERROR(GradScaler({.growth_factor = 1}),
               "[GradScaler] expected a growth_factor above 1, got 1");
  EXPECT_ERROR(GradScaler({.backoff_factor = 1}),
               "[GradScaler] expected a backoff_factor in (0, 1), got 1");
  Tensor p = parameter();
  optim::SGD sgd({p});
  GradScaler scaler;
  EXPECT_ERROR(
      scaler.update(),
      "[update] expected unscale_() or step() before, got: No inf checks were recorded prior "
      "to update.");
  EXPECT_ERROR(
      scaler.step(sgd),
      "[step] expected parameters with gradients, got: No inf checks were recorded for this "
      "optimizer.");
  p.set_grad(ones({2}));
  scaler.unscale_(sgd);
  EXPECT_ERROR(
      scaler.unscale_(sgd),
      "[unscale_] expected one call per update(), got: unscale_() has already been called on "
      "this optimizer since the last update().");
  scaler.step(sgd);
  EXPECT_ERROR(
      scaler.step(sgd),
      "[step] expected one call per update(), got: step() has already been called since the "
      "last update().");
  EXPECT_ERROR(scaler.unscale_(sgd),
               "[unscale_] expected a call before step(), got: unscale_() is being called after "
               "step().");
  scaler.update(8.0);
  EXPECT_EQ(scaler.get_scale(), 8);
  Tensor half = full({2}, 1, DType::f16);
  half.set_requires_grad(true);
  half.set_grad(ones({2}, DType::f16));
  optim::SGD of_half({half});
  EXPECT_ERROR(scaler.unscale_(of_half),
               "[unscale_] expected f32 gradients (of f32 parameters), got f16[2]: Attempting to "
               "unscale FP16 gradients.");
}

// An infinite scale would skip every step and never come down.
TEST(GradScalerMessages, ScalesThatF32DoesNotHold) {
  const std::string start = "[GradScaler] expected a scale above 0 that f32 holds, got ";
  EXPECT_ERROR(GradScaler({.init_scale = 1e39}), start + "1e+39");
  EXPECT_ERROR(GradScaler({.init_scale = 1e-50}), start + "1e-50");
  GradScaler scaler;
  EXPECT_ERROR(scaler.update(INFINITY), start + "inf");
  EXPECT_ERROR(scaler.update(NAN), start + "nan");
  const auto load = [&](const std::string& key, const std::string& value) {
    optim::StateDict state = scaler.state_dict();
    state.metadata[key] = value;
    return message_of([&] { scaler.load_state_dict(state); });
  };
  EXPECT_EQ(load("scale", "inf"), start + "inf");
  EXPECT_EQ(load("_growth_tracker", "-1"),
            "[GradScaler] expected a _growth_tracker from 0 to below growth_interval, got -1");
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScaler, BacksOffToTheLeastScaleAboveZero) {
  Tensor p = ones({1});
  p.set_requires_grad(true);
  optim::SGD sgd({p});
  const double least = std::numeric_limits<float>::denorm_min();
  GradScaler scaler({.init_scale = least});
  p.set_grad(full({1}, NAN));
  EXPECT_FALSE(scaler.step(sgd));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), least);
}

}  // namespace epilogue::amp::grad_scaler_test
