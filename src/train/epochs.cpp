// SPDX-License-Identifier: Apache-2.0
// A trainer's run over the epochs of a data set.
#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "epilogue/train.h"
#include "nn/optim/options_text.h"

namespace epilogue::train {
namespace {

constexpr const char* kFingerprintKey = "data.fingerprint";

const EpochsOptions& checked_options(const EpochsOptions& o) {
  if (o.count < 1 || o.batch < 1)
    throw Error(
        fmt::format("[Epochs] expected 1 or more epochs and examples per step, got {} and {}",
                    o.count, o.batch));
  return o;
}

Seconds since(int64_t start_ns) { return std::chrono::nanoseconds(monotonic_ns() - start_ns); }

// Seconds and sums as their shortest text that reads back.
StateDict position_state(const Position& p) {
  using optim::number_text;
  return {{},
          {{"step", number_text(p.step)},
           {"epoch", number_text(p.epoch)},
           {"batch", number_text(p.batch)},
           {"loss_sum", number_text(p.loss_sum)},
           {"seen", number_text(p.seen)},
           {"correct", number_text(p.correct.value_or(0))},
           {"knows_correct", optim::bool_text(p.correct.has_value())},
           {"step_s", number_text(p.in_steps.count())},
           {"total_s", number_text(p.total.count())}}};
}

Position position_of(const StateDict& state) {
  const auto& m = part_of(state, "position").metadata;
  Position p{.step = optim::integer_of(m, "step"),
             .epoch = optim::integer_of(m, "epoch"),
             .batch = optim::integer_of(m, "batch"),
             .loss_sum = optim::number_of(m, "loss_sum"),
             .seen = optim::integer_of(m, "seen"),
             .correct = optim::integer_of(m, "correct")};
  if (!optim::bool_of(m, "knows_correct")) p.correct.reset();
  p.in_steps = Seconds(optim::number_of(m, "step_s"));
  p.total = Seconds(optim::number_of(m, "total_s"));
  return p;
}

}  // namespace

int64_t steps_per_epoch(int64_t examples, int64_t batch) { return (examples + batch - 1) / batch; }

Epochs::Epochs(Trainer& trainer, Examples training, Examples test, EpochsOptions options)
    : trainer_(trainer),
      training_(std::move(training)),
      test_(std::move(test)),
      options_(checked_options(options)),
      fingerprint_(fmt::format("{:08x}", fingerprint(training_))) {
  if (training_.size() == 0) throw Error("[Epochs] expected training examples, got none");
  batches_.emplace(training_, options_.batch, options_.seed, 0);
}

int64_t Epochs::total_steps() const { return options_.count * steps_each(); }

bool Epochs::ends_epoch() const { return position_.batch == steps_each(); }

StepReport Epochs::step() {
  const int64_t start_ns = monotonic_ns();
  if (!batches_) batches_.emplace(training_, options_.batch, options_.seed, position_.epoch);
  const Examples host = batches_->batch(position_.batch);
  const StepReport report =
      trainer_.step({host.inputs.to(options_.device), host.targets.to(options_.device)});
  if (report.diverged && !report.skipped) return report;
  ++position_.step;
  ++position_.batch;
  position_.seen += report.examples;
  position_.loss_sum += report.loss * static_cast<double>(report.examples);
  if (position_.correct && report.correct) {
    *position_.correct += *report.correct;
  } else {
    position_.correct.reset();
  }
  const Seconds took = since(start_ns);
  position_.in_steps += took;
  position_.total += took;
  return report;
}

EpochReport Epochs::end_epoch() {
  const int64_t start_ns = monotonic_ns();
  const auto seen = static_cast<double>(position_.seen);
  EpochReport report{.epoch = position_.epoch + 1, .step = position_.step};
  report.train_loss = position_.loss_sum / seen;
  if (position_.correct) report.train_accuracy = static_cast<double>(*position_.correct) / seen;
  report.test = trainer_.evaluate(test_, options_.device);
  position_ = {.step = position_.step,
               .epoch = position_.epoch + 1,
               .in_steps = position_.in_steps,
               .total = position_.total + since(start_ns)};
  batches_.reset();
  return report;
}

StateDict Epochs::state() {
  StateDict state = trainer_.state();
  add_part(state, "position", position_state(position_));
  state.metadata[kFingerprintKey] = fingerprint_;
  return state;
}

std::string Epochs::mismatch(const StateDict& state) const {
  const auto sum = state.metadata.find(kFingerprintKey);
  if (sum == state.metadata.end() || sum->second != fingerprint_)
    return fmt::format(
        "expected the data that the run began with (check sum {}), got other data ({})",
        sum == state.metadata.end() ? "none" : sum->second, fingerprint_);
  const Position p = position_of(state);
  if (p.epoch < 0 || p.epoch > options_.count || p.batch < 0 || p.batch >= steps_each())
    return fmt::format("expected a position within {} epochs, got epoch {}, batch {}",
                       options_.count, p.epoch, p.batch);
  return "";
}

void Epochs::load(const StateDict& state) {
  if (const std::string why = mismatch(state); !why.empty()) throw Error("[Epochs] " + why);
  const Position position = position_of(state);
  trainer_.load(state);
  position_ = position;
  batches_.reset();
}

}  // namespace epilogue::train
