// SPDX-License-Identifier: Apache-2.0
// A table as tensors: target, held-out rows, features, in three passes over its parts.

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text/nearest.h"
#include "base/thread_pool.h"
#include "epilogue/base/result.h"
#include "epilogue/csv.h"
#include "epilogue/data.h"
#include "epilogue/ops.h"
#include "io/csv_cell.h"
#include "io/csv_parts.h"
#include "io/csv_records.h"
#include "io/csv_state.h"
#include "io/message.h"
#include "train/feature_encoder.h"

namespace epilogue::train {

namespace {

// The order of additions decides the last bits. Squares of values at the ends of double's range are
// within that of long double.
class Moments {
 public:
  void add(double value) {
    ++count_;
    const long double off = value - mean_;
    mean_ += off / count_;
    squares_ += off * (value - mean_);
  }
  void add(const Moments& other) {
    if (other.count_ == 0) return;
    const long double both = count_ + other.count_;
    const long double off = other.mean_ - mean_;
    squares_ += other.squares_ + off * off * (count_ * other.count_ / both);
    mean_ += off * (other.count_ / both);
    count_ = both;
  }
  double mean() const { return static_cast<double>(mean_); }
  // The standard deviation of the whole population.
  double std() const { return count_ == 0 ? 0 : static_cast<double>(std::sqrt(squares_ / count_)); }
  // The sum's own rounding must not pass for a spread.
  bool is_constant() const { return !(std() > std::abs(mean()) * 1e-12); }

 private:
  long double count_ = 0;
  long double mean_ = 0;
  long double squares_ = 0;  // of what is off the mean
};

struct TableSource {
  std::string name;
  char delimiter = ',';
  std::vector<std::string> columns;
  size_t parts = 0;
  std::function<Status(size_t part, FunctionRef<Status(const CsvTable&)> use)> with_part;
  std::function<void(size_t part)> done = {};  // from any thread

  std::optional<size_t> find(std::string_view column) const;
};

struct TableTargets {
  Task task = Task::classification;
  std::vector<std::string> classes;
  std::vector<double> values;        // of each row: a class's number or a number; NaN: missing
  std::vector<int64_t> part_begins;  // the first row of each part
  std::vector<int64_t> kept_begins;  // rows with a target before each part
  int64_t kept = 0;                  // rows with a target

  int64_t rows() const { return static_cast<int64_t>(values.size()); }

  // Runs body(row, k, target) for those of a part's rows that have a target; each is the k-th of
  // all. Ends with the first failure.
  template <class Body>
  Status for_each_kept(size_t part, int64_t part_rows, Body&& body) const {
    int64_t k = kept_begins[part];
    for (int64_t row = 0; row < part_rows; ++row) {
      const double target = values[static_cast<size_t>(part_begins[part] + row)];
      if (std::isnan(target)) continue;
      if (Status s = body(row, k++, target); !s) return s;
    }
    return ok_status();
  }
};

// Where a row with a target goes.
struct Split {
  std::vector<int64_t> place;  // of the k-th of them: from 0 on among the test rows, then training
  int64_t held_out = 0;        // test rows
  bool is_test(int64_t k) const { return place[static_cast<size_t>(k)] < held_out; }
};

std::optional<size_t> TableSource::find(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) return {};
  return static_cast<size_t>(found - columns.begin());
}

Failure source_failure(const TableSource& source, FailureCode code, std::string_view detail) {
  return io::io_failure(source.name, code, detail);
}

// Runs body(part, rows) for all parts, on several threads. Gives the failure of the first part that
// has one.
Status for_each_part(const TableSource& source,
                     FunctionRef<Status(size_t part, const CsvTable& rows)> body) {
  std::vector<Status> results(source.parts, ok_status());
  std::atomic<size_t> first_failed = source.parts;
  parallel_blocks(static_cast<int64_t>(source.parts), [&](int64_t block) {
    const auto part = static_cast<size_t>(block);
    // Parts behind a bad one may be cut inside of a cell.
    if (part > first_failed.load(std::memory_order_relaxed)) return;
    results[part] = source.with_part(part, [&](const CsvTable& rows) { return body(part, rows); });
    if (!results[part]) {
      size_t known = first_failed;
      while (part < known && !first_failed.compare_exchange_weak(known, part)) {
      }
    }
    if (source.done) source.done(part);
  });
  const size_t failed = first_failed;
  return failed == source.parts ? ok_status() : results[failed];
}

Result<size_t> named_column(const TableSource& source, const std::string& name) {
  if (const auto found = source.find(name)) return *found;
  constexpr size_t kShown = 20;
  std::string known;
  for (size_t i = 0; i < std::min(source.columns.size(), kShown); ++i)
    known += (i == 0 ? "" : ", ") + source.columns[i];
  if (source.columns.size() > kShown) known += ", ...";
  return source_failure(source, FailureCode::table_column,
                        fmt::format("expected one of the columns {}; got '{}'{}{}", known, name,
                                    did_you_mean(nearest(name, source.columns)),
                                    io::delimiter_hint(source.columns, source.delimiter)));
}

// The columns that a flag names: the one of this whole name, or those of a CSV record.
Result<std::vector<size_t>> named_columns(const TableSource& source, const std::string& names) {
  if (const auto whole = source.find(names)) return std::vector<size_t>{*whole};
  std::vector<size_t> columns;
  for (const std::string& name : io::csv_cells(names)) {
    if (name.empty()) continue;
    auto column = named_column(source, name);
    if (!column) return column.failure();
    columns.push_back(column.value());
  }
  return columns;
}

using io::CellKind;

// A whole-number target with more values than this is taken for a quantity.
constexpr size_t kMaxNumericClasses = 20;
// From so many rows on, classes that mostly have one row each are taken for a mistake.
constexpr int64_t kManyRows = 20;
constexpr double kMissingTarget = std::numeric_limits<double>::quiet_NaN();

// The kind of the targets of a part, or those of all parts together, before anybody knows what the
// column is.
struct TargetColumn {
  std::vector<double> numbers;  // by row; NaN: missing, or text
  int64_t present = 0;
  int64_t text = 0;
  std::optional<Failure> not_finite;  // the first of each
  std::optional<Failure> not_a_number;

  bool is_numeric() const { return text == 0; }
  // Text is rarer than numbers are: what is not finite is no class's name.
  bool has_mostly_numbers() const { return 2 * text < present; }
};

TargetColumn part_targets(const CsvTable& rows, size_t column) {
  TargetColumn part;
  part.numbers.resize(static_cast<size_t>(rows.rows()), kMissingTarget);
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const CellKind kind =
        io::cell_kind(rows.cell(row, column), &part.numbers[static_cast<size_t>(row)]);
    if (kind != CellKind::missing) ++part.present;
    if (kind == CellKind::text && part.text++ == 0)
      part.not_a_number = rows.number(row, column).failure();
    if (kind == CellKind::not_finite && !part.not_finite)
      part.not_finite = rows.number(row, column).failure();
  }
  return part;
}

std::set<double> few_values(const std::vector<double>& numbers) {
  std::set<double> distinct;
  for (const double v : numbers) {
    if (std::isnan(v)) continue;
    distinct.insert(v);
    if (distinct.size() > kMaxNumericClasses) break;
  }
  return distinct;
}

Task suggested_task(const TargetColumn& column) {
  if (!column.is_numeric()) return Task::classification;
  const bool whole = std::all_of(column.numbers.begin(), column.numbers.end(),
                                 [](double v) { return std::isnan(v) || v == std::floor(v); });
  return whole && few_values(column.numbers).size() <= kMaxNumericClasses ? Task::classification
                                                                          : Task::regression;
}

// Classes that are numbers: 1 and 1.0 are one.
void number_classes(TableTargets* targets) {
  std::map<double, double> number_of;
  for (const double v : targets->values)
    if (!std::isnan(v)) number_of.emplace(v, 0);
  for (auto& [value, number] : number_of) {
    number = static_cast<double>(targets->classes.size());
    targets->classes.push_back(fmt::format("{}", value));
  }
  for (double& v : targets->values)
    if (!std::isnan(v)) v = number_of.at(v);
}

// Classes that are text take a pass of their own: numbers by part first, then by sorted name.
Status name_classes(const TableSource& source, size_t column, TableTargets* targets) {
  std::vector<std::unordered_map<std::string, double>> known(source.parts);
  if (auto s = for_each_part(
          source,
          [&](size_t part, const CsvTable& rows) {
            double* to = targets->values.data() + targets->part_begins[part];
            for (int64_t row = 0; row < rows.rows(); ++row) {
              if (rows.is_missing(row, column)) continue;
              const auto number = static_cast<double>(known[part].size());
              to[row] = known[part].emplace(rows.cell(row, column), number).first->second;
            }
            return ok_status();
          });
      !s)
    return s;
  std::map<std::string, double> number_of;
  for (const auto& names : known)
    for (const auto& [name, number] : names) number_of.emplace(name, 0);
  for (auto& [name, number] : number_of) {
    number = static_cast<double>(targets->classes.size());
    targets->classes.push_back(name);
  }
  for (size_t part = 0; part < source.parts; ++part) {
    std::vector<double> final_number(known[part].size());
    for (const auto& [name, number] : known[part])
      final_number[static_cast<size_t>(number)] = number_of.at(name);
    const int64_t end = part + 1 < source.parts ? targets->part_begins[part + 1] : targets->rows();
    for (int64_t row = targets->part_begins[part]; row < end; ++row)
      if (double& v = targets->values[static_cast<size_t>(row)]; !std::isnan(v))
        v = final_number[static_cast<size_t>(v)];
  }
  return ok_status();
}

Status check_classes(const TableSource& source, const std::string& name,
                     const TableTargets& targets, const TargetColumn& column) {
  const auto classes = static_cast<int64_t>(targets.classes.size());
  if (classes < 2)
    return source_failure(source, FailureCode::table_target,
                          fmt::format("expected two classes or more in '{}', got '{}' alone", name,
                                      targets.classes.front()));
  if (targets.kept <= kManyRows || classes <= targets.kept / 2) return ok_status();
  if (!column.is_numeric() && column.has_mostly_numbers()) return *column.not_a_number;
  return source_failure(
      source, FailureCode::table_target,
      fmt::format("expected classes with several rows each in '{}', got {} classes in {} rows "
                  "(a quantity is a matter of regression)",
                  name, classes, targets.kept));
}

Result<TargetColumn> read_column(const TableSource& source, size_t column, TableTargets* targets) {
  std::vector<TargetColumn> parts(source.parts);
  if (auto s = for_each_part(source,
                             [&](size_t part, const CsvTable& rows) {
                               parts[part] = part_targets(rows, column);
                               return ok_status();
                             });
      !s)
    return s.failure();
  TargetColumn all;
  for (TargetColumn& p : parts) {
    targets->part_begins.push_back(static_cast<int64_t>(all.numbers.size()));
    targets->kept_begins.push_back(all.present);
    all.numbers.insert(all.numbers.end(), p.numbers.begin(), p.numbers.end());
    p.numbers = {};
    all.present += p.present;
    all.text += p.text;
    if (!all.not_finite) all.not_finite = p.not_finite;
    if (!all.not_a_number) all.not_a_number = p.not_a_number;
  }
  targets->kept = all.present;
  return all;
}

// Codes: TableRows, TableTarget, CsvNumber, and those of the source.
Result<TableTargets> read_targets(const TableSource& source, size_t column,
                                  std::optional<Task> task) {
  TableTargets targets;
  auto read = read_column(source, column, &targets);
  if (!read) return read.failure();
  TargetColumn& all = read.value();
  const std::string& name = source.columns[column];
  if (all.numbers.empty())
    return source_failure(source, FailureCode::csv_empty,
                          "expected a header and at least one row, got no row");
  if (targets.kept < 2)
    return source_failure(
        source, FailureCode::table_rows,
        fmt::format("expected two rows or more with a value of '{}', got {}", name, targets.kept));
  if (all.not_finite && all.has_mostly_numbers()) return *all.not_finite;
  targets.task = task.value_or(suggested_task(all));
  if (targets.task == Task::regression && !all.is_numeric()) return *all.not_a_number;
  targets.values = std::move(all.numbers);
  if (targets.task == Task::regression) return targets;
  if (all.is_numeric() && !all.not_finite) {
    number_classes(&targets);
  } else if (auto s = name_classes(source, column, &targets); !s) {
    return s.failure();
  }
  if (auto s = check_classes(source, name, targets, all); !s) return s.failure();
  return targets;
}

using io::CellKind;
using Texts = std::unordered_set<std::string, TextHash, std::equal_to<>>;

struct FirstCell {
  int64_t line = std::numeric_limits<int64_t>::max();
  std::string text;

  void note(int64_t at, std::string_view what) {
    if (at >= line) return;
    line = at;
    text = what;
  }
};

// The kind of a column's cells. Sums of parts do not depend on their order, but for the moments.
struct ColumnStats {
  int64_t numbers = 0;
  int64_t dates = 0;
  int64_t texts = 0;
  int64_t not_finite = 0;
  int64_t decimal_commas = 0;  // of the texts
  int64_t other_dates = 0;     // likewise
  int64_t missing = 0;
  int64_t missing_in_training = 0;
  FirstCell first_text, first_date, first_number, first_not_finite, first_comma, first_other_date;
  Texts values;  // of training rows, up to one more than --max-categories

  int64_t present() const { return numbers + dates + texts + not_finite; }
  void add(const ColumnStats& part, size_t most_values);
};

struct ColumnMoments {
  Moments numbers;
  Moments days;
};

void ColumnStats::add(const ColumnStats& part, size_t most_values) {
  numbers += part.numbers;
  dates += part.dates;
  texts += part.texts;
  not_finite += part.not_finite;
  decimal_commas += part.decimal_commas;
  other_dates += part.other_dates;
  missing += part.missing;
  missing_in_training += part.missing_in_training;
  const auto note = [](FirstCell& ours, const FirstCell& theirs) {
    ours.note(theirs.line, theirs.text);
  };
  note(first_text, part.first_text);
  note(first_date, part.first_date);
  note(first_number, part.first_number);
  note(first_not_finite, part.first_not_finite);
  note(first_comma, part.first_comma);
  note(first_other_date, part.first_other_date);
  for (const std::string& value : part.values)
    if (values.size() <= most_values) values.insert(value);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "1,5": a number to half the world.
bool has_decimal_comma(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const size_t comma = text.find(',');
  if (comma == 0 || comma == std::string_view::npos || comma + 1 == text.size()) return false;
  return std::ranges::all_of(text.substr(0, comma), is_digit) &&
         std::ranges::all_of(text.substr(comma + 1), is_digit);
}

// "31.12.2024", "12/31/24", "2024/12/31", alone or in front of a time.
bool is_other_date(std::string_view text) {
  text = text.substr(0, text.find_first_of(" T"));
  const size_t first = text.find_first_of("./-");
  if (first == std::string_view::npos || first == 0) return false;
  const size_t second = text.find(text[first], first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view parts[] = {
      text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  return std::ranges::all_of(parts, [](std::string_view part) {
    return !part.empty() && part.size() <= 4 && std::ranges::all_of(part, is_digit);
  });
}

void note_text(std::string_view cell, int64_t line, ColumnStats* stats) {
  ++stats->texts;
  stats->first_text.note(line, cell);
  if (has_decimal_comma(cell)) {
    ++stats->decimal_commas;
    stats->first_comma.note(line, cell);
  } else if (is_other_date(cell)) {
    ++stats->other_dates;
    stats->first_other_date.note(line, cell);
  }
}

void note_cell(std::string_view cell, int64_t line, bool is_training, size_t most_values,
               ColumnStats* stats, ColumnMoments* moments) {
  double value = 0;
  const CellKind kind = io::cell_kind(cell, &value);
  if (kind == CellKind::missing) {
    ++stats->missing;
    if (is_training) ++stats->missing_in_training;
    return;
  }
  if (is_training && stats->values.size() <= most_values && !stats->values.contains(cell))
    stats->values.emplace(cell);
  if (kind == CellKind::number) {
    ++stats->numbers;
    stats->first_number.note(line, cell);
    if (is_training) moments->numbers.add(value);
  } else if (kind == CellKind::not_finite) {
    ++stats->not_finite;
    stats->first_not_finite.note(line, cell);
  } else if (const auto days = days_of_date(cell)) {
    ++stats->dates;
    stats->first_date.note(line, cell);
    if (is_training) moments->days.add(*days);
  } else {
    note_text(cell, line, stats);
  }
}

// Makes features of what is known of the columns.
class Decision {
 public:
  Decision(const TableSource& source, const TableOptions& options, TableNotes* notes)
      : source_(source), options_(options), notes_(notes) {}

  Result<Feature> feature(size_t column, const ColumnStats& s, const ColumnMoments& m,
                          bool is_categorical) const {
    const std::string& name = source_.columns[column];
    if (s.missing > 0) notes_->missing.emplace_back(name, s.missing);
    Feature f{.name = name, .marks_missing = s.missing_in_training > 0};
    const int64_t text = s.texts + s.dates;
    if (is_categorical) return category(std::move(f), s);
    if (s.numbers >= text && s.not_finite > 0)
      return refused(name, FailureCode::csv_number, "a finite number", s.first_not_finite);
    if (s.numbers >= text) {
      if (text > 0) return stray_text(name, s);
      return scaled(std::move(f), FeatureKind::number, m.numbers);
    }
    if (2 * s.dates >= s.present()) {
      if (s.dates < s.present()) return stray_in_dates(name, s);
      return scaled(std::move(f), FeatureKind::date, m.days);
    }
    if (2 * s.decimal_commas >= s.present())
      return refused(name, FailureCode::csv_number, "a number with a decimal point", s.first_comma);
    if (2 * s.other_dates >= s.present())
      return refused(name, FailureCode::csv_date,
                     fmt::format("{} (or leave the column out: --ignore)", kExpectedDate),
                     s.first_other_date);
    return category(std::move(f), s);
  }

 private:
  Failure refused(std::string_view name, FailureCode code, std::string_view expected,
                  const FirstCell& cell) const {
    return cell_failure(source_.name, code, cell.line, name, expected, cell.text);
  }

  Failure stray_text(std::string_view name, const ColumnStats& s) const {
    const bool is_date = s.first_date.line < s.first_text.line;
    return refused(name, FailureCode::csv_number, "a finite number",
                   is_date ? s.first_date : s.first_text);
  }

  Failure stray_in_dates(std::string_view name, const ColumnStats& s) const {
    const FirstCell* first = &s.first_text;
    for (const FirstCell* other : {&s.first_number, &s.first_not_finite})
      if (other->line < first->line) first = other;
    return refused(name, FailureCode::csv_date, kExpectedDate, *first);
  }

  Feature scaled(Feature f, FeatureKind kind, const Moments& m) const {
    f.kind = kind;
    if (m.is_constant()) notes_->constant.push_back(f.name);
    f.mean = m.mean();
    f.std = m.is_constant() ? std::numeric_limits<double>::infinity() : m.std();
    return f;
  }

  Feature category(Feature f, const ColumnStats& s) const {
    if (static_cast<int64_t>(s.values.size()) > options_.max_categories) {
      f.kind = FeatureKind::hashed;
      f.buckets = options_.max_categories;
      return f;
    }
    f.kind = FeatureKind::category;
    f.categories.assign(s.values.begin(), s.values.end());
    std::sort(f.categories.begin(), f.categories.end());
    return f;
  }

  const TableSource& source_;
  const TableOptions& options_;
  TableNotes* notes_;
};

// Codes: CsvNumber, CsvDate, TableColumn, and those of the source.
Result<std::vector<Feature>> read_features(const TableSource& source, const TableOptions& options,
                                           std::span<const size_t> columns,
                                           const TableTargets& targets, const Split& split,
                                           TableNotes* notes) {
  std::set<size_t> categorical;
  for (const std::string& names : options.categorical) {
    auto named = named_columns(source, names);
    if (!named) return named.failure();
    categorical.insert(named.value().begin(), named.value().end());
  }
  const auto most_values = static_cast<size_t>(options.max_categories);
  std::vector<ColumnStats> stats(columns.size());
  std::vector<std::vector<ColumnMoments>> moments(source.parts);
  std::mutex mutex;
  const auto read = [&](size_t part, const CsvTable& rows) {
    std::vector<ColumnStats> here(columns.size());
    moments[part].resize(columns.size());
    const Status noted =
        targets.for_each_kept(part, rows.rows(), [&](int64_t row, int64_t k, double) {
          for (size_t c = 0; c < columns.size(); ++c)
            note_cell(rows.cell(row, columns[c]), rows.line(row), !split.is_test(k), most_values,
                      &here[c], &moments[part][c]);
          return ok_status();
        });
    const std::scoped_lock lock(mutex);
    for (size_t c = 0; c < columns.size(); ++c) stats[c].add(here[c], most_values);
    return noted;
  };
  if (auto s = for_each_part(source, read); !s) return s.failure();
  const Decision decision(source, options, notes);
  std::vector<Feature> features;
  for (size_t c = 0; c < columns.size(); ++c) {
    ColumnMoments all;
    for (const auto& part : moments) {
      all.numbers.add(part[c].numbers);
      all.days.add(part[c].days);
    }
    auto feature = decision.feature(columns[c], stats[c], all, categorical.contains(columns[c]));
    if (!feature) return feature.failure();
    features.push_back(std::move(feature).value());
  }
  return features;
}

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
