// SPDX-License-Identifier: Apache-2.0
// Training: the order of a step, and the epochs of a data set.
//
//   nn::Sequential network;  // [n, 784] -> [n, 10]
//   ...
//   train::Trainer trainer(network, {.schedule = train::Schedule::cosine,
//                                    .total_steps = 8 * train::steps_per_epoch(60000, 256),
//                                    .clip_norm = 1.0,
//                                    .precision = train::Precision::bf16});
//   train::Epochs epochs(trainer, training, test, {.count = 8, .batch = 256});
//   while (!epochs.is_done()) {
//     if (epochs.step().diverged) break;
//     if (epochs.ends_epoch()) std::cout << epochs.end_epoch().test.loss << "\n";
//   }
//
// A step of a Trainer without Epochs: trainer.step({inputs, targets}).
//
// Not thread-safe: one thread works with a trainer, its network and its epochs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "epilogue/checkpoint.h"
#include "epilogue/compile.h"
#include "epilogue/data.h"

#pragma GCC visibility push(default)

namespace epilogue::train {

using Seconds = std::chrono::duration<double>;

// cross_entropy: outputs [n, classes], targets i64 [n]. mse: targets like the outputs.
enum class Loss : uint8_t { cross_entropy, mse };
enum class Optimizer : uint8_t { adamw, adam, sgd };
// The schedule after the warm-up. cosine: down to 0 at total_steps. step: x0.1 after each third.
enum class Schedule : uint8_t { constant, cosine, step };
// The dtype of matrix products; the loss and the weights stay f32. bf16 and f16 run under autocast,
// f16 with a GradScaler. f32 leaves every op its own dtype.
enum class Precision : uint8_t { f32, bf16, f16 };
// compile: forward, loss and backward are one plan of compile_step(); the optimizer takes the
// gradients from the plan's memory.
enum class Mode : uint8_t { eager, compile };

struct TrainerOptions {
  Loss loss = Loss::cross_entropy;
  Optimizer optimizer = Optimizer::adamw;
  std::optional<double> lr = {};            // the highest; empty: 0.002, of SGD 0.05
  std::optional<double> weight_decay = {};  // empty: of AdamW 0.01, else 0
  double momentum = 0.9;                    // of SGD
  Schedule schedule = Schedule::constant;
  int64_t total_steps = 0;                   // of the schedule; 0: not known (constant only)
  std::optional<int64_t> warmup_steps = {};  // the rate rises from 0; empty: 5 %, of constant 0
  std::optional<double> clip_norm = {};      // the greatest 2-norm of all gradients; empty: any
  int64_t accumulate = 1;                    // micro-batches of each batch, as micro_batches() cuts
  Precision precision = Precision::f32;
  amp::GradScalerOptions scaler = {};  // of f16; `enabled` is not read
  Mode mode = Mode::eager;
  Tune tune = Tune::model;  // of Mode::compile; measure: at the first step
  std::string plan = {};    // of Mode::compile: by its name, as Trainer::plan() gives it
  // Whether each step waits for its loss before the update. If not, StepReport has the loss as a
  // tensor, and a loss that is not finite stops nothing.
  bool reads_loss = true;
};

// The options with lr, weight_decay and warmup_steps filled in where they were empty.
TrainerOptions with_defaults(TrainerOptions options);

struct StepReport {
  int64_t examples = 0;
  double loss = 0;                  // the mean over the examples; NaN where it is not read
  Tensor unread_loss = {};          // where it is not read: the last micro-batch's mean loss, 0-dim
  std::optional<int64_t> correct;   // examples whose greatest output is their class's; of cross
                                    // entropy, where the loss is read
  double lr = 0;                    // of this step
  std::optional<double> grad_norm;  // with clip_norm: before clipping
  std::optional<double> scale;      // of f16: the loss's scale after this step
  bool skipped = false;             // f16: gradients overflowed, the weights are untouched
  // The loss is not finite (the step did not happen), or the scale fell so low that it will not
  // recover.
  bool diverged = false;
};

// How outputs agree with targets. Without examples all numbers are NaN.
struct Evaluation {
  double loss = 0;                 // the mean over the examples
  std::optional<double> accuracy;  // of cross entropy, from 0 to 1
  std::optional<double> r2;        // of mse: 1 - loss / variance; NaN where all targets agree
};

// A network's optimizer, schedule and scaler, and the order in which a step uses them:
//   zero the gradients; for each micro-batch: forward, loss x share x scale, backward;
//   unscale; clip; optimizer; scale update; schedule.
class Trainer {
 public:
  // The network must outlive the trainer; its parameters must not be replaced. Throws Error,
  // "[Trainer] expected ...", on options that do not fit together, and what optimizers and
  // schedules throw.
  Trainer(nn::Module& network, const TrainerOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One step on a batch: rows of inputs and targets on the network's device, in the shapes that
  // network and loss take. Throws Error as the network and the loss do, and on an empty batch.
  StepReport step(const Examples& batch);

  // The network's outputs for these inputs in the trainer's precision, as f32, without a graph.
  Tensor predict(const Tensor& inputs) const;
  // Outputs for the examples, `rows` at a time, beside their targets: on `device`, with the network
  // in evaluation mode meanwhile. Throws Error on rows < 1.
  Evaluation evaluate(const Examples& examples, Device device = {}, int64_t rows = 1024);

  nn::Module& network() const;
  optim::Optimizer& optimizer() const;
  const TrainerOptions& options() const;  // with_defaults()
  int64_t skipped_steps() const;          // since construction; no part of the state
  // The compiled steps' plan by its name: options().plan, or the one that was measured. Empty:
  // compile_step()'s own choice.
  const std::string& plan() const;

  // run_state() of network, optimizer, schedule, scaler and random generator; between steps that is
  // all that the next ones depend on, but for plan(). Tensors share memory.
  StateDict state();
  // As load_run_state().
  void load(const StateDict& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Batches of `batch` rows that `examples` rows make, the last one perhaps short.
// Precondition: batch >= 1.
int64_t steps_per_epoch(int64_t examples, int64_t batch);

// Where a run over epochs stands.
struct Position {
  int64_t step = 0;   // steps done
  int64_t epoch = 0;  // epochs done
  int64_t batch = 0;  // batches done of the epoch after those
  // Figures of the epoch at hand:
  double loss_sum = 0;  // over examples
  int64_t seen = 0;
  std::optional<int64_t> correct = 0;  // empty where a step did not know
  // Figures of the whole run, resumed ones too:
  Seconds in_steps{0};
  Seconds total{0};  // in steps and evaluations
};

struct EpochReport {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;   // steps done
  double train_loss = 0;
  std::optional<double> train_accuracy;
  Evaluation test;
};

struct EpochsOptions {
  int64_t count = 1;
  int64_t batch = 32;  // examples per step
  uint64_t seed = 0;   // of the order of the examples
  Device device = {};  // of the network; the examples may stay on the host
};

// A trainer's run over the epochs of a data set, in an order that is a function of seed and epoch:
// a run that was stopped and loaded goes on with the bits of one that was not.
class Epochs {
 public:
  // The trainer must outlive it. Throws Error on a count or batch below 1, without training
  // examples, and where there is not one target per input.
  Epochs(Trainer& trainer, Examples training, Examples test, EpochsOptions options);

  bool is_done() const { return position_.epoch >= options_.count; }
  int64_t total_steps() const;
  const Position& position() const { return position_; }

  // The next batch. A step that diverged before its update leaves the position where it was.
  // Throws Error where the epoch at hand has no batch left: end_epoch() comes first.
  StepReport step();
  // Whether the last batch of the epoch at hand is done.
  bool ends_epoch() const;
  // Evaluates on the test examples and goes on to the next epoch.
  EpochReport end_epoch();

  // The trainer's state, the part "position", and "data.fingerprint".
  StateDict state();
  // Why a state is of other data or of no position of this run; empty where it is one. Throws Error
  // where the position's entries are missing or no numbers.
  std::string mismatch(const StateDict& state) const;
  // Throws Error with mismatch(), and as Trainer::load() does.
  void load(const StateDict& state);

 private:
  int64_t steps_each() const { return steps_per_epoch(training_.size(), options_.batch); }

  Trainer& trainer_;
  Examples training_;
  Examples test_;
  EpochsOptions options_;
  std::string fingerprint_;
  std::optional<EpochBatches> batches_;
  Position position_;
};

}  // namespace epilogue::train

#pragma GCC visibility pop
