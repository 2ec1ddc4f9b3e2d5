// SPDX-License-Identifier: Apache-2.0
// A run of `epilogue train` while it runs: its flags and data, the network, trainer and epochs that
// they make. Its state at a step is a function of flags and data alone, however often it was
// stopped in between.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "epilogue/data.h"
#include "epilogue/nn.h"
#include "epilogue/predictor.h"
#include "epilogue/train.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

struct TrainData {
  train::Examples train;
  train::Examples test;
  train::Task task = train::Task::classification;
  int64_t outputs = 0;                         // classes, or 1
  std::optional<train::TableMeaning> meaning;  // of tables
  train::TableNotes notes;

  // "60,000 training and 10,000 test examples of 784 values, 10 classes".
  std::string description() const;
};

// Throws Error with the message of files that cannot be used.
TrainData load_train_data(const TrainRun& run);

train::NetworkOptions network_options(const TrainRun& run, int64_t inputs, int64_t outputs);

// Throws Error where memory does not hold it.
std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs);

// Metadata of a checkpoint: threads and instruction set, on which the last bits of sums depend.
inline constexpr const char* kMachineKey = "machine";

class LiveRun {
 public:
  // Seeds the generator and makes the network on `device`, where all steps run; the data stay on
  // the host. Throws Error on misuse.
  LiveRun(TrainRun run, TrainData data, Device device = {});

  train::Epochs& epochs() { return epochs_; }
  const train::Epochs& epochs() const { return epochs_; }
  const TrainRun& run() const { return run_; }
  // The same with the plan that was measured: what a run that resumes must know.
  TrainRun recorded_run() const;
  const TrainData& data() const { return data_; }
  const nn::Module& network() const { return *network_; }
  Device device() const { return device_; }

  // Everything a checkpoint holds; the flags are its part "config".
  train::StateDict state();
  // Throws Error where it is not a state of this run or these data.
  void load(const train::StateDict& state);

 private:
  TrainRun run_;
  TrainData data_;
  Device device_;
  std::shared_ptr<nn::Module> network_;
  train::Trainer trainer_;
  train::Epochs epochs_;
};

}  // namespace epilogue::tool
