// SPDX-License-Identifier: Apache-2.0
// epilogue train fashion-mnist|FILE.csv: trains a classifier or a regressor.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "explain/render/document.h"
#include "explain/render/json_numbers.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/workload.h"
#include "tools/epilogue/train/train_session.h"

namespace epilogue::tool {
namespace {

using nlohmann::json;
using train::Task;

// As shells report a process that a signal ended.
constexpr int kExitSignalBase = 128;

json json_number(double value) { return std::isfinite(value) ? json(value) : json(); }

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

// "test accuracy 88.41 %", "test RMSE 0.52, R2 0.81".
std::string score_text(const EpochScore& e, Task task) {
  if (task == Task::classification) return "test accuracy " + percent(e.test_score);
  return fmt::format("test RMSE {:.4g}, R2 {:.4f}", e.test_rmse, e.test_score);
}

// How a feature is read that is no number; else "".
std::string feature_text(const train::Feature& f) {
  switch (f.kind) {
    case train::FeatureKind::number: return "";
    case train::FeatureKind::date:
      return fmt::format("  '{}' is a date: counted in days\n", f.name);
    case train::FeatureKind::category:
      return fmt::format("  '{}' is text of {} different value{}: an input each\n", f.name,
                         f.categories.size(), f.categories.size() == 1 ? "" : "s");
    case train::FeatureKind::hashed:
      return fmt::format(
          "  '{0}' is text of more than {1} different values: hashed to {1} inputs\n", f.name,
          f.buckets);
  }
  return "";
}

std::string notes_text(const TrainData& data) {
  const train::TableNotes& notes = data.notes;
  std::string text;
  if (data.meaning)
    for (const train::Feature& f : data.meaning->features) text += feature_text(f);
  for (const auto& [name, count] : notes.missing) {
    const auto& features = data.meaning->features;
    const auto f = std::find_if(features.begin(), features.end(),
                                [&, &wanted = name](const auto& g) { return g.name == wanted; });
    text += fmt::format("  {} of '{}': taken as {}{}\n",
                        counted(count, "missing value", "missing values"), name,
                        f->is_text() ? "no category" : "the mean",
                        f->marks_missing ? ", and marked by an input" : "");
  }
  for (const std::string& name : notes.constant)
    text += fmt::format("  '{}' has one value in all training rows: taken as 0\n", name);
  if (notes.rows_without_target > 0)
    text += fmt::format("  {} row{} without a target: left out\n",
                        format_count(notes.rows_without_target),
                        notes.rows_without_target == 1 ? "" : "s");
  return text;
}

std::string network_text(const TrainRun& r, const nn::Module& network) {
  return fmt::format(
      "{} of {} hidden {} of width {}, {} parameters", r.arch, *r.layers,
      r.arch == "mlp" ? (r.layers == 1 ? "layer" : "layers") : (r.layers == 1 ? "block" : "blocks"),
      *r.hidden, format_count(network.num_parameters()));
}

std::string begin_text(const LiveRun& run) {
  const TrainRun& r = run.run();
  const int64_t total_steps = run.epochs().total_steps();
  const int64_t step = run.epochs().position().step;
  std::string text = bold("train " + data_name(r)) + "\n";
  text += "data: " + run.data().description() + "\n" + notes_text(run.data());
  text += "network: " + network_text(r, run.network()) + "\n";
  text += fmt::format("training: {} epochs of {} steps, batch {}{}, {} at {:g}, {}, amp {}, {}\n",
                      *r.epochs, total_steps / *r.epochs, *r.batch,
                      r.accumulate == 1 ? "" : fmt::format(" in {} parts", r.accumulate),
                      r.optimizer, *r.lr, r.schedule, r.amp, r.mode);
  text += "machine: " + device_description(run.device()) + "\n";
  if (step > 0) text += fmt::format("going on after step {} of {}\n", step, total_steps);
  return text;
}

std::string epoch_text(const LiveRun& run, const EpochScore& e) {
  std::string text =
      fmt::format("epoch {:>{}}/{}  loss {:.4f}", e.epoch, std::to_string(*run.run().epochs).size(),
                  *run.run().epochs, e.train_loss);
  if (e.train_accuracy) text += "  accuracy " + percent(*e.train_accuracy);
  return text + fmt::format("  test loss {:.4f}  {}  {:.1f} s\n", e.test_loss,
                            score_text(e, run.data().task), run.epochs().position().total.count());
}

json epochs_json(const std::vector<EpochScore>& epochs, Task task) {
  json list = json::array();
  for (const EpochScore& e : epochs) {
    json row = {{"epoch", e.epoch},
                {"step", e.step},
                {"train_loss", json_number(e.train_loss)},
                {"test_loss", json_number(e.test_loss)}};
    if (task == Task::classification) {
      row["train_accuracy"] = e.train_accuracy ? json(*e.train_accuracy) : json();
      row["test_accuracy"] = json_number(e.test_score);
    } else {
      row["test_r2"] = json_number(e.test_score);
      row["test_rmse"] = json_number(e.test_rmse);
    }
    list.push_back(row);
  }
  return list;
}

// The run's results so far; kept from the callbacks, as the session's trainer is gone at the end.
struct Summary {
  Task task = Task::classification;
  TrainRun run;
  int64_t parameters = 0;
  int64_t steps = 0;
  double seconds = 0;
  train::TableNotes notes;
};

// The epoch whose model is exported.
const EpochScore& model_score(const SessionResult& r) {
  for (const EpochScore& e : r.epochs)
    if (e.epoch == r.best_epoch) return e;
  return r.epochs.back();
}

std::string train_json(const Summary& s, const SessionResult& r) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const EpochScore last =
      r.epochs.empty()
          ? EpochScore{.test_loss = kUnknown, .test_score = kUnknown, .test_rmse = kUnknown}
          : model_score(r);
  json missing = json::object();
  for (const auto& [name, count] : s.notes.missing) missing[name] = count;
  json out = {{"schema_version", kSchemaVersion},
              {"tag", std::filesystem::path(r.folder).filename().string()},
              {"data", s.run.data},
              {"task", s.task == Task::classification ? "classification" : "regression"},
              {"test_accuracy", json()},
              {"test_loss", json_number(last.test_loss)},
              {"epochs", *s.run.epochs},
              {"steps", r.epochs.empty() ? s.steps : r.epochs.back().step},
              {"seconds", s.seconds},
              {"images_per_s", r.images_per_s ? json(*r.images_per_s) : json()},
              {"parameters", s.parameters},
              {"config", to_text(s.run)},
              {"history", epochs_json(r.epochs, s.task)},
              {"missing_values", missing},
              {"rows_without_target", s.notes.rows_without_target},
              {"checkpoint", r.last_checkpoint},
              {"metrics", r.metrics_file},
              {"curve", r.curve_file},
              {"model", r.model_file},
              {"early_stop", r.patience == 0 ? json()
                                             : json{{"patience", r.patience},
                                                    {"stopped", r.stopped_early},
                                                    {"best_epoch", r.best_epoch}}},
              {"trace", r.profile.trace.empty() ? json() : json(r.profile.trace)}};
  if (s.task == Task::classification) {
    out["test_accuracy"] = json_number(last.test_score);
  } else {
    out["test_r2"] = json_number(last.test_score);
    out["test_rmse"] = json_number(last.test_rmse);
  }
  return trace::dump_json(out);
}

std::string final_score(const Summary& s, const SessionResult& r) {
  // Somebody may have removed the metrics of a run that was done already.
  if (r.epochs.empty()) return "no score: " + r.metrics_file + " has no epochs";
  return score_text(model_score(r), s.task);
}

std::string end_text(const Summary& s, const SessionResult& r) {
  std::string text;
  if (!r.profile.table.empty())
    text += fmt::format("\n{}trace: {}  (open it in https://ui.perfetto.dev)\ntable: {}\n\n",
                        r.profile.table, r.profile.trace, r.profile.table_file);
  if (r.stopped_early)
    text += fmt::format("stopped after epoch {} of {}: no lower test loss in {} epoch{}\n",
                        r.epochs.empty() ? 0 : r.epochs.back().epoch, *s.run.epochs, r.patience,
                        r.patience == 1 ? "" : "s");
  text += bold(final_score(s, r));
  if (r.best_epoch > 0) text += fmt::format(" at epoch {}, whose model is kept,", r.best_epoch);
  text += fmt::format(" after {} epochs in {:.1f} s",
                      r.epochs.empty() ? *s.run.epochs : r.epochs.back().epoch, s.seconds);
  if (r.images_per_s)
    text += fmt::format(" ({} {}/s)", format_count(std::llround(*r.images_per_s)),
                        is_csv(s.run) ? "rows" : "images");
  return text + "\n" +
         fmt::format("model: {}\ncurve: {}\nmetrics: {}\ncheckpoint: {}\n", r.model_file,
                     r.curve_file, r.metrics_file, r.last_checkpoint);
}

std::string end_markdown(const Summary& s, const SessionResult& r) {
  const bool classifies = s.task == Task::classification;
  std::string text = fmt::format(
      "### {} on {}\n\n| epoch | training loss | test loss | {} |\n|---:|---:|---:|---:|\n",
      s.run.arch, data_name(s.run), classifies ? "test accuracy" : "test R2");
  for (const EpochScore& e : r.epochs)
    text += fmt::format("| {} | {:.4f} | {:.4f} | {} |\n", e.epoch, e.train_loss, e.test_loss,
                        classifies ? percent(e.test_score) : fmt::format("{:.4f}", e.test_score));
  return text +
         fmt::format("\n{}, {:.1f} s, model `{}`\n", final_score(s, r), s.seconds, r.model_file);
}

void say(const std::string& line) { fmt::print(stderr, "epilogue: {}\n", line); }

int run_train_command(const TrainOptions& o) {
  Summary summary;
  const auto show = [&](const std::string& text) {
    // Markdown and JSON are for the end alone.
    print(trace::Document{trace::Preformatted{text, ""}}, o.format);
    std::fflush(stdout);
  };
  SessionEvents events;
  events.note = say;
  events.begin = [&](const LiveRun& t) {
    summary = {t.data().task,
               t.run(),
               t.network().num_parameters(),
               t.epochs().total_steps(),
               t.epochs().position().total.count(),
               t.data().notes};
    show(begin_text(t));
  };
  events.epoch = [&](const LiveRun& t, const EpochScore& e) {
    summary.seconds = t.epochs().position().total.count();
    summary.run = t.recorded_run();
    show(epoch_text(t, e));
  };
  const SessionResult r = run_session(o, events);
  const std::string resume =
      fmt::format("epilogue train --resume {}", o.resume_dir.empty() ? r.folder : o.resume_dir);
  if (r.diverged) {
    say(
        fmt::format("the loss is no finite number any more (learning rate {:g}); the last "
                    "checkpoint is {}",
                    *summary.run.lr, r.last_checkpoint));
    return kExitNo;
  }
  if (r.stop_signal != 0) {
    say(fmt::format("stopped; saved {}; go on with: {}", r.last_checkpoint, resume));
    return kExitSignalBase + r.stop_signal;
  }
  trace::Document result = {trace::Preformatted{end_text(summary, r), end_markdown(summary, r)}};
  result.json = [&] { return train_json(summary, r); };
  print(result, o.format);
  return kExitFine;
}

}  // namespace

void add_train_command(CLI::App& app, Body& run) {
  CLI::App* train = app.add_subcommand("train", "Trains on Fashion-MNIST or on a CSV file");
  auto o = std::make_shared<TrainOptions>();
  add_train_flags(*train, *o);
  train->footer(
      "Example: epilogue train fashion-mnist --amp bf16 --tag first\n"
      "         epilogue train iris.csv --target species\n"
      "         epilogue train sales.csv --ignore id --ignore '\"note, long\"' --categorical zip\n"
      "         epilogue train sales.csv --epochs 200 --early-stop 10\n"
      "         epilogue train --resume runs/first\n"
      "         epilogue train --resume runs/first --epochs 20   (more than it had)\n"
      "Columns of text and dates (2024-12-31) are taken as they are, gaps too: docs/training.md.\n"
      "The folder gets checkpoints (the last two), metrics.jsonl, curve.svg and\n"
      "model.safetensors. Ctrl-C saves and says how to go on (exit 130).");
  train->callback([o, &run] {
    if (!o->tag.empty())
      o->checkpoint_dir = (o->checkpoint_dir.empty() ? "runs" : o->checkpoint_dir) + "/" + o->tag;
    run = [o] { return run_train_command(*o); };
  });
}

}  // namespace epilogue::tool
