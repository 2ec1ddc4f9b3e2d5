// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_data.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/progress.h"
#include "base/text/nearest.h"
#include "base/units.h"
#include "epilogue/io.h"

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
  train::TableOptions options;
  options.target = run.target;
  options.held_out = run.held_out;
  options.seed = run.seed;
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

}  // namespace epilogue::tool
