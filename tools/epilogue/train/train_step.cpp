// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_step.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/train/train_words.h"

namespace epilogue::tool {
namespace {

constexpr double kLr = 1e-3;  // torch.optim's own

train::TrainerOptions trainer_options(const WorkloadOptions& o) {
  const auto optimizer = kOptimizers.find(o.optimizer);
  if (optimizer == kOptimizers.end())
    throw Error("[--optimizer] expected adamw, adam or sgd, got '" + o.optimizer + "'");
  return {.loss = train::Loss::mse,
          .optimizer = optimizer->second,
          .lr = kLr,
          .accumulate = o.accumulate,
          .precision = kPrecisions.at(o.amp),
          .mode = kModes.at(o.mode),
          .reads_loss = false};
}

// A step of an MLP towards a fixed random target.
class TrainStep {
 public:
  TrainStep(const WorkloadOptions& o, MlpSetup setup)
      : setup_(std::move(setup)),
        batch_{setup_.x, randn(setup_.x.sizes(), setup_.x.dtype()).to(setup_.x.device())},
        trainer_(*setup_.model, trainer_options(o)) {
    set_memory_category(batch_.inputs, MemoryCategory::input);
    set_memory_category(batch_.targets, MemoryCategory::input);
  }

  // The mean loss of the last micro-batch.
  Tensor run() { return trainer_.step(batch_).unread_loss; }

 private:
  MlpSetup setup_;
  train::Examples batch_;
  train::Trainer trainer_;
};

}  // namespace

void add_train_step_flags(CLI::App& app, WorkloadOptions& o) {
  o.dtype = "f32";
  app.add_option("--optimizer", o.optimizer, "adamw, adam or sgd (momentum 0.9)")
      ->option_text("NAME [adamw]");
  app.add_option("--amp", o.amp, "autocast: none, bf16 or f16 (with loss scaling)")
      ->transform(amp_value())
      ->option_text("DTYPE [none]");
  app.add_option("--accumulate", o.accumulate, "micro-batches of the batch")
      ->check(whole_number(1))
      ->option_text("N [1]");
}

Workload make_train_step(const WorkloadOptions& o, DType dtype) {
  if (o.amp != "none" && dtype != DType::f32)
    throw Error("[--amp] expected --dtype f32 (the weights' own), got '" + o.dtype + "'");
  const MlpSetup setup = set_up_mlp(o, dtype);
  Workload w;
  w.tag = fmt::format("{}_{}_{}_{}_{}_{}_{}", setup.batch, setup.seq, setup.config.dim,
                      setup.config.hidden, o.amp, o.accumulate, o.mode);
  w.label = "train_step";
  w.description =
      fmt::format("train-step: {}, {}, amp {}, {}, {} micro-batch{}, {}, {}", setup.description(),
                  o.dtype, o.amp, o.optimizer, o.accumulate, o.accumulate == 1 ? "" : "es", o.mode,
                  device_description(setup.x.device()));
  const auto step = std::make_shared<TrainStep>(o, setup);
  w.call = [step] { return step->run(); };
  w.input = setup.x;
  return w;
}

}  // namespace epilogue::tool
