// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_log.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "tools/epilogue/bench/svg_plot.h"

namespace epilogue::tool {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(); }
json number(const std::optional<double>& value) { return value ? number(*value) : json(); }

double value_of(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

EpochScore epoch_of(const json& line) {
  EpochScore e;
  e.epoch = line.value("epoch", int64_t{0});
  e.step = line.value("step", int64_t{0});
  e.train_loss = value_of(line, "train_loss");
  const double train_accuracy = value_of(line, "train_accuracy");
  if (!std::isnan(train_accuracy)) e.train_accuracy = train_accuracy;
  e.test_loss = value_of(line, "test_loss");
  e.test_score = value_of(line, line.contains("test_r2") ? "test_r2" : "test_accuracy");
  e.test_rmse = value_of(line, "test_rmse");
  return e;
}

}  // namespace

EpochScore score_of(const train::EpochReport& r, const TrainData& data) {
  EpochScore score{.epoch = r.epoch,
                   .step = r.step,
                   .train_loss = r.train_loss,
                   .train_accuracy = r.train_accuracy,
                   .test_loss = r.test.loss};
  if (r.test.accuracy) {
    score.test_score = *r.test.accuracy;
  } else {
    score.test_score = *r.test.r2;
    score.test_rmse = std::sqrt(r.test.loss) * data.meaning->target_std;
  }
  return score;
}

MetricsLog::MetricsLog(const std::string& path, int64_t step) : path_(path) {
  std::string kept;
  if (auto before = read_file(path)) {
    std::istringstream lines(before.value());
    for (std::string text; std::getline(lines, text);) {
      // A process that was killed may have left half a line.
      const json line = parse_json(text);
      if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() ||
          line["step"].get<int64_t>() > step)
        continue;
      kept += text + "\n";
      if (line.value("event", "") == "epoch") epochs_.push_back(epoch_of(line));
    }
  }
  if (auto s = write_file(path, kept); !s) throw Error("[train] " + s.failure().message);
  file_.reset(std::fopen(path.c_str(), "ab"));
  if (!file_) throw Error("[train] " + file_failure("write", path).message);
}

void MetricsLog::write(const std::string& line) {
  // Flushed by the line: who watches the file sees whole ones.
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    throw Error("[train] " + file_failure("write", path_).message);
}

void MetricsLog::add(const LiveRun& run, const train::StepReport& r, double images_per_s) {
  const train::Position& at = run.epochs().position();
  json line = {{"event", "step"},       {"step", at.step},
               {"epoch", at.epoch + 1}, {"loss", number(r.loss)},
               {"lr", number(r.lr)},    {"images_per_s", number(images_per_s)}};
  if (r.grad_norm) line["grad_norm"] = number(r.grad_norm);
  if (r.scale) {
    line["loss_scale"] = number(r.scale);
    line["skipped"] = r.skipped;
  }
  write(json_text(line) + "\n");
}

void MetricsLog::add(const LiveRun& run, const EpochScore& r) {
  json line = {{"event", "epoch"},
               {"step", r.step},
               {"epoch", r.epoch},
               {"train_loss", number(r.train_loss)},
               {"test_loss", number(r.test_loss)},
               {"seconds", number(run.epochs().position().total.count())}};
  if (run.data().task == train::Task::classification) {
    line["train_accuracy"] = number(r.train_accuracy);
    line["test_accuracy"] = number(r.test_score);
  } else {
    line["test_r2"] = number(r.test_score);
    line["test_rmse"] = number(r.test_rmse);
  }
  write(json_text(line) + "\n");
  epochs_.push_back(r);
}

std::string learning_curve_svg(const std::vector<EpochScore>& epochs, const std::string& title,
                               train::Task task) {
  const bool classifies = task == train::Task::classification;
  Series train_loss{"training loss", "#d95f02", {}};
  Series test_loss{"test loss", "#1b6ca8", {}};
  Series score{classifies ? "test accuracy" : "test R2", "#2a8a4a", {}};
  for (const EpochScore& e : epochs) {
    const auto x = static_cast<double>(e.epoch);
    train_loss.points.emplace_back(x, e.train_loss);
    test_loss.points.emplace_back(x, e.test_loss);
    score.points.emplace_back(x, e.test_score);
  }
  Plot plot;
  plot.title = title;
  plot.x_label = "epoch";
  plot.y_label = classifies ? "loss, accuracy" : "loss (standardised), R2";
  plot.series = {train_loss, test_loss, score};
  plot.x_log_base = kLinear;
  plot.y_log_base = kLinear;
  return render_svg(plot);
}

}  // namespace epilogue::tool
