// SPDX-License-Identifier: Apache-2.0
// A table as tensors: target, held-out rows, features, in three passes over its parts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

#include "epilogue/data.h"
#include "epilogue/ops.h"
#include "io/csv_parts.h"
#include "io/csv_state.h"
#include "train/feature_encoder.h"
#include "train/moments.h"
#include "train/table_features.h"
#include "train/table_source.h"
#include "train/table_targets.h"

namespace epilogue::train {
namespace {

// Keeps the choice of held-out rows apart from the orders of epochs 0, 1, ...
constexpr uint64_t kSplitStream = std::numeric_limits<uint64_t>::max();
// Over a target that is text; that of numbers needs one less.
constexpr int64_t kMostPasses = 4;

struct TableColumns {
  size_t target = 0;
  std::vector<size_t> features;
};

Result<TableColumns> columns_of(const TableSource& source, const TableOptions& options) {
  TableColumns columns;
  columns.target = source.columns.size() - 1;
  if (!options.target.empty()) {
    auto target = named_column(source, options.target);
    if (!target) return target.failure();
    columns.target = target.value();
  }
  std::set<size_t> ignored;
  for (const std::string& names : options.ignore) {
    auto named = named_columns(source, names);
    if (!named) return named.failure();
    ignored.insert(named.value().begin(), named.value().end());
  }
  for (size_t c = 0; c < source.columns.size(); ++c)
    if (c != columns.target && !ignored.contains(c)) columns.features.push_back(c);
  if (columns.features.empty())
    return source_failure(source, FailureCode::table_column,
                          fmt::format("expected a column besides the target '{}', got none{}",
                                      source.columns[columns.target],
                                      io::delimiter_hint(source.columns, source.delimiter)));
  return columns;
}

Split split_of(int64_t rows, const TableOptions& options) {
  Split split;
  split.held_out =
      std::clamp<int64_t>(std::llround(options.held_out * static_cast<double>(rows)), 1, rows - 1);
  const std::vector<int64_t> order = permutation(rows, options.seed, kSplitStream);
  split.place.resize(order.size());
  for (size_t at = 0; at < order.size(); ++at)
    split.place[static_cast<size_t>(order[at])] = static_cast<int64_t>(at);
  return split;
}

// Mean and deviation of the training rows' targets.
void scale_target(const TableTargets& targets, const Split& split, TableMeaning* meaning) {
  Moments moments;
  int64_t k = 0;
  for (const double v : targets.values)
    if (!std::isnan(v) && !split.is_test(k++)) moments.add(v);
  meaning->target_mean = moments.mean();
  meaning->target_std = moments.is_constant() ? 1 : moments.std();
}

// Examples of so many rows, to be filled in.
Examples room_for(int64_t rows, const TableMeaning& meaning) {
  const bool classifies = meaning.task == Task::classification;
  return {empty({rows, static_cast<int64_t>(meaning.features.size())}),
          classifies ? empty({rows}, DType::i64) : empty({rows, 1}), meaning.layout()};
}

void store_target(const TableMeaning& meaning, double value, const Examples& to, int64_t row) {
  if (meaning.task == Task::classification) {
    to.targets.data_as<int64_t>()[row] = static_cast<int64_t>(value);
  } else {
    to.targets.data_as<float>()[row] =
        static_cast<float>(standardised(value, meaning.target_mean, meaning.target_std));
  }
}

// The third pass.
Status fill(const TableSource& source, std::span<const size_t> columns, const TableTargets& targets,
            const Split& split, TableData* data) {
  const FeatureEncoder encoder(data->meaning.features);
  const auto width = static_cast<int64_t>(columns.size());
  auto* const train = data->train.inputs.data_as<float>();
  auto* const test = data->test.inputs.data_as<float>();
  return for_each_part(source, [&](size_t part, const CsvTable& rows) -> Status {
    return targets.for_each_kept(part, rows.rows(), [&](int64_t row, int64_t k, double target) {
      const bool is_test = split.is_test(k);
      const int64_t to = split.place[static_cast<size_t>(k)] - (is_test ? 0 : split.held_out);
      if (auto s =
              encoder.encode(rows, row, columns, (is_test ? test : train) + to * width, nullptr);
          !s)
        return s;
      store_target(data->meaning, target, is_test ? data->test : data->train, to);
      return ok_status();
    });
  });
}

Result<TableData> data_of(const TableSource& source, const TableOptions& options) {
  if (!(options.held_out > 0 && options.held_out < 1))
    throw Error(fmt::format("[table_data] expected 0 < held_out < 1, got {}", options.held_out));
  if (options.max_categories < 1)
    throw Error(fmt::format("[table_data] expected max_categories of 1 or more, got {}",
                            options.max_categories));
  auto columns = columns_of(source, options);
  if (!columns) return columns.failure();
  auto targets = read_targets(source, columns.value().target, options.task);
  if (!targets) return targets.failure();
  TableTargets& t = targets.value();
  const Split split = split_of(t.kept, options);

  TableData data;
  data.notes.rows_without_target = t.rows() - t.kept;
  data.meaning.target = source.columns[columns.value().target];
  data.meaning.task = t.task;
  data.meaning.classes = t.classes;
  if (t.task == Task::regression) scale_target(t, split, &data.meaning);
  auto features = read_features(source, options, columns.value().features, t, split, &data.notes);
  if (!features) return features.failure();
  data.meaning.features = std::move(features).value();
  if (data.meaning.inputs() == 0)
    return source_failure(source, FailureCode::table_column,
                          "expected a column with values in training rows, got none");
  data.train = room_for(t.kept - split.held_out, data.meaning);
  data.test = room_for(split.held_out, data.meaning);
  if (auto s = fill(source, columns.value().features, t, split, &data); !s) return s.failure();
  return data;
}

}  // namespace

Result<TableData> table_data(const CsvTable& table, const TableOptions& options) {
  TableSource source{.name = table.name(), .columns = table.columns(), .parts = 1};
  source.with_part = [&](size_t, FunctionRef<Status(const CsvTable&)> use) { return use(table); };
  return data_of(source, options);
}

Result<TableData> read_table_data(const std::string& path, const CsvOptions& csv,
                                  const TableOptions& options, const ReadProgress& progress) {
  const auto parts = io::CsvParts::open(path, csv);
  if (!parts) return parts.failure();
  const io::CsvParts& file = parts.value();
  TableSource source{
      .name = path, .delimiter = csv.delimiter, .columns = file.columns(), .parts = file.count()};
  source.with_part = [&](size_t part, FunctionRef<Status(const CsvTable&)> use) {
    const auto rows = file.part(part);
    return rows ? use(rows.value()) : Status(rows.failure());
  };
  std::mutex mutex;
  int64_t parts_done = 0;
  if (progress)
    source.done = [&](size_t) {
      const std::scoped_lock lock(mutex);
      const int64_t total = kMostPasses * static_cast<int64_t>(file.count());
      progress(++parts_done, total);
    };
  return data_of(source, options);
}

}  // namespace epilogue::train
