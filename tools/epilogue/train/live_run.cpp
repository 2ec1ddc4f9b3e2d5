// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/live_run.h"

#include <utility>

#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/train/train_network.h"

namespace epilogue::tool {
namespace {

std::shared_ptr<nn::Module> seeded_network(const TrainRun& run, const TrainData& data,
                                           Device device) {
  manual_seed(run.seed);
  auto network = make_network(run, data.train.width(), data.outputs);
  network->to(device);
  return network;
}

train::EpochsOptions epochs_options(const TrainRun& run, Device device) {
  return {.count = *run.epochs, .batch = *run.batch, .seed = run.seed, .device = device};
}

}  // namespace

LiveRun::LiveRun(TrainRun run, TrainData data, Device device)
    : run_(std::move(run)),
      data_(std::move(data)),
      device_(device),
      network_(seeded_network(run_, data_, device_)),
      trainer_(*network_, trainer_options(run_, data_.task, data_.train.size())),
      epochs_(trainer_, data_.train, data_.test, epochs_options(run_, device_)) {}

TrainRun LiveRun::recorded_run() const {
  TrainRun run = run_;
  run.plan = trainer_.plan();
  return run;
}

train::StateDict LiveRun::state() {
  train::StateDict state = epochs_.state();
  train::add_part(state, "config", {{}, to_text(recorded_run())});
  state.metadata[kMachineKey] = device_description(device_);
  return state;
}

void LiveRun::load(const train::StateDict& state) {
  if (const std::string why = epochs_.mismatch(state); !why.empty())
    throw Error("[--resume] " + why);
  epochs_.load(state);
}

}  // namespace epilogue::tool
