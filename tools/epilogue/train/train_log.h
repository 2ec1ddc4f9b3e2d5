// SPDX-License-Identifier: Apache-2.0
// What a training run writes down: metrics as JSON lines, the learning curve as SVG.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/epilogue/train/trainer.h"

namespace epilogue::tool {

// DIR/metrics.jsonl, one object per line: {"event": "step", ...} for some steps, {"event": "epoch",
// ...} for each epoch. Numbers that do not exist are null.
class MetricsLog {
 public:
  // Lines up to `step` of an earlier session stay, later ones go: their steps come again.
  // Throws Error where the file cannot be written.
  MetricsLog(const std::string& path, int64_t step);
  void add(const Trainer& trainer, const StepReport& report, double images_per_s);
  void add(const Trainer& trainer, const EpochReport& report);

  // Of all sessions of the run.
  const std::vector<EpochReport>& epochs() const { return epochs_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<EpochReport> epochs_;
};

// Losses and test score over epochs.
std::string learning_curve_svg(const std::vector<EpochReport>& epochs, const std::string& title,
                               train::Task task);

}  // namespace epilogue::tool
