// SPDX-License-Identifier: Apache-2.0
// The files of a training run: metrics as JSON lines, the learning curve as SVG.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/epilogue/train/live_run.h"

namespace epilogue::tool {

// An epoch as the command tells of it.
struct EpochScore {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;
  double train_loss = 0;
  std::optional<double> train_accuracy;
  double test_loss = 0;
  double test_score = 0;  // accuracy, or R^2 (NaN where all targets agree)
  double test_rmse = 0;   // regression: in units of the target
};
EpochScore score_of(const train::EpochReport& report, const TrainData& data);

// DIR/metrics.jsonl, one object per line: {"event": "step", ...} for some steps, {"event": "epoch",
// ...} for each epoch. Numbers that do not exist are null.
class MetricsLog {
 public:
  // Lines up to `step` of an earlier session stay, later ones go: their steps come again.
  // Throws Error where the file cannot be written.
  MetricsLog(const std::string& path, int64_t step);
  void add(const LiveRun& run, const train::StepReport& report, double images_per_s);
  void add(const LiveRun& run, const EpochScore& score);

  // Records of all sessions of the run.
  const std::vector<EpochScore>& epochs() const { return epochs_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<EpochScore> epochs_;
};

// Losses and test score over epochs.
std::string learning_curve_svg(const std::vector<EpochScore>& epochs, const std::string& title,
                               train::Task task);

}  // namespace epilogue::tool
