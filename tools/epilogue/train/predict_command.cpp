// SPDX-License-Identifier: Apache-2.0
// epilogue predict: applies a trained model to a table or a data set.

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "epilogue/io.h"
#include "epilogue/ops.h"
#include "epilogue/predictor.h"
#include "epilogue/runtime.h"
#include "explain/render/document.h"
#include "io/csv_parts.h"
#include "io/csv_records.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/workload.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

namespace {

struct PredictionInputOptions {
  std::optional<char> delimiter;   // of a table; empty: as the model's own was
  std::optional<bool> has_header;  // likewise
};

class PredictionInput {
 public:
  virtual ~PredictionInput() = default;
  // The network's inputs f32 [rows, inputs] of the next rows, at most so many; empty at the end.
  virtual std::optional<Tensor> next(int64_t max_rows) = 0;
  virtual int64_t total() const = 0;  // bytes or rows, for the progress bar
  virtual int64_t done() const = 0;
  // Values so far that no training row had, by feature; empty where no feature is text.
  virtual std::vector<int64_t> unseen() const { return {}; }
};

using train::ModelDescription;
using train::Predictor;

// Rows that a table brings at once, and rows that the network takes at once, are not the same: what
// is left waits for the next call.
class TableInput final : public PredictionInput {
 public:
  TableInput(const Predictor& model, io::CsvParts parts)
      : model_(model), parts_(std::move(parts)) {}

  std::optional<Tensor> next(int64_t max_rows) override {
    while (waiting_rows_ < max_rows && next_part_ < parts_.count()) read_parts();
    if (waiting_rows_ == 0) return {};
    std::vector<Tensor> taken;
    for (int64_t wanted = max_rows; wanted > 0 && !waiting_.empty();) {
      const Tensor first = waiting_.front();
      const int64_t rows = std::min(wanted, first.size(0));
      taken.push_back(slice(first, 0, 0, rows));
      waiting_.pop_front();
      if (rows < first.size(0)) waiting_.push_front(slice(first, 0, rows, first.size(0)));
      wanted -= rows;
      waiting_rows_ -= rows;
    }
    return model_.laid_out(taken.size() == 1 ? contiguous(taken[0]) : cat(taken, 0));
  }
  int64_t total() const override { return parts_.bytes(); }
  int64_t done() const override { return next_part_ == 0 ? 0 : parts_.end(next_part_ - 1); }
  std::vector<int64_t> unseen() const override { return unseen_; }

 private:
  // One part per thread.
  void read_parts() {
    const size_t begin = next_part_;
    const size_t count =
        std::min(parts_.count() - begin, static_cast<size_t>(std::max(1, num_threads())));
    std::vector<std::optional<Result<Tensor>>> stored(count);
    std::vector<std::vector<int64_t>> unseen(count);
    parallel_blocks(static_cast<int64_t>(count), [&](int64_t block) {
      const auto i = static_cast<size_t>(block);
      const auto rows = parts_.part(begin + i);
      if (rows) {
        stored[i] = model_.stored_of(rows.value(), &unseen[i]);
      } else {
        stored[i] = rows.failure();
      }
    });
    next_part_ += count;
    for (size_t i = 0; i < count; ++i) {
      const Tensor rows = stored[i]->value();
      unseen_.resize(std::max(unseen_.size(), unseen[i].size()));
      for (size_t f = 0; f < unseen[i].size(); ++f) unseen_[f] += unseen[i][f];
      if (rows.size(0) == 0) continue;
      waiting_rows_ += rows.size(0);
      waiting_.push_back(rows);
    }
  }

  const Predictor& model_;
  io::CsvParts parts_;
  size_t next_part_ = 0;
  std::deque<Tensor> waiting_;  // stored rows
  int64_t waiting_rows_ = 0;
  std::vector<int64_t> unseen_;
};

// Values in memory, or mapped: `rows_at(begin, end)` gives f32 [end - begin, inputs].
class RowsInput final : public PredictionInput {
 public:
  using RowsAt = std::function<Tensor(int64_t begin, int64_t end)>;
  RowsInput(const Predictor& model, int64_t rows, RowsAt rows_at)
      : model_(model), rows_(rows), rows_at_(std::move(rows_at)) {}
  std::optional<Tensor> next(int64_t max_rows) override {
    if (at_ == rows_) return {};
    const int64_t begin = at_;
    at_ = std::min(rows_, begin + max_rows);
    return model_.inputs_of(rows_at_(begin, at_));
  }
  int64_t total() const override { return rows_; }
  int64_t done() const override { return at_; }

 private:
  const Predictor& model_;
  int64_t rows_;
  RowsAt rows_at_;
  int64_t at_ = 0;
};

bool is_idx(const std::string& path) {
  std::array<unsigned char, 4> head{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(head.data()), head.size())) return false;
  return (head[0] == 0x1f && head[1] == 0x8b) ||
         (head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] >= 1 && head[3] <= 3);
}

[[noreturn]] void refuse_sizes(const std::string& path, int64_t expected, const std::string& got) {
  throw Error(fmt::format("[predict] {}: expected rows of {} values, got {}", path, expected, got));
}

std::unique_ptr<PredictionInput> idx_input(const Predictor& model, const std::string& path) {
  const auto idx = std::make_shared<IdxFile>(read_idx(path).value());
  const int64_t width = model.description().network.inputs;
  int64_t values = 1;
  for (size_t d = 1; d < idx->dims.size(); ++d) values *= idx->dims[d];
  if (values != width) refuse_sizes(path, width, fmt::format("items of {}", values));
  return std::make_unique<RowsInput>(model, idx->dims[0], [idx, width](int64_t begin, int64_t end) {
    const Tensor rows = empty({end - begin, width});
    std::copy(idx->data.begin() + begin * width, idx->data.begin() + end * width,
              rows.data_as<float>());
    return rows;
  });
}

std::unique_ptr<PredictionInput> tensor_input(const Predictor& model, const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  if (file.names().size() != 1)
    throw Error(
        fmt::format("[predict] {}: expected one tensor, got {}", path, file.names().size()));
  const Tensor all = file.tensor(file.names().front()).value();
  const train::ModelDescription& d = model.description();
  const int64_t width = d.table ? static_cast<int64_t>(d.table->features.size()) : d.network.inputs;
  if (all.dim() != 2 || all.size(1) != width || !is_floating(all.dtype()))
    refuse_sizes(path, width, to_string(all));
  return std::make_unique<RowsInput>(model, all.size(0), [all](int64_t begin, int64_t end) {
    return slice(all, 0, begin, end).to(DType::f32);
  });
}

// By what the file holds: IDX by its magic number (plain or gzip), safetensors by its ending, else
// a table. Throws Error, as next() does, with the message of a file that the model cannot use.
std::unique_ptr<PredictionInput> open_prediction_input(const Predictor& model,
                                                       const std::string& path,
                                                       const PredictionInputOptions& options) {
  if (path.ends_with(".safetensors")) return tensor_input(model, path);
  if (is_idx(path)) return idx_input(model, path);
  const ModelDescription& d = model.description();
  if (!d.table)
    throw Error("[predict] " + path +
                ": expected IDX images or a .safetensors file, because the model learned from "
                "images; got neither");
  auto parts = io::CsvParts::open(path, {.delimiter = options.delimiter.value_or(d.delimiter),
                                         .header = options.has_header.value_or(d.has_header)});
  return std::make_unique<TableInput>(model, std::move(parts).value());
}

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
  BitsFlags bits;
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
  const train::Predictor model = train::Predictor::open(o.model, bits_of(o.bits)).value();
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
  add_bits_flags(*predict, o->bits);
  add_format(*predict, o->format);
  predict->footer(
      "Example: epilogue predict runs/iris/model.safetensors new.csv -o predicted.csv\n"
      "Columns: prediction (a class, or a number in the target's unit), and of classes p(NAME).\n"
      "Columns of a table are found by name; those that the model does not read do not matter.\n"
      "Text that no training row had is none of its column's categories; it is counted.");
  predict->callback([o, &run] { run = [o] { return run_predict_command(*o); }; });
}

}  // namespace epilogue::tool
