// SPDX-License-Identifier: Apache-2.0
// Examples to train on: batches in a seeded order, and tables made into tensors.
#pragma once

#include <cstdint>
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

// Rows of inputs and what is to be learned of each.
struct Examples {
  Tensor inputs;   // f32 [n, features]
  Tensor targets;  // i64 [n]: classes; or f32 [n, 1]: numbers

  int64_t size() const { return inputs.size(0); }
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
// `examples` are shared, not copied; a batch is a copy of its rows.
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
  std::string target = {};               // empty: the last column
  std::optional<Task> task = {};         // empty: as the target's values suggest
  std::vector<std::string> ignore = {};  // columns to leave out
  double held_out = 0.2;                 // share of the rows that is for testing; at least one row
  uint64_t seed = 0;                     // which rows these are
};

// What inputs and targets mean: with it a model can be used on other tables.
struct TableMeaning {
  Task task = Task::classification;
  std::string target;
  std::vector<std::string> classes;  // names by class number: sorted, as numbers where all are
  std::vector<std::string> features;
  std::vector<double> mean;  // by feature: an input is (value - mean) / std,
  std::vector<double> std;   // a missing value is 0; infinite where all training rows agree
  double target_mean = 0;    // of regression: a target is (value - mean) / std
  double target_std = 1;
};

// What a feature's value is to a network: (value - mean) / std of that feature; 0 where it is
// missing.
float standardised_feature(const TableMeaning& meaning, size_t feature,
                           std::optional<double> value);

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

// A table as examples. Mean and standard deviation (of the whole population) are those of the
// training rows alone. Without a task, a target of text or of at most 20 different whole numbers is
// a class. Failures read "FILE: CODE: what was expected, what came"; codes: TableColumn (no such
// column, or no feature left), TableRows (fewer than two rows with a target), TableTarget (one
// class only, or mostly classes of one row), and CsvNumber (a feature, or a target of regression,
// that is text).
// Throws Error unless 0 < held_out < 1.
Result<TableData> table_data(const CsvTable& table, const TableOptions& options);

}  // namespace epilogue::train

#pragma GCC visibility pop
