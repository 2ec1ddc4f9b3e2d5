// SPDX-License-Identifier: Apache-2.0
// epilogue predict: applies a trained model to a table or a data set.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "base/file.h"
#include "base/progress.h"
#include "base/units.h"
#include "epilogue/runtime.h"
#include "io/csv_records.h"
#include "explain/render/document.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/train/prediction_input.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {
namespace {

// Inputs in memory at a time, about. Rows that the network takes at once divide their number.
constexpr int64_t kPredictedInputs = 1 << 24;
constexpr int64_t kMostPredictedRows = 8192;
constexpr int64_t kRowsStep = 1024;

struct PredictFlags {
  std::string model;
  std::string input;
  std::string out;
  std::string delimiter;
  bool no_header = false;
  int threads = 0;
  Format format = Format::text;
};

std::string header_line(const train::ModelDescription& d) {
  std::string line = "prediction";
  for (const std::string& name : d.class_names()) line += "," + io::csv_cell("p(" + name + ")");
  return line + "\n";
}

// Numbers are the shortest that read back as the same f32 or double.
std::string lines_of(const train::Predictions& p, const std::vector<std::string>& classes) {
  std::string text;
  auto to = std::back_inserter(text);
  for (const double v : p.values) fmt::format_to(to, "{}\n", v);
  const float* probability = p.classes.empty() ? nullptr : p.probabilities.data_as<float>();
  for (const int64_t c : p.classes) {
    text += io::csv_cell(classes[static_cast<size_t>(c)]);
    for (size_t i = 0; i < classes.size(); ++i) fmt::format_to(to, ",{}", *probability++);
    text += '\n';
  }
  return text;
}

PredictionInputOptions input_options(const PredictFlags& o) {
  PredictionInputOptions options;
  if (!o.delimiter.empty()) {
    options.delimiter = parse_delimiter(o.delimiter);
    if (!options.delimiter)
      throw Error("[--delimiter] expected one character or tab, got '" + o.delimiter + "'");
  }
  if (o.no_header) options.has_header = false;
  return options;
}

// Rows written. The file appears when it is whole.
int64_t write_predictions(const train::Predictor& model, PredictionInput& input,
                          const std::string& out) {
  const std::vector<std::string> classes = model.description().class_names();
  AtomicFile file = AtomicFile::create(out).value();
  file.write(header_line(model.description())).value();
  ProgressBar bar("predict", input.total());
  int64_t rows = 0;
  const int64_t fitting = kPredictedInputs / model.description().network.inputs;
  const int64_t at_once =
      std::clamp(fitting / kRowsStep * kRowsStep, kRowsStep, kMostPredictedRows);
  while (const auto inputs = input.next(at_once)) {
    file.write(lines_of(model.predict(*inputs), classes)).value();
    rows += inputs->size(0);
    bar.update(input.done(), format_count(rows) + " rows");
  }
  bar.finish();
  file.commit().value();
  return rows;
}

// Features with values that no training row had, and how many.
std::vector<std::pair<std::string, int64_t>> unseen_of(const train::Predictor& model,
                                                       const PredictionInput& input) {
  std::vector<std::pair<std::string, int64_t>> list;
  const std::vector<int64_t> counts = input.unseen();
  for (size_t f = 0; f < counts.size(); ++f)
    if (counts[f] > 0) list.emplace_back(model.description().table->features[f].name, counts[f]);
  return list;
}

int run_predict_command(const PredictFlags& o) {
  if (o.threads != 0) set_num_threads(o.threads);
  const auto begin = std::chrono::steady_clock::now();
  const train::Predictor model = train::Predictor::open(o.model).value();
  const auto input = open_prediction_input(model, o.input, input_options(o));
  const int64_t rows = write_predictions(model, *input, o.out);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool classifies = model.description().task == train::Task::classification;
  trace::Document document = {trace::Paragraph{
      fmt::format("{}: predictions of {} rows ({}), {:.2f} s", o.out, format_count(rows),
                  classifies ? fmt::format("{} classes", model.description().network.outputs)
                             : "of '" + model.description().table->target + "'",
                  seconds)}};
  int64_t unseen = 0;
  for (const auto& [name, count] : unseen_of(model, *input)) {
    unseen += count;
    document.push_back(trace::Paragraph{
        fmt::format("{} of '{}' that no training row had: as none of its categories",
                    counted(count, "value", "values"), name)});
  }
  document.facts = {{"task", classifies ? "classification" : "regression"},
                    {"rows", rows},
                    {"output", o.out},
                    {"unseen_values", unseen},
                    {"seconds", seconds}};
  print(document, o.format);
  return kExitFine;
}

}  // namespace

void add_predict_command(CLI::App& app, Body& run) {
  CLI::App* predict =
      app.add_subcommand("predict", "Applies a trained model to a table, images or a tensor");
  auto o = std::make_shared<PredictFlags>();
  predict->add_option("MODEL", o->model, "model.safetensors, as epilogue train leaves it")
      ->required()
      ->option_text(" ");
  predict->add_option("INPUT", o->input, "CSV file; IDX images; .safetensors with one tensor")
      ->required()
      ->option_text(" ");
  add_out_file(*predict, o->out, "CSV of one line per row of INPUT", "FILE.csv");
  predict->add_option("--delimiter", o->delimiter, "between cells; tab for a tab")
      ->option_text("CHAR [as in training]");
  predict->add_flag("--no-header", o->no_header, "the first line holds values");
  add_threads(*predict, o->threads);
  add_format(*predict, o->format);
  predict->footer(
      "Example: epilogue predict runs/iris/model.safetensors new.csv -o predicted.csv\n"
      "Columns: prediction (a class, or a number in the target's unit), and of classes p(NAME).\n"
      "Columns of a table are found by name; those that the model does not read do not matter.\n"
      "Text that no training row had is none of its column's categories; it is counted.");
  predict->callback([o, &run] { run = [o] { return run_predict_command(*o); }; });
}

}  // namespace epilogue::tool
