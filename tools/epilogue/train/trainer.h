// SPDX-License-Identifier: Apache-2.0
// A training run: network, optimizer, schedule and position, one optimizer step at a time. What it
// is at a step is a function of its flags and data alone, however often it was stopped in between.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "epilogue/checkpoint.h"
#include "tools/epilogue/train/train_data.h"

namespace epilogue::tool {

// Metadata of a checkpoint: threads and instruction set, on which the last bits of sums depend.
inline constexpr const char* kMachineKey = "machine";

// What a micro-batch gave.
struct MicroResult {
  double loss = 0;                 // mean over its examples
  std::optional<int64_t> correct;  // right answers; empty where they are not known
};
// Adds the gradients of `weight` times the mean loss of these examples to the parameters' .grad.
// How that is done is what --mode says; all else of a step is the same.
using GradientFunction = std::function<MicroResult(const train::Examples&, double weight)>;

struct Position {
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // epochs done
  int64_t batch = 0;  // batches done of the epoch after those
  // Of the epoch at hand:
  double loss_sum = 0;  // over examples
  int64_t seen = 0;
  int64_t correct = 0;
  bool knows_correct = true;
  // Of the whole run:
  double step_s = 0;   // in steps
  double total_s = 0;  // in steps and evaluations
};

struct StepReport {
  int64_t examples = 0;
  double loss = 0;  // mean
  double lr = 0;
  std::optional<double> grad_norm;  // before clipping
  std::optional<double> scale;      // of the loss, in f16
  bool skipped = false;             // gradients overflowed in f16
  bool diverged = false;            // the loss is not finite; the weights are untouched
  bool epoch_ended = false;
};

struct EpochReport {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;
  double train_loss = 0;
  std::optional<double> train_accuracy;
  double test_loss = 0;
  double test_score = 0;  // accuracy, or R^2 (NaN where all targets agree)
  double test_rmse = 0;   // regression: in units of the target
};

class Trainer {
 public:
  // Seeds the generator and makes the network on `device`, where all steps run; the data stay on
  // the host. Throws Error on misuse.
  Trainer(TrainRun run, TrainData data, Device device = {});

  bool is_done() const { return position_.epoch >= run_.epochs; }
  StepReport step();
  // The epoch that step() just ended, and how the network does on the test examples.
  EpochReport end_epoch();

  int64_t total_steps() const { return total_steps_; }
  const Position& position() const { return position_; }
  const TrainRun& run() const { return run_; }
  // The same with the plan that was measured: what a run that resumes must know.
  TrainRun recorded_run() const {
    TrainRun run = run_;
    run.plan = *plan_;
    return run;
  }
  const TrainData& data() const { return data_; }
  const nn::Module& network() const { return *network_; }
  Device device() const { return device_; }

  // Everything a checkpoint holds; the flags are its part "config".
  train::StateDict state();
  // Throws Error where it is not a state of this run or these data.
  void load(const train::StateDict& state);

 private:
  bool apply_gradients(StepReport* report);
  void advance(double loss, std::optional<int64_t> correct, int64_t examples);

  TrainRun run_;
  std::shared_ptr<std::string> plan_ = std::make_shared<std::string>(run_.plan);
  TrainData data_;
  Device device_;
  uint32_t fingerprint_;
  int64_t total_steps_;
  std::shared_ptr<nn::Module> network_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LrScheduler schedule_;
  amp::GradScaler scaler_;
  GradientFunction gradients_;
  std::optional<train::EpochBatches> batches_;
  Position position_;
};

}  // namespace epilogue::tool
