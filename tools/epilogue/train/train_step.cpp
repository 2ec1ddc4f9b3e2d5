// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_step.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "epilogue/amp.h"
#include "epilogue/compile_step.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/profile/device_option.h"

namespace epilogue::tool {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name,
                                                 std::vector<Tensor> params) {
  if (name == "adamw") return std::make_unique<optim::AdamW>(std::move(params));
  if (name == "adam") return std::make_unique<optim::Adam>(std::move(params));
  if (name == "sgd")
    return std::make_unique<optim::SGD>(std::move(params), optim::SGDOptions{.momentum = 0.9});
  throw Error("[--optimizer] expected adamw, adam or sgd, got '" + name + "'");
}

// The dtype of the autocast region; empty without one.
std::optional<DType> amp_dtype(const WorkloadOptions& o, DType dtype) {
  if (o.amp == "none") return {};
  if (dtype != DType::f32)
    throw Error("[--amp] expected --dtype f32 (the weights' own), got '" + o.dtype + "'");
  return parse_dtype(o.amp);
}

class TrainStep {
 public:
  TrainStep(const WorkloadOptions& o, MlpSetup setup, std::optional<DType> amp)
      : setup_(std::move(setup)),
        target_(randn(setup_.x.sizes(), setup_.x.dtype()).to(setup_.x.device())),
        optimizer_(make_optimizer(o.optimizer, setup_.model->parameters())),
        scaler_({.enabled = amp == DType::f16}),
        amp_(amp),
        accumulate_(o.accumulate) {
    if (amp_) optimizer_->keep_low_precision_copies(*amp_);
    if (o.mode == "compile")
      compiled_ = compile_step(
          [this](std::span<const Tensor> in) { return mul(loss(in[0], in[1]), in[2]); });
    set_memory_category(setup_.x, MemoryCategory::input);
    set_memory_category(target_, MemoryCategory::input);
  }

  // Returns the mean loss of the last micro-batch.
  Tensor run() {
    optimizer_->zero_grad();
    Tensor last;
    const std::function<void()> update = [this] {
      scaler_.step(*optimizer_);
      scaler_.update();
    };
    const auto parts = optim::micro_batches(setup_.x.size(0), accumulate_);
    for (const optim::MicroBatch& part : parts)
      last = compiled_ ? run_compiled(part, part.end == parts.back().end ? update : nullptr)
                       : add_gradients(part);
    if (!compiled_) update();
    return last;
  }

 private:
  Tensor loss(const Tensor& x, const Tensor& target) const {
    std::optional<amp::Autocast> autocast;
    if (amp_)
      autocast.emplace(amp::AutocastOptions{.device = setup_.x.device().type, .dtype = amp_});
    return mse_loss((*setup_.model)(x), target);
  }

  Tensor rows(const Tensor& t, const optim::MicroBatch& part) const {
    return accumulate_ == 1 ? t : slice(t, 0, part.begin, part.end);
  }

  // Both return the micro-batch's mean loss; its gradients are scaled, and weighted by its share.
  // `update` runs on them where they lie; empty: they stay, for the next micro-batch to add to.
  Tensor run_compiled(const optim::MicroBatch& part, const std::function<void()>& update) {
    const double weight = part.share * scaler_.get_scale();
    const Tensor x = rows(setup_.x, part);
    const Tensor in[] = {x, rows(target_, part), full({}, weight, DType::f32, x.device())};
    return div(update ? compiled_->train(in, update) : (*compiled_)(in), weight);
  }
  Tensor add_gradients(const optim::MicroBatch& part) {
    const Tensor mean = loss(rows(setup_.x, part), rows(target_, part));
    scaler_.scale(accumulate_ == 1 ? mean : mul(mean, part.share)).backward();
    return mean;
  }

  MlpSetup setup_;
  Tensor target_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  amp::GradScaler scaler_;
  std::optional<DType> amp_;
  int64_t accumulate_;
  std::optional<CompiledStep> compiled_;
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
  const std::optional<DType> amp = amp_dtype(o, dtype);
  const MlpSetup setup = set_up_mlp(o, dtype);
  Workload w;
  w.tag = fmt::format("{}_{}_{}_{}_{}_{}_{}", setup.batch, setup.seq, setup.config.dim,
                      setup.config.hidden, o.amp, o.accumulate, o.mode);
  w.label = "train_step";
  w.description =
      fmt::format("train-step: {}, {}, amp {}, {}, {} micro-batch{}, {}, {}", setup.description(),
                  o.dtype, o.amp, o.optimizer, o.accumulate, o.accumulate == 1 ? "" : "es", o.mode,
                  device_description(setup.x.device()));
  const auto step = std::make_shared<TrainStep>(o, setup, amp);
  w.call = [step] { return step->run(); };
  w.input = setup.x;
  return w;
}

}  // namespace epilogue::tool
