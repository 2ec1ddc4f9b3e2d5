// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>

#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "train/gradients.h"
#include "train/trainer_parts.h"

namespace epilogue::train {
namespace {

// Below it a scaler that still skips steps will not recover: the loss itself overflows.
constexpr double kLeastScale = 0x1p-20;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

amp::GradScalerOptions scaler_options(const TrainerOptions& o) {
  amp::GradScalerOptions options = o.scaler;
  options.enabled = o.precision == Precision::f16;
  return options;
}

const TrainerOptions& checked_trainer(const TrainerOptions& o) {
  check_options(o);
  return o;
}

}  // namespace

struct Trainer::Impl {
  Impl(nn::Module& module, const TrainerOptions& o)
      : options(with_defaults(o)),
        network(module),
        optimizer(make_optimizer(checked_trainer(options), network.parameters())),
        schedule(*optimizer, make_schedule(options)),
        scaler(scaler_options(options)),
        gradients(network, options) {
    if (const auto dtype = autocast_dtype(options.precision))
      optimizer->keep_low_precision_copies(*dtype);
  }

  StepReport step(const Examples& batch);
  void add_gradients(const Examples& batch, const std::function<void()>& update,
                     StepReport* report);
  void add_result(const MicroResult& r, double share, StepReport* report) const;
  void update_weights(StepReport* report);
  Run run() { return {network, *optimizer, &schedule, &scaler}; }

  TrainerOptions options;
  nn::Module& network;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LrScheduler schedule;
  amp::GradScaler scaler;
  Gradients gradients;
  int64_t skipped_steps = 0;
};

void Trainer::Impl::add_result(const MicroResult& r, double share, StepReport* report) const {
  report->loss += share * r.loss;
  report->unread_loss = r.unread_loss;
  if (r.correct && report->correct) {
    *report->correct += *r.correct;
  } else {
    report->correct.reset();
  }
}

// Those of all micro-batches; `update` runs behind the last one, when the report has all losses.
void Trainer::Impl::add_gradients(const Examples& batch, const std::function<void()>& update,
                                  StepReport* report) {
  report->loss = 0;
  report->correct = 0;
  for (const optim::MicroBatch& part : optim::micro_batches(batch.size(), options.accumulate)) {
    const bool is_last = part.end == batch.size();
    const bool is_whole = part.begin == 0 && is_last;
    const Examples examples = is_whole ? batch : batch.rows(part.begin, part.end);
    const double weight = part.share * scaler.get_scale();
    if (!is_last) {
      add_result(gradients.add(examples, weight, nullptr), part.share, report);
      continue;
    }
    gradients.add(examples, weight, [&](const MicroResult& last) {
      add_result(last, part.share, report);
      update();
    });
  }
}

// Unscale, clip, optimizer, scale, schedule.
void Trainer::Impl::update_weights(StepReport* report) {
  if (!scaler.is_enabled()) {
    optim::StepOptions step;
    if (options.clip_norm) {
      // The optimizer's own kernel multiplies by the coefficient.
      report->grad_norm = optim::grad_norm(optimizer->parameters());
      step.clip_coefficient = optim::clip_coefficient(*report->grad_norm, *options.clip_norm);
    }
    optimizer->step(step);
  } else {
    if (options.clip_norm) {
      scaler.unscale_(*optimizer);
      report->grad_norm = optim::clip_grad_norm_(optimizer->parameters(), *options.clip_norm);
    }
    report->skipped = !scaler.step(*optimizer);
    scaler.update();
    report->scale = scaler.get_scale();
    report->diverged = report->skipped && *report->scale < kLeastScale;
    if (report->skipped) ++skipped_steps;
  }
  schedule.step();
}

StepReport Trainer::Impl::step(const Examples& batch) {
  if (batch.size() == 0) throw Error("[Trainer] expected a batch of 1 or more examples, got 0");
  optimizer->zero_grad();
  StepReport report{.examples = batch.size(), .lr = optimizer->lr()};
  const auto update = [&] {
    report.diverged = options.reads_loss && !std::isfinite(report.loss) && !scaler.is_enabled();
    if (!report.diverged) update_weights(&report);
  };
  add_gradients(batch, update, &report);
  if (!options.reads_loss) report.loss = kUnknown;
  return report;
}

Trainer::Trainer(nn::Module& network, const TrainerOptions& options)
    : impl_(std::make_unique<Impl>(network, options)) {}
Trainer::~Trainer() = default;

StepReport Trainer::step(const Examples& batch) { return impl_->step(batch); }

nn::Module& Trainer::network() const { return impl_->network; }
optim::Optimizer& Trainer::optimizer() const { return *impl_->optimizer; }
const TrainerOptions& Trainer::options() const { return impl_->options; }
int64_t Trainer::skipped_steps() const { return impl_->skipped_steps; }
const std::string& Trainer::plan() const { return impl_->gradients.plan(); }

StateDict Trainer::state() { return run_state(impl_->run()); }
void Trainer::load(const StateDict& state) { load_run_state(impl_->run(), state); }

}  // namespace epilogue::train
