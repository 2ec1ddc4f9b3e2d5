// SPDX-License-Identifier: Apache-2.0
// Runs over epochs: their order, and that a run which was stopped ends with the same bits.
#include "epilogue/checkpoint.h"
#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"
#include "train/same_bits.h"

namespace epilogue::train::epochs_test {

using io_test::TempFolder;

constexpr int64_t kRows = 37;  // the last batch of an epoch is short
constexpr int64_t kBatch = 8;
constexpr int64_t kEpochs = 3;
constexpr int64_t kSteps = 15;

Examples some_examples(uint64_t seed, int64_t rows = kRows) {
  manual_seed(seed);
  const Tensor x = randn({rows, 6});
  return {x, randint(0, 4, {rows})};
}

struct Setup {
  const char* name;
  TrainerOptions options;
};
void PrintTo(const Setup& s, std::ostream* out) { *out << s.name; }

// One process's share of a run: everything is made anew, as after a restart.
class Process {
 public:
  explicit Process(TrainerOptions options, uint64_t seed = 1) {
    options.schedule = Schedule::cosine;
    options.total_steps = kSteps;
    const Examples training = some_examples(3), test = some_examples(4, 10);
    manual_seed(seed);
    network_.emplace<nn::Linear>(6, 16);
    network_.emplace<nn::GELU>();
    network_.emplace<nn::Dropout>(0.25);  // draws random numbers: the generator's state matters
    network_.emplace<nn::Linear>(16, 4);
    trainer_.emplace(network_, options);
    epochs_.emplace(*trainer_, training, test,
                    EpochsOptions{.count = kEpochs, .batch = kBatch, .seed = 5});
  }

  void steps_to(int64_t step) {
    while (epochs_->position().step < step) {
      ASSERT_FALSE(epochs_->step().diverged);
      if (epochs_->ends_epoch()) reports_.push_back(epochs_->end_epoch());
    }
  }
  Epochs& epochs() { return *epochs_; }
  Trainer& trainer() { return *trainer_; }
  const std::vector<EpochReport>& reports() const { return reports_; }

 private:
  nn::Sequential network_;
  std::optional<Trainer> trainer_;
  std::optional<Epochs> epochs_;
  std::vector<EpochReport> reports_;
};

StateDict without_times(StateDict state) {
  EXPECT_EQ(state.metadata.erase("position.step_s"), 1U);
  EXPECT_EQ(state.metadata.erase("position.total_s"), 1U);
  return state;
}

class EpochsResume : public testing::TestWithParam<Setup> {};

TEST_P(EpochsResume, EndsWithTheSameBits) {
  Process whole(GetParam().options);
  whole.steps_to(kSteps);
  EXPECT_TRUE(whole.epochs().is_done());
  ASSERT_EQ(whole.reports().size(), static_cast<size_t>(kEpochs));
  const StateDict expected = without_times(whole.epochs().state());

  for (const int64_t stop : {0, 1, 5, 7, 14, 15}) {
    SCOPED_TRACE(stop);
    const TempFolder folder;
    const CheckpointFolder checkpoints(folder.path());
    {
      Process first(GetParam().options);
      first.steps_to(stop);
      ASSERT_TRUE(checkpoints.save(stop, first.epochs().state()).ok());
    }
    Process second(GetParam().options, 2);  // other weights until it has loaded
    second.epochs().load(checkpoints.load().value().state);
    EXPECT_EQ(second.epochs().position().step, stop);
    second.steps_to(kSteps);
    const StateDict state = without_times(second.epochs().state());
    EXPECT_EQ(state.metadata, expected.metadata);
    expect_same_tensors(state.tensors, expected.tensors);
    if (stop < kSteps) {
      EXPECT_EQ(second.reports().back().test.loss, whole.reports().back().test.loss);
      EXPECT_EQ(second.reports().back().train_loss, whole.reports().back().train_loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EpochsResume,
    testing::Values(Setup{"eager", {}}, Setup{"compiled", {.mode = Mode::compile}},
                    Setup{"sgd_in_parts_clipped",
                          {.optimizer = Optimizer::sgd, .clip_norm = 0.2, .accumulate = 3}},
                    Setup{"f16",
                          {.precision = Precision::f16,
                           .scaler = {.init_scale = 0x1p26, .growth_interval = 4}}}),
    [](const auto& setup) { return std::string(setup.param.name); });

TEST(Epochs, TakeTheBatchesOfTheSeededOrder) {
  Process process({});
  const Examples training = some_examples(3);
  Process other({});
  for (int64_t step = 0; step < kSteps; ++step) {
    const EpochBatches batches(training, kBatch, 5, step / 5);
    manual_seed(static_cast<uint64_t>(step));
    const double expected = other.trainer().step(batches.batch(step % 5)).loss;
    manual_seed(static_cast<uint64_t>(step));
    EXPECT_EQ(process.epochs().step().loss, expected) << step;
    EXPECT_EQ(process.epochs().ends_epoch(), step % 5 == 4);
    if (process.epochs().ends_epoch()) process.epochs().end_epoch();
  }
  EXPECT_TRUE(process.epochs().is_done());
  EXPECT_EQ(process.epochs().total_steps(), kSteps);
}

TEST(Epochs, AReportHasTheMeansOfItsEpoch) {
  Process process({});
  double loss = 0;
  int64_t correct = 0;
  while (!process.epochs().ends_epoch()) {
    const StepReport step = process.epochs().step();
    loss += step.loss * static_cast<double>(step.examples);
    correct += *step.correct;
  }
  EXPECT_EQ(process.epochs().position().seen, kRows);
  const Evaluation test = process.trainer().evaluate(some_examples(4, 10));
  const EpochReport report = process.epochs().end_epoch();
  EXPECT_EQ(report.epoch, 1);
  EXPECT_EQ(report.step, 5);
  EXPECT_EQ(report.train_loss, loss / static_cast<double>(kRows));
  EXPECT_EQ(*report.train_accuracy, static_cast<double>(correct) / static_cast<double>(kRows));
  EXPECT_EQ(report.test.loss, test.loss);
  EXPECT_EQ(report.test.accuracy, test.accuracy);
  const Position& at = process.epochs().position();
  EXPECT_EQ(at.seen, 0);
  EXPECT_EQ(at.epoch, 1);
  EXPECT_GT(at.in_steps.count(), 0);
  EXPECT_GT(at.total, at.in_steps);
}

TEST(Epochs, AStepThatDivergedBeforeItsUpdateDoesNotCount) {
  nn::Linear network(6, 4);
  Trainer trainer(network, {});
  Examples training = some_examples(3);
  training.inputs = mul(training.inputs, std::numeric_limits<double>::infinity());
  Epochs epochs(trainer, training, training, {});
  EXPECT_TRUE(epochs.step().diverged);
  EXPECT_EQ(epochs.position().step, 0);
  EXPECT_EQ(epochs.position().batch, 0);
}

TEST(Epochs, RefuseStatesOfOtherDataAndPositions) {
  Process process({});
  process.steps_to(2);
  const StateDict good = process.epochs().state();
  EXPECT_EQ(process.epochs().mismatch(good), "");

  StateDict state = good;
  state.metadata["data.fingerprint"] = "0badf00d";
  const std::string sum = good.metadata.at("data.fingerprint");
  EXPECT_ERROR(process.epochs().load(state),
               "[Epochs] expected the data that the run began with (check sum 0badf00d), got other "
               "data (" +
                   sum + ")");
  state.metadata.erase("data.fingerprint");
  EXPECT_EQ(
      process.epochs().mismatch(state),
      "expected the data that the run began with (check sum none), got other data (" + sum + ")");
  for (const auto& [key, value] : {std::pair("epoch", "-1"), std::pair("epoch", "4"),
                                   std::pair("batch", "-1"), std::pair("batch", "5")}) {
    state = good;
    state.metadata[std::string("position.") + key] = value;
    EXPECT_HAS(process.epochs().mismatch(state), "expected a position within 3 epochs")
        << key << value;
  }
  state = good;
  state.metadata["position.step"] = "x";
  EXPECT_THROW(process.epochs().load(state), Error);
  EXPECT_EQ(process.epochs().position().step, 2);
}

TEST(Epochs, RefuseMisuse) {
  nn::Linear network(6, 4);
  Trainer trainer(network, {});
  const Examples some = some_examples(3);
  const auto refused = [&](const Examples& training, EpochsOptions options) {
    return test::message_of([&] { Epochs epochs(trainer, training, some, options); });
  };
  EXPECT_EQ(refused(some, {.count = 0}),
            "[Epochs] expected 1 or more epochs and examples per step, got 0 and 32");
  EXPECT_EQ(refused(some, {.batch = 0}),
            "[Epochs] expected 1 or more epochs and examples per step, got 1 and 0");
  EXPECT_EQ(refused(some.rows(0, 0), {}), "[Epochs] expected training examples, got none");
  Epochs epochs(trainer, some, some, {.batch = kRows});
  epochs.step();
  EXPECT_TRUE(epochs.ends_epoch());
  EXPECT_THROW(epochs.step(), Error);
}

TEST(StepsPerEpoch, CountsTheShortBatch) {
  EXPECT_EQ(steps_per_epoch(37, 8), 5);
  EXPECT_EQ(steps_per_epoch(40, 8), 5);
  EXPECT_EQ(steps_per_epoch(1, 8), 1);
  EXPECT_EQ(steps_per_epoch(0, 8), 0);
}

}  // namespace epilogue::train::epochs_test
