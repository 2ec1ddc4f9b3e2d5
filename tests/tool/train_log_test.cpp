// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl of a run that was stopped, perhaps in the middle of a line.
#include "tools/epilogue/train/train_log.h"

#include "io/files.h"
#include "support/test.h"

namespace epilogue::tool::train_log_test {

using namespace io_test;

const std::string kStep3 = R"({"event":"step","step":3,"loss":0.5})"
                           "\n";
const std::string kEpoch1 =
    R"({"epoch":1,"event":"epoch","step":5,"test_accuracy":0.75,"test_loss":0.25,"train_loss":null})"
    "\n";
const std::string kStep6 = R"({"event":"step","step":6,"loss":0.4})"
                           "\n";

TEST(MetricsLog, KeepsTheLinesUpToTheStep) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  write_bytes(path, kStep3 + kEpoch1 + kStep6);
  const MetricsLog log(path, 5);
  EXPECT_EQ(read_bytes(path), kStep3 + kEpoch1);
  ASSERT_EQ(log.epochs().size(), 1U);
  const EpochScore& e = log.epochs().front();
  EXPECT_EQ(e.epoch, 1);
  EXPECT_EQ(e.step, 5);
  EXPECT_EQ(e.test_score, 0.75);
  EXPECT_EQ(e.test_loss, 0.25);
  EXPECT_TRUE(std::isnan(e.train_loss));
  EXPECT_FALSE(e.train_accuracy.has_value());
}

TEST(MetricsLog, DropsWhatIsNoLine) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  write_bytes(path, "\n[1]\n{\"step\":\"2\"}\nnull\n" + kStep3 + kEpoch1.substr(0, 20));
  const MetricsLog log(path, 100);
  EXPECT_EQ(read_bytes(path), kStep3);
  EXPECT_TRUE(log.epochs().empty());
}

TEST(MetricsLog, StartsWithoutAFileAndRefusesAFolder) {
  const TempFolder folder;
  const MetricsLog log(folder / "new.jsonl", 0);
  EXPECT_EQ(read_bytes(folder / "new.jsonl"), "");
  EXPECT_THROW(MetricsLog(folder.path(), 0), Error);
}

TEST(ScoreOf, RmseIsInUnitsOfTheTarget) {
  TrainData data;
  data.task = train::Task::regression;
  data.meaning.emplace();
  data.meaning->target_std = 10;
  train::EpochReport report{.epoch = 2, .step = 8, .train_loss = 0.5};
  report.test = {.loss = 0.25, .r2 = 0.75};
  const EpochScore score = score_of(report, data);
  EXPECT_EQ(score.test_rmse, 5);
  EXPECT_EQ(score.test_score, 0.75);
  report.test = {.loss = 0.25, .accuracy = 0.5};
  EXPECT_EQ(score_of(report, data).test_score, 0.5);
  EXPECT_EQ(score_of(report, data).test_rmse, 0);
}

TEST(LearningCurve, HasALineForEachSeries) {
  const std::vector<EpochScore> epochs = {
      {.epoch = 1, .train_loss = 1, .test_loss = 1.1, .test_score = 0.5},
      {.epoch = 2, .train_loss = 0.5, .test_loss = 0.6, .test_score = 0.8}};
  const std::string svg = learning_curve_svg(epochs, "mlp on <t>", train::Task::classification);
  for (const char* text : {"training loss", "test loss", "test accuracy", "mlp on &lt;t&gt;"})
    EXPECT_HAS(svg, text) << text;
  EXPECT_LACKS(svg, "<t>");
  EXPECT_HAS(learning_curve_svg(epochs, "", train::Task::regression), "test R2");
}

}  // namespace epilogue::tool::train_log_test
