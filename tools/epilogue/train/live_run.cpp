// SPDX-License-Identifier: Apache-2.0

#include "tools/epilogue/train/live_run.h"

#include <fmt/format.h>
#include <filesystem>
#include <utility>

#include "base/progress.h"
#include "base/text/nearest.h"
#include "base/units.h"
#include "epilogue/io.h"
#include "tools/epilogue/memory_limit.h"
#include "tools/epilogue/profile/device_option.h"

namespace epilogue::tool {

namespace {

using train::Task;

constexpr int64_t kFashionMnistClasses = 10;

TrainData fashion_mnist(const TrainRun& run) {
  FashionMnistOptions options;
  options.dir = run.data_dir;
  if (run.max_images) options.max_images = *run.max_images;
  auto loaded = load_fashion_mnist(options);
  if (!loaded) throw Error("[train] " + loaded.failure().message);
  Dataset& d = loaded.value();
  TrainData data;
  data.train = {d.train.images, d.train.labels};
  data.test = {d.test.images, d.test.labels};
  data.outputs = kFashionMnistClasses;
  if (data.train.size() == 0 || data.test.size() == 0)
    throw Error("[train] expected images in both splits of " + run.data_dir + ", got none");
  return data;
}

train::TableOptions table_options(const TrainRun& run) {
  train::TableOptions options = {.target = run.target, .held_out = run.held_out, .seed = run.seed};
  if (run.task != "auto")
    options.task = run.task == "regression" ? Task::regression : Task::classification;
  options.ignore = run.ignore;
  options.categorical = run.categorical;
  options.max_categories = run.max_categories;
  return options;
}

TrainData csv(const TrainRun& run) {
  std::optional<ProgressBar> bar;
  const auto progress = [&](int64_t done, int64_t total) {
    if (!bar) bar.emplace("reading", total);
    bar->update(done);
  };
  auto made = train::read_table_data(
      run.data, {.delimiter = parse_delimiter(run.delimiter).value(), .header = !run.no_header},
      table_options(run), progress);
  bar.reset();
  if (!made && !std::filesystem::exists(run.data))
    throw Error("[train] " + made.failure().message +
                did_you_mean(nearest(std::filesystem::path(run.data).filename().string(),
                                     std::vector<std::string>{"fashion-mnist"})));
  if (!made) throw Error("[train] " + made.failure().message);
  train::TableData& t = made.value();
  TrainData data{t.train, t.test, t.meaning.task};
  data.outputs = data.task == Task::regression ? 1 : static_cast<int64_t>(t.meaning.classes.size());
  data.meaning = std::move(t.meaning);
  data.notes = std::move(t.notes);
  return data;
}

}  // namespace

std::string TrainData::description() const {
  std::string text =
      fmt::format("{} training and {} test examples of {} values, ", format_count(train.size()),
                  format_count(test.size()), train.width());
  if (task == Task::regression) return text + fmt::format("regression of '{}'", meaning->target);
  return text + fmt::format("{} classes{}", outputs,
                            meaning ? " of '" + meaning->target + "'" : std::string());
}

TrainData load_train_data(const TrainRun& run) {
  return is_csv(run) ? csv(run) : fashion_mnist(run);
}

namespace {

// Bytes of the weights and their gradients, at least, in either kind of network.
void require_network_memory(const TrainRun& run, int64_t inputs) {
  const auto hidden = static_cast<double>(*run.hidden);
  const double first = static_cast<double>(inputs) * hidden / 2;
  const double others = static_cast<double>(*run.layers - 1) * hidden * hidden;
  require_memory("--hidden, --layers", 2 * (first + others), DType::f32);
}

}  // namespace

train::NetworkOptions network_options(const TrainRun& run, int64_t inputs, int64_t outputs) {
  return {.architecture = run.arch == "mlp" ? train::Architecture::mlp : train::Architecture::geglu,
          .inputs = inputs,
          .hidden = *run.hidden,
          .layers = *run.layers,
          .outputs = outputs,
          .dropout = run.dropout};
}

std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs) {
  require_network_memory(run, inputs);
  return train::make_network(network_options(run, inputs, outputs));
}

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
