// SPDX-License-Identifier: Apache-2.0
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "errors/message_of.h"
#include "nn/golden.h"

namespace epilogue::optim::lr_schedule_test {

Tensor scalar_parameter() {
  Tensor p = zeros({1});
  p.set_requires_grad(true);
  return p;
}

void expect_rates(LrFactor factor, const nlohmann::json& expected) {
  SGD sgd({scalar_parameter()}, {.lr = 0.5});
  LrScheduler schedule(sgd, std::move(factor));
  for (const double rate : expected) {
    EXPECT_NEAR(sgd.lr(), rate, 1e-15);
    sgd.step();
    schedule.step();
  }
  EXPECT_EQ(schedule.last_step(), static_cast<int64_t>(expected.size()));
}

TEST(LrSchedule, EqualsPyTorchs) {
  const nlohmann::json& data = test::golden()["schedules"];
  expect_rates(step_lr(3, 0.5), data["step"]);
  expect_rates(cosine_lr(11), data["cosine"]);
  expect_rates(cosine_lr(11, 0, 0.1), data["cosine_min"]);
}

// Worked out from the formula: 4 steps up, then half a cosine over 8.
TEST(LrSchedule, WarmUpThenCosine) {
  const LrFactor f = cosine_lr(12, 4);
  EXPECT_EQ(f(0), 0);
  EXPECT_EQ(f(1), 0.25);
  EXPECT_EQ(f(4), 1);
  EXPECT_NEAR(f(6), 0.8535533905932737, 1e-15);  // (1 + cos(pi / 4)) / 2
  EXPECT_NEAR(f(8), 0.5, 1e-15);
  EXPECT_NEAR(f(12), 0, 1e-15);
  EXPECT_NEAR(f(100), 0, 1e-15) << "it stays there";
  EXPECT_NEAR(cosine_lr(12, 4, 0.1)(8), 0.55, 1e-15);
  EXPECT_EQ(constant_lr()(7), 1);
}

TEST(LrSchedule, ScalesEachGroupFromItsOwnRate) {
  SGD sgd({ParamGroup<SGDOptions>{{scalar_parameter()}, {.lr = 1}},
           ParamGroup<SGDOptions>{{scalar_parameter()}, {.lr = 0.1}}});
  LrScheduler schedule(sgd, step_lr(1, 0.5));
  schedule.step();
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(sgd.lr(1), 0.05);
}

// The optimizer's state brings the rate of the stop; the schedule's brings what it started from.
TEST(LrSchedule, ResumesFromItsState) {
  SGD a({scalar_parameter()}, {.lr = 0.3});
  LrScheduler one(a, cosine_lr(10, 2));
  for (int i = 0; i < 5; ++i) one.step();
  SGD b({scalar_parameter()}, {.lr = 7});
  b.load_state_dict(a.state_dict());
  LrScheduler two(b, cosine_lr(10, 2));
  two.load_state_dict(one.state_dict());
  EXPECT_EQ(two.last_step(), 5);
  EXPECT_EQ(b.lr(), a.lr());
  one.step();
  two.step();
  EXPECT_EQ(b.lr(), a.lr());
}

TEST(LrSchedule, Messages) {
  EXPECT_ERROR(step_lr(0), "[step_lr] expected a step_size of 1 or more, got 0");
  EXPECT_ERROR(cosine_lr(4, 4),
               "[cosine_lr] expected 0 <= warmup_steps < total_steps, got 4 and 4");
  SGD sgd({scalar_parameter()});
  LrScheduler schedule(sgd, constant_lr());
  EXPECT_ERROR(schedule.load_state_dict({}),
               "[load_state_dict] expected \"last_step\", got no such key");
  EXPECT_ERROR(
      schedule.load_state_dict({{}, {{"last_step", "1"}, {"base_lr.0", "1"}, {"base_lr.1", "1"}}}),
      "[load_state_dict] expected learning rates of 1 groups, got more");
}

}  // namespace epilogue::optim::lr_schedule_test
