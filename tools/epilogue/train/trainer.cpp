// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "nn/optim/options_text.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/workload.h"
#include "tools/epilogue/train/train_network.h"

namespace epilogue::tool {
namespace {

using train::Examples;
using train::StateDict;
using train::Task;

constexpr int64_t kEvaluationRows = 1024;
// Below it a scaler that still skips steps will not recover: the loss itself overflows.
constexpr double kLeastScale = 0x1p-20;

std::shared_ptr<nn::Module> seeded_network(const TrainRun& run, const TrainData& data,
                                           Device device) {
  manual_seed(run.seed);
  auto network = make_network(run, data.train.inputs.size(1), data.outputs);
  network->to(device);
  return network;
}

Examples on_device(const Examples& examples, Device device) {
  return {examples.inputs.to(device), examples.targets.to(device)};
}

StateDict position_state(const Position& p) {
  using optim::number_text;
  return {{},
          {{"step", number_text(p.step)},
           {"epoch", number_text(p.epoch)},
           {"batch", number_text(p.batch)},
           {"loss_sum", number_text(p.loss_sum)},
           {"seen", number_text(p.seen)},
           {"correct", number_text(p.correct)},
           {"knows_correct", optim::bool_text(p.knows_correct)},
           {"step_s", number_text(p.step_s)},
           {"total_s", number_text(p.total_s)}}};
}

Position position_of(const StateDict& state) {
  const auto& m = state.metadata;
  return {.step = optim::integer_of(m, "step"),
          .epoch = optim::integer_of(m, "epoch"),
          .batch = optim::integer_of(m, "batch"),
          .loss_sum = optim::number_of(m, "loss_sum"),
          .seen = optim::integer_of(m, "seen"),
          .correct = optim::integer_of(m, "correct"),
          .knows_correct = optim::bool_of(m, "knows_correct"),
          .step_s = optim::number_of(m, "step_s"),
          .total_s = optim::number_of(m, "total_s")};
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) * 1e-9;
}

// Sums over test examples, in double.
struct TestSums {
  double loss = 0;
  double correct = 0;
  double target = 0;
  double target_squares = 0;
};

}  // namespace

Trainer::Trainer(TrainRun run, TrainData data, Device device)
    : run_(std::move(run)),
      data_(std::move(data)),
      device_(device),
      fingerprint_(train::fingerprint(data_.train)),
      total_steps_(run_.epochs * steps_per_epoch(run_, data_.train.size())),
      network_(seeded_network(run_, data_, device_)),
      optimizer_(make_optimizer(run_, network_->parameters())),
      schedule_(*optimizer_, make_schedule(run_, total_steps_)),
      scaler_({.enabled = run_.amp == "f16"}),
      gradients_(make_gradients(run_, data_.task, *network_, plan_)) {
  if (const auto dtype = amp_dtype(run_)) optimizer_->keep_low_precision_copies(*dtype);
}

StateDict Trainer::state() {
  StateDict state = train::run_state({*network_, *optimizer_, &schedule_, &scaler_});
  train::add_part(state, "config", {{}, to_text(recorded_run())});
  train::add_part(state, "position", position_state(position_));
  state.metadata["data.fingerprint"] = fmt::format("{:08x}", fingerprint_);
  state.metadata[kMachineKey] = device_description(device_);
  return state;
}

void Trainer::load(const StateDict& state) {
  const auto sum = state.metadata.find("data.fingerprint");
  const std::string own = fmt::format("{:08x}", fingerprint_);
  if (sum == state.metadata.end() || sum->second != own)
    throw Error(fmt::format(
        "[--resume] expected the data that the run began with (check sum {}), got other data ({})",
        sum == state.metadata.end() ? "none" : sum->second, own));
  const Position position = position_of(train::part_of(state, "position"));
  if (position.epoch < 0 || position.epoch > run_.epochs || position.batch < 0 ||
      position.batch >= steps_per_epoch(run_, data_.train.size()))
    throw Error(
        fmt::format("[--resume] expected a position within {} epochs, got epoch {}, batch "
                    "{}",
                    run_.epochs, position.epoch, position.batch));
  train::load_run_state({*network_, *optimizer_, &schedule_, &scaler_}, state);
  position_ = position;
  batches_.reset();
}

bool Trainer::apply_gradients(StepReport* report) {
  const bool clips = run_.clip > 0;
  if (!scaler_.is_enabled()) {
    optim::StepOptions options;
    if (clips) {
      report->grad_norm = optim::grad_norm(optimizer_->parameters());
      options.clip_coefficient = optim::clip_coefficient(*report->grad_norm, run_.clip);
    }
    optimizer_->step(options);
    return true;
  }
  if (clips) {
    scaler_.unscale_(*optimizer_);
    report->grad_norm = optim::clip_grad_norm_(optimizer_->parameters(), run_.clip);
  }
  const bool stepped = scaler_.step(*optimizer_);
  scaler_.update();
  report->scale = scaler_.get_scale();
  return stepped;
}

StepReport Trainer::step() {
  const int64_t start_ns = monotonic_ns();
  if (!batches_) batches_.emplace(data_.train, run_.batch, run_.seed, position_.epoch);
  const Examples batch = on_device(batches_->batch(position_.batch), device_);
  optimizer_->zero_grad();
  StepReport report{.examples = batch.size(), .lr = optimizer_->lr()};
  MicroResult sum{.loss = 0, .correct = 0};
  for (const optim::MicroBatch& part : optim::micro_batches(batch.size(), run_.accumulate)) {
    const bool is_whole = part.begin == 0 && part.end == batch.size();
    const MicroResult r = gradients_(is_whole ? batch : batch.rows(part.begin, part.end),
                                     part.share * scaler_.get_scale());
    sum.loss += part.share * r.loss;
    if (r.correct && sum.correct) {
      *sum.correct += *r.correct;
    } else {
      sum.correct.reset();
    }
  }
  report.loss = sum.loss;
  if (!std::isfinite(report.loss) && !scaler_.is_enabled()) {
    report.diverged = true;
    return report;
  }
  report.skipped = !apply_gradients(&report);
  report.diverged = report.skipped && scaler_.get_scale() < kLeastScale;
  schedule_.step();
  advance(report.loss, sum.correct, batch.size());
  report.epoch_ended = position_.batch == batches_->count();
  const double took_s = seconds_since(start_ns);
  position_.step_s += took_s;
  position_.total_s += took_s;
  return report;
}

void Trainer::advance(double loss, std::optional<int64_t> correct, int64_t examples) {
  ++position_.step;
  ++position_.batch;
  position_.seen += examples;
  position_.loss_sum += loss * static_cast<double>(examples);
  position_.correct += correct.value_or(0);
  position_.knows_correct = position_.knows_correct && correct.has_value();
}

EpochReport Trainer::end_epoch() {
  const int64_t start_ns = monotonic_ns();
  const auto seen = static_cast<double>(position_.seen);
  EpochReport report{.epoch = position_.epoch + 1, .step = position_.step};
  report.train_loss = position_.loss_sum / seen;
  if (position_.knows_correct)
    report.train_accuracy = static_cast<double>(position_.correct) / seen;

  network_->eval();
  TestSums sums;
  for (int64_t begin = 0; begin < data_.test.size(); begin += kEvaluationRows) {
    const Examples part = on_device(
        data_.test.rows(begin, std::min(begin + kEvaluationRows, data_.test.size())), device_);
    const Tensor outputs = predict(run_, *network_, part.inputs);
    const NoGrad no_grad;
    sums.loss +=
        loss_of(data_.task, outputs, part.targets).item() * static_cast<double>(part.size());
    if (data_.task == Task::classification) {
      sums.correct += static_cast<double>(count_correct(outputs, part.targets));
    } else {
      for (const double t : part.targets.to_vector()) {
        sums.target += t;
        sums.target_squares += t * t;
      }
    }
  }
  network_->train();
  const auto n = static_cast<double>(data_.test.size());
  report.test_loss = sums.loss / n;
  if (data_.task == Task::classification) {
    report.test_score = sums.correct / n;
  } else {
    const double variance = sums.target_squares / n - sums.target / n * (sums.target / n);
    report.test_score =
        variance > 0 ? 1 - report.test_loss / variance : std::numeric_limits<double>::quiet_NaN();
    report.test_rmse = std::sqrt(report.test_loss) * data_.meaning->target_std;
  }
  position_ = {.step = position_.step,
               .epoch = position_.epoch + 1,
               .step_s = position_.step_s,
               .total_s = position_.total_s + seconds_since(start_ns)};
  batches_.reset();
  return report;
}

}  // namespace epilogue::tool
