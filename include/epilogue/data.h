// SPDX-License-Identifier: Apache-2.0
// Examples to train on: batches in a seeded order, and tables made into tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/csv.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue::train {

// A value that is stored, and the inputs that a network gets of it.
struct StoredColumn {
  bool is_category = false;    // a category's number; -1 is none of them: all its inputs are 0
  int64_t width = 1;           // inputs: of categories one each, of which one is 1
  bool marks_missing = false;  // NaN, a missing value, is 0 in these, and 1 in one more behind them
};

// Rows as they are stored, f32 [n, columns], made into what a network gets, f32 [n, width]. A
// table's categories take one value each until a batch needs them.
class InputLayout {
 public:
  // Throws Error on a negative width.
  explicit InputLayout(std::vector<StoredColumn> columns);
  int64_t width() const { return width_; }
  // Throws Error unless it is f32 [n, columns] of the host.
  Tensor inputs_of(const Tensor& stored) const;

 private:
  std::vector<StoredColumn> columns_;
  int64_t width_ = 0;
};

// Rows of inputs and what is to be learned of each.
struct Examples {
  Tensor inputs;   // f32 [n, features], or what a layout makes them of
  Tensor targets;  // i64 [n]: classes; or f32 [n, 1]: numbers
  std::shared_ptr<const InputLayout> layout = {};

  int64_t size() const { return inputs.size(0); }
  int64_t width() const { return layout ? layout->width() : inputs.size(1); }
  // The same without a layout.
  Examples laid_out() const;
  // Rows [begin, end), sharing memory. Throws Error unless 0 <= begin <= end <= size().
  Examples rows(int64_t begin, int64_t end) const;
};

// The numbers 0 to n - 1 in an order that is a pure function of seed and stream (Fisher and Yates'
// shuffle over Philox), for every number of threads. Throws Error on n < 0 and where memory does
// not hold them.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream);

// The named rows of a contiguous tensor, copied. Throws Error on a row that is not there.
Tensor take_rows(const Tensor& from, std::span<const int64_t> rows);

// A check sum of all values: tells whether a run goes on with the data that it began with.
uint32_t fingerprint(const Examples& examples);

// The batches of one epoch, every example once, the last batch perhaps short. The order is
// permutation(n, seed, epoch), so that a run which stopped can go on in the middle of an epoch.
// `examples` are shared, not copied; a batch is a copy of its rows, laid out.
class EpochBatches {
 public:
  // Throws Error on batch_size < 1 and where there is not one target per input.
  EpochBatches(Examples examples, int64_t batch_size, uint64_t seed, int64_t epoch);
  int64_t count() const;
  // Throws Error unless 0 <= i < count().
  Examples batch(int64_t i) const;

 private:
  Examples examples_;
  int64_t batch_size_;
  std::vector<int64_t> order_;
};

enum class Task : uint8_t { classification, regression };

struct TableOptions {
  std::string target = {};        // empty: the last column
  std::optional<Task> task = {};  // empty: as the target's values suggest
  // Columns to leave out. Each is a column's whole name, or several as a CSV record: a,"b, c".
  std::vector<std::string> ignore = {};
  std::vector<std::string> categorical = {};  // columns whose numbers are names; as `ignore`
  // A column of text with more different values is hashed to so many inputs; else each value has
  // one.
  int64_t max_categories = 64;
  double held_out = 0.2;  // share of the rows that is for testing; at least one row
  uint64_t seed = 0;      // which rows these are
};

enum class FeatureKind : uint8_t {
  number,
  date,      // days since 1970-01-01, then as a number
  category,  // text: an input per value; one that is not known has 0 in all
  hashed     // text: the input number FNV-1a(text) mod `buckets` is 1
};

// A column that a model reads.
struct Feature {
  std::string name;
  FeatureKind kind = FeatureKind::number;
  // An input is (value - mean) / std; a missing value is 0. Infinite: always 0, as all training
  // rows agree.
  double mean = 0;
  double std = 1;
  bool marks_missing = false;  // one more input is 1 where the value is missing, else 0
  std::vector<std::string> categories = {};
  int64_t buckets = 0;

  bool is_text() const { return kind == FeatureKind::category || kind == FeatureKind::hashed; }
  int64_t width() const;  // inputs
};

// The meaning of inputs and targets: with it a model can be used on other tables.
struct TableMeaning {
  Task task = Task::classification;
  std::string target;
  std::vector<std::string> classes;  // names by class number: sorted, as numbers where all are
  std::vector<Feature> features;
  double target_mean = 0;  // of regression: a target is (value - mean) / std
  double target_std = 1;

  int64_t inputs() const;  // of all features
  // How rows are stored; null where that is what a network gets.
  std::shared_ptr<const InputLayout> layout() const;
};

// Days since 1970-01-01 of "2024-12-31", with or without "T23:59", "T23:59:59.5" (or a blank for
// the T) and then "Z", "+01" or "+01:00". Empty: no such text, or no such day.
std::optional<double> days_of_date(std::string_view text);

struct TableNotes {
  std::vector<std::pair<std::string, int64_t>> missing;  // values per feature that has some
  std::vector<std::string> constant;                     // features with one value: always 0
  int64_t rows_without_target = 0;                       // left out
};

struct TableData {
  Examples train;
  Examples test;
  TableMeaning meaning;
  TableNotes notes;
};

// A table as examples. Mean, standard deviation (of the whole population), categories and whether
// values are missing are those of the training rows alone. Without a task, a target of text or of
// at most 20 different whole numbers is a class. A feature is a number or a date where at least
// half of its values are, and text where not. Failures read "FILE: CODE: what was expected, what
// came"; codes: TableColumn (no such column, or no feature left), TableRows (fewer than two rows
// with a target), TableTarget (one class only, or mostly classes of one row), CsvNumber (a number
// that is not finite, or text among numbers), and CsvDate (other text among dates, or dates and
// numbers written in a way that could mean another). Throws Error unless 0 < held_out < 1 and
// max_categories >= 1.
Result<TableData> table_data(const CsvTable& table, const TableOptions& options);

// Called now and then, from any thread, one at a time: parts that were read, of how many at most.
using ReadProgress = std::function<void(int64_t done, int64_t total)>;

// The same of a file that is read in parts, on all threads, several times. Beside the examples,
// which have 4 bytes for each value that is stored, memory holds about 30 bytes per row and 4 MiB
// per thread. Failures are also CsvTable::read()'s.
Result<TableData> read_table_data(const std::string& path, const CsvOptions& csv,
                                  const TableOptions& options, const ReadProgress& progress = {});

}  // namespace epilogue::train

#pragma GCC visibility pop
