// SPDX-License-Identifier: Apache-2.0
// A trainer's step beside the loop that one would write by hand.
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "errors/message_of.h"
#include "support/test.h"
#include "train/same_bits.h"

namespace epilogue::train::trainer_test {

constexpr int64_t kRows = 8;
constexpr int64_t kSteps = 6;
constexpr int64_t kClasses = 4;

Examples some_examples(int64_t rows = kRows) {
  manual_seed(3);
  const Tensor x = randn({rows, 6});
  return {x, randint(0, kClasses, {rows})};
}

std::unique_ptr<nn::Sequential> some_network(uint64_t seed = 1) {
  manual_seed(seed);
  auto network = std::make_unique<nn::Sequential>();
  network->emplace<nn::Linear>(6, 16);
  network->emplace<nn::GELU>();
  network->emplace<nn::Dropout>(0.25);
  network->emplace<nn::Linear>(16, kClasses);
  return network;
}

NamedTensors copy_of(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, t] : tensors) copies.emplace_back(name, clone(t));
  return copies;
}

std::vector<double> steps_with(nn::Module& network, const TrainerOptions& o, const Examples& batch,
                               int64_t steps = kSteps) {
  Trainer trainer(network, o);
  manual_seed(7);
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i) losses.push_back(trainer.step(batch).loss);
  return losses;
}

// --- The loop, written by hand ------------------------------------------------------------------

std::unique_ptr<optim::Optimizer> optimizer_by_hand(Optimizer kind, const nn::Module& network) {
  if (kind == Optimizer::sgd)
    return std::make_unique<optim::SGD>(
        network.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.02});
  if (kind == Optimizer::adam)
    return std::make_unique<optim::Adam>(network.parameters(),
                                         optim::AdamOptions{.lr = 0.1, .weight_decay = 0.02});
  return std::make_unique<optim::AdamW>(network.parameters(),
                                        optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.02});
}

void steps_by_hand(nn::Module& network, const TrainerOptions& o, const Examples& batch) {
  const bool is_f16 = o.precision == Precision::f16;
  const auto optimizer = optimizer_by_hand(o.optimizer, network);
  optim::LrScheduler schedule(*optimizer, optim::cosine_lr(kSteps, 2));
  amp::GradScaler scaler({.init_scale = o.scaler.init_scale, .enabled = is_f16});
  std::optional<DType> dtype;
  if (o.precision != Precision::f32) dtype = is_f16 ? DType::f16 : DType::bf16;
  if (dtype) optimizer->keep_low_precision_copies(*dtype);
  manual_seed(7);
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (const auto& [begin, end, share] : optim::micro_batches(kRows, o.accumulate)) {
      Tensor loss;
      {
        std::optional<amp::Autocast> autocast;
        if (dtype) autocast.emplace(amp::AutocastOptions{.dtype = dtype});
        loss = cross_entropy(network(slice(batch.inputs, 0, begin, end)),
                             slice(batch.targets, 0, begin, end));
      }
      scaler.scale(mul(loss, share)).backward();
    }
    scaler.unscale_(*optimizer);
    if (o.clip_norm) optim::clip_grad_norm_(optimizer->parameters(), *o.clip_norm);
    scaler.step(*optimizer);
    scaler.update();
    schedule.step();
  }
}

struct Case {
  const char* name;
  Optimizer optimizer;
  Precision precision;
  int64_t accumulate;
  std::optional<double> clip_norm;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class TrainerSteps : public testing::TestWithParam<Case> {};

TEST_P(TrainerSteps, HaveTheBitsOfALoopByHand) {
  const TrainerOptions o = {.optimizer = GetParam().optimizer,
                            .lr = 0.1,
                            .weight_decay = 0.02,
                            .schedule = Schedule::cosine,
                            .total_steps = kSteps,
                            .warmup_steps = 2,
                            .clip_norm = GetParam().clip_norm,
                            .accumulate = GetParam().accumulate,
                            .precision = GetParam().precision,
                            .scaler = {.init_scale = 256}};
  const Examples batch = some_examples();
  const auto by_hand = some_network(), by_trainer = some_network(), untouched = some_network();
  steps_by_hand(*by_hand, o, batch);
  steps_with(*by_trainer, o, batch);
  expect_same_tensors(by_hand->state_dict(), by_trainer->state_dict());
  const Tensor before = untouched->state_dict()[0].second;
  EXPECT_NE(std::memcmp(before.data(), by_trainer->state_dict()[0].second.data(), before.bytes()),
            0);
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainerSteps,
    testing::Values(Case{"adamw", Optimizer::adamw, Precision::f32, 1, {}},
                    Case{"adam_clipped", Optimizer::adam, Precision::f32, 1, 0.1},
                    Case{"sgd_in_parts", Optimizer::sgd, Precision::f32, 3, {}},
                    Case{"sgd_in_parts_clipped", Optimizer::sgd, Precision::f32, 3, 0.1},
                    Case{"adamw_bf16", Optimizer::adamw, Precision::bf16, 2, 0.1},
                    Case{"adamw_f16", Optimizer::adamw, Precision::f16, 1, {}},
                    Case{"sgd_f16_in_parts_clipped", Optimizer::sgd, Precision::f16, 3, 0.1}),
    [](const auto& c) { return std::string(c.param.name); });

// --- Micro-batches, clipping, scaling -----------------------------------------------------------

TEST(Trainer, MicroBatchesMakeTheStepOfTheWholeBatchToRounding) {
  const Examples batch = some_examples();
  for (const Mode mode : {Mode::eager, Mode::compile}) {
    SCOPED_TRACE(mode == Mode::eager ? "eager" : "compile");
    const auto whole = some_network(), parts = some_network();
    whole->eval();  // dropout would draw other masks
    parts->eval();
    TrainerOptions o = {.optimizer = Optimizer::sgd, .lr = 0.1, .mode = mode};
    const auto losses = steps_with(*whole, o, batch);
    o.accumulate = 3;  // of 3, 3 and 2 rows
    const auto losses_of_parts = steps_with(*parts, o, batch);
    ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], losses_of_parts[i], 1e-5 * losses[i]);
    EXPECT_LT(losses.back(), losses.front());
    const NamedTensors a = whole->state_dict(), b = parts->state_dict();
    for (size_t i = 0; i < a.size(); ++i) {
      const auto x = a[i].second.to_vector(), y = b[i].second.to_vector();
      for (size_t j = 0; j < x.size(); ++j) EXPECT_NEAR(x[j], y[j], 1e-5) << a[i].first;
    }
  }
}

TEST(Trainer, AClippedStepIsAsLongAsTheNormAllows) {
  constexpr double kNorm = 0.01;
  const Examples batch = some_examples();
  const auto network = some_network();
  const NamedTensors before = copy_of(network->state_dict());
  // p -= 1 x the clipped gradient: the step is the gradient.
  Trainer trainer(*network,
                  {.optimizer = Optimizer::sgd, .lr = 1.0, .momentum = 0, .clip_norm = kNorm});
  const StepReport report = trainer.step(batch);
  ASSERT_TRUE(report.grad_norm.has_value());
  EXPECT_GT(*report.grad_norm, 10 * kNorm);
  double squares = 0;
  const NamedTensors after = network->state_dict();
  for (size_t i = 0; i < before.size(); ++i) {
    const auto x = before[i].second.to_vector(), y = after[i].second.to_vector();
    for (size_t j = 0; j < x.size(); ++j) squares += (x[j] - y[j]) * (x[j] - y[j]);
  }
  EXPECT_NEAR(std::sqrt(squares), kNorm, 1e-5);
}

TEST(Trainer, AnOverflowSkipsTheStepAndIsCounted) {
  const Examples batch = some_examples();
  const auto network = some_network();
  const NamedTensors before = copy_of(network->state_dict());
  Trainer trainer(*network, {.precision = Precision::f16, .scaler = {.init_scale = 0x1p40}});
  StepReport report = trainer.step(batch);
  EXPECT_TRUE(report.skipped);
  EXPECT_FALSE(report.diverged);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(*report.scale, 0x1p39);
  EXPECT_TRUE(std::isfinite(report.loss));
  expect_same_tensors(before, network->state_dict());
  int64_t skipped = 1;
  for (int i = 0; i < 60 && report.skipped; ++i) {
    report = trainer.step(batch);
    skipped += report.skipped ? 1 : 0;
  }
  EXPECT_FALSE(report.skipped);
  EXPECT_EQ(trainer.skipped_steps(), skipped);
  EXPECT_NE(std::memcmp(before[0].second.data(), network->state_dict()[0].second.data(),
                        before[0].second.bytes()),
            0);
}

TEST(Trainer, ALossThatIsNotFiniteLeavesTheWeights) {
  Examples batch = some_examples();
  batch.inputs = mul(batch.inputs, std::numeric_limits<double>::infinity());
  const auto network = some_network();
  const NamedTensors before = copy_of(network->state_dict());
  Trainer trainer(*network, {});
  EXPECT_TRUE(trainer.step(batch).diverged);
  expect_same_tensors(before, network->state_dict());
}

TEST(Trainer, AScaleThatNeverRecoversHasDiverged) {
  Examples batch = some_examples();
  batch.inputs = mul(batch.inputs, std::numeric_limits<double>::infinity());
  const auto network = some_network();
  Trainer trainer(*network, {.precision = Precision::f16, .scaler = {.init_scale = 0x1p-18}});
  EXPECT_FALSE(trainer.step(batch).diverged);  // 2^-19
  EXPECT_FALSE(trainer.step(batch).diverged);  // 2^-20
  EXPECT_TRUE(trainer.step(batch).diverged);   // 2^-21
  EXPECT_EQ(trainer.skipped_steps(), 3);
}

// --- Modes, rates, what a report holds ----------------------------------------------------------

TEST(Trainer, StepsThatDoNotReadTheirLossHaveTheSameBits) {
  const Examples batch = some_examples();
  for (const Mode mode : {Mode::eager, Mode::compile})
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(accumulate);
      const auto reads = some_network(), lends = some_network();
      TrainerOptions o = {.clip_norm = 0.1, .accumulate = accumulate, .mode = mode};
      steps_with(*reads, o, batch);
      o.reads_loss = false;
      EXPECT_TRUE(std::isnan(steps_with(*lends, o, batch).front()));
      expect_same_tensors(reads->state_dict(), lends->state_dict());
      // A plan's loans are gone after the step: no copy was made.
      for (const auto* network : {reads.get(), lends.get()})
        for (const Tensor& p : network->parameters())
          EXPECT_EQ(p.grad().defined(), mode == Mode::eager);
    }
}

TEST(Trainer, TheUnreadLossIsThatOfTheLastMicroBatch) {
  const Examples batch = some_examples();
  const auto network = some_network();
  network->eval();
  const double expected =
      cross_entropy((*network)(slice(batch.inputs, 0, 4, 8)), slice(batch.targets, 0, 4, 8)).item();
  Trainer trainer(*network, {.accumulate = 2, .reads_loss = false});
  EXPECT_EQ(trainer.step(batch).unread_loss.item(), expected);
}

TEST(Trainer, CompiledStepsLearnWhatEagerOnesLearn) {
  const Examples batch = some_examples();
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    const auto eager = some_network(), compiled = some_network();
    const auto a = steps_with(*eager, {.precision = precision}, batch);
    const auto b = steps_with(*compiled, {.precision = precision, .mode = Mode::compile}, batch);
    const double tolerance = precision == Precision::f32 ? 1e-4 : 2e-2;
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * a[i]) << i;
    EXPECT_LT(b.back(), b.front());
  }
}

TEST(Trainer, AReportCountsRightAnswersAndSaysTheRate) {
  const Examples batch = some_examples();
  const auto network = some_network();
  network->eval();
  const Tensor outputs = (*network)(batch.inputs).detach();
  int64_t right = 0;
  const auto values = outputs.to_vector(), targets = batch.targets.to_vector();
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = values.begin() + i * kClasses;
    right += static_cast<double>(std::max_element(row, row + kClasses) - row) ==
                     targets[static_cast<size_t>(i)]
                 ? 1
                 : 0;
  }
  const auto same = some_network();
  same->eval();
  Trainer compiled(*same, {.accumulate = 2, .mode = Mode::compile});
  EXPECT_EQ(compiled.step(batch).correct, right);
  Trainer trainer(*network, {.schedule = Schedule::step, .total_steps = 12, .warmup_steps = 0});
  std::vector<double> rates;
  for (int i = 0; i < 12; ++i) {
    const StepReport report = trainer.step(batch);
    if (i == 0) {
      EXPECT_EQ(report.correct, right);
      EXPECT_EQ(report.examples, kRows);
    }
    EXPECT_FALSE(report.grad_norm.has_value());
    EXPECT_FALSE(report.scale.has_value());
    rates.push_back(report.lr);
  }
  for (size_t i = 0; i < rates.size(); ++i)
    EXPECT_NEAR(rates[i], 0.002 * std::pow(0.1, static_cast<double>(i / 4)), 1e-12) << i;
}

TEST(Trainer, AWarmUpRisesFromZero) {
  const Examples batch = some_examples();
  for (const Schedule schedule : {Schedule::constant, Schedule::cosine, Schedule::step}) {
    const auto network = some_network();
    Trainer trainer(*network,
                    {.lr = 1e-3, .schedule = schedule, .total_steps = 20, .warmup_steps = 4});
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(trainer.step(batch).lr, 1e-3 * i / 4, 1e-12);
  }
}

TEST(Trainer, DefaultsFollowOptimizerAndSchedule) {
  const TrainerOptions adamw = with_defaults({.schedule = Schedule::cosine, .total_steps = 100});
  EXPECT_EQ(adamw.lr, 0.002);
  EXPECT_EQ(adamw.weight_decay, 0.01);
  EXPECT_EQ(adamw.warmup_steps, 5);
  const TrainerOptions sgd = with_defaults({.optimizer = Optimizer::sgd, .total_steps = 100});
  EXPECT_EQ(sgd.lr, 0.05);
  EXPECT_EQ(sgd.weight_decay, 0);
  EXPECT_EQ(sgd.warmup_steps, 0);
  EXPECT_EQ(with_defaults({.optimizer = Optimizer::adam}).weight_decay, 0);
  EXPECT_EQ(with_defaults({.lr = 1.0, .weight_decay = 2.0, .warmup_steps = 3}).lr, 1.0);
}

// --- Misuse -------------------------------------------------------------------------------------

std::string refused(const TrainerOptions& options) {
  const auto network = some_network();
  return test::message_of([&] { Trainer trainer(*network, options); });
}

TEST(Trainer, RefusesOptionsThatDoNotFitTogether) {
  EXPECT_EQ(refused({.accumulate = 0}), "[Trainer] expected 1 or more micro-batches, got 0");
  EXPECT_EQ(refused({.clip_norm = 0.0}), "[Trainer] expected a clip_norm above 0, got 0");
  EXPECT_EQ(refused({.schedule = Schedule::cosine}),
            "[Trainer] expected total_steps, which the schedule is spread over, got none");
  EXPECT_EQ(refused({.schedule = Schedule::step, .total_steps = 4, .warmup_steps = 4}),
            "[Trainer] expected fewer warmup_steps than the 4 steps of the run, got 4");
  EXPECT_EQ(refused({.warmup_steps = -1}), "[Trainer] expected warmup_steps of 0 or more, got -1");
  EXPECT_EQ(refused({.total_steps = -1}), "[Trainer] expected total_steps of 0 or more, got -1");
  EXPECT_EQ(refused({.plan = "packed"}),
            "[Trainer] expected Mode::compile beside a plan, got Mode::eager");
  EXPECT_EQ(refused({.lr = -1.0}), "[AdamW] expected a finite learning rate >= 0, got -1");
}

TEST(Trainer, RefusesEmptyBatchesAndRows) {
  const auto network = some_network();
  Trainer trainer(*network, {});
  const Examples batch = some_examples();
  EXPECT_ERROR(trainer.step(batch.rows(0, 0)),
               "[Trainer] expected a batch of 1 or more examples, got 0");
  EXPECT_ERROR(trainer.evaluate(batch, {}, 0), "[Trainer] expected 1 or more rows at once, got 0");
}

}  // namespace epilogue::train::trainer_test
