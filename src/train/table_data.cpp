// SPDX-License-Identifier: Apache-2.0
// A table as tensors: target, held-out rows, standardised features.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "epilogue/data.h"

namespace epilogue::train {
namespace {

// A whole-number target with more values than this is taken for a quantity.
constexpr size_t kMaxNumericClasses = 20;
// 2^1000 is finite; smaller values than 2^-1000 are scaled by it and no more.
constexpr int kMinExponent = -1000;
// From so many rows on, classes that mostly have one row each are taken for a mistake.
constexpr size_t kManyRows = 20;
// Keeps the choice of held-out rows apart from the orders of epochs 0, 1, ...
constexpr uint64_t kSplitStream = std::numeric_limits<uint64_t>::max();

Failure table_failure(const CsvTable& table, FailureCode code, std::string_view detail) {
  return {code, fmt::format("{}: {}: {}", table.name(), failure_code_name(code), detail)};
}

// The columns' parts and the rows that have a target.
struct Layout {
  size_t target = 0;
  std::vector<size_t> features;
  std::vector<int64_t> rows;
};

Result<size_t> column_of(const CsvTable& table, const std::string& name) {
  if (const auto found = table.find(name)) return *found;
  constexpr size_t kShown = 20;
  std::string known;
  for (size_t i = 0; i < std::min(table.columns().size(), kShown); ++i)
    known += (i == 0 ? "" : ", ") + table.columns()[i];
  if (table.columns().size() > kShown) known += ", ...";
  return table_failure(table, FailureCode::table_column,
                       fmt::format("expected one of the columns {}; got '{}'", known, name));
}

Result<Layout> lay_out(const CsvTable& table, const TableOptions& options) {
  Layout layout;
  layout.target = table.columns().size() - 1;
  if (!options.target.empty()) {
    auto target = column_of(table, options.target);
    if (!target) return target.failure();
    layout.target = target.value();
  }
  std::set<size_t> ignored;
  for (const std::string& name : options.ignore) {
    auto column = column_of(table, name);
    if (!column) return column.failure();
    ignored.insert(column.value());
  }
  for (size_t c = 0; c < table.columns().size(); ++c)
    if (c != layout.target && !ignored.contains(c)) layout.features.push_back(c);
  if (layout.features.empty())
    return table_failure(table, FailureCode::table_column,
                         fmt::format("expected a column besides the target '{}', got none",
                                     table.columns()[layout.target]));
  for (int64_t row = 0; row < table.rows(); ++row)
    if (!table.is_missing(row, layout.target)) layout.rows.push_back(row);
  if (layout.rows.size() < 2)
    return table_failure(table, FailureCode::table_rows,
                         fmt::format("expected two rows or more with a value of '{}', got {}",
                                     table.columns()[layout.target], layout.rows.size()));
  return layout;
}

// The target's values as numbers, one per row of the layout; empty where one is text.
std::vector<double> numeric_targets(const CsvTable& table, const Layout& layout) {
  std::vector<double> values;
  for (const int64_t row : layout.rows) {
    auto number = table.number(row, layout.target);
    if (!number) return {};
    values.push_back(*number.value());
  }
  return values;
}

Task suggested_task(const std::vector<double>& numbers) {
  if (numbers.empty()) return Task::classification;
  const bool whole =
      std::all_of(numbers.begin(), numbers.end(), [](double v) { return v == std::floor(v); });
  const std::set<double> distinct(numbers.begin(), numbers.end());
  return whole && distinct.size() <= kMaxNumericClasses ? Task::classification : Task::regression;
}

// What names the class of a row: its text, or the number, so that 1 and 1.0 are one class.
std::string class_of(const CsvTable& table, const Layout& layout,
                     const std::vector<double>& numbers, size_t i) {
  return numbers.empty() ? std::string(table.cell(layout.rows[i], layout.target))
                         : fmt::format("{}", numbers[i]);
}

std::vector<std::string> class_names(const CsvTable& table, const Layout& layout,
                                     const std::vector<double>& numbers) {
  std::set<std::pair<double, std::string>> ordered;
  for (size_t i = 0; i < layout.rows.size(); ++i)
    ordered.emplace(numbers.empty() ? 0 : numbers[i], class_of(table, layout, numbers, i));
  std::vector<std::string> names;
  names.reserve(ordered.size());
  for (const auto& [number, name] : ordered) names.push_back(name);
  return names;
}

Result<std::vector<double>> class_targets(const CsvTable& table, const Layout& layout,
                                          const std::vector<double>& numbers,
                                          TableMeaning* meaning) {
  meaning->classes = class_names(table, layout, numbers);
  const size_t classes = meaning->classes.size();
  if (classes < 2)
    return table_failure(table, FailureCode::table_target,
                         fmt::format("expected two classes or more in '{}', got '{}' alone",
                                     meaning->target, meaning->classes.front()));
  if (layout.rows.size() > kManyRows && classes > layout.rows.size() / 2)
    return table_failure(
        table, FailureCode::table_target,
        fmt::format("expected classes with several rows each in '{}', got {} classes in {} rows "
                    "(a quantity is a matter of regression)",
                    meaning->target, classes, layout.rows.size()));
  std::map<std::string_view, double> number_of;
  for (size_t i = 0; i < classes; ++i) number_of[meaning->classes[i]] = static_cast<double>(i);
  std::vector<double> targets;
  targets.reserve(layout.rows.size());
  for (size_t i = 0; i < layout.rows.size(); ++i)
    targets.push_back(number_of.at(class_of(table, layout, numbers, i)));
  return targets;
}

struct Moments {
  double mean = 0;
  double std = 1;
  bool is_constant = false;
};

// The power of two that brings the largest value to about 1: neither sums nor squares of values at
// the ends of the range overflow or vanish then, and all others keep their bits.
double scale_of(std::span<const double> values, std::span<const int64_t> rows) {
  double largest = 0;
  for (const int64_t row : rows)
    largest = std::fmax(largest, std::abs(values[static_cast<size_t>(row)]));
  return largest == 0 ? 1 : std::ldexp(1, -std::max(std::ilogb(largest), kMinExponent));
}

// Of the values that are not NaN, in two passes.
Moments moments(std::span<const double> values, std::span<const int64_t> rows) {
  const double scale = scale_of(values, rows);
  double sum = 0;
  double count = 0;
  for (const int64_t row : rows) {
    const double v = values[static_cast<size_t>(row)] * scale;
    if (std::isnan(v)) continue;
    sum += v;
    ++count;
  }
  if (count == 0) return {.is_constant = true};
  const double mean = sum / count;
  double squares = 0;
  for (const int64_t row : rows) {
    const double off = values[static_cast<size_t>(row)] * scale - mean;
    if (!std::isnan(off)) squares += off * off;
  }
  const double std = std::sqrt(squares / count);
  // The sum's own rounding must not pass for a spread.
  return {mean / scale, std / scale, !(std > std::abs(mean) * 1e-12)};
}

// Halves, which are exact, as the difference of values at the ends of the range is not finite.
double standardised(double value, double mean, double std) {
  return (value / 2 - mean / 2) / (std / 2);
}

Status fill_features(const CsvTable& table, const Layout& layout, std::span<const int64_t> train,
                     TableData* data, const Tensor& all) {
  const size_t n = layout.rows.size();
  const size_t width = layout.features.size();
  auto* to = all.data_as<float>();
  for (size_t f = 0; f < width; ++f) {
    const std::string& name = table.columns()[layout.features[f]];
    std::vector<double> values;
    int64_t missing = 0;
    for (const int64_t row : layout.rows) {
      auto number = table.number(row, layout.features[f]);
      if (!number) return number.failure();
      missing += number.value() ? 0 : 1;
      values.push_back(number.value().value_or(std::numeric_limits<double>::quiet_NaN()));
    }
    const Moments m = moments(values, train);
    if (missing > 0) data->notes.missing.emplace_back(name, missing);
    if (m.is_constant) data->notes.constant.push_back(name);
    data->meaning.features.push_back(name);
    data->meaning.mean.push_back(m.mean);
    data->meaning.std.push_back(m.is_constant ? std::numeric_limits<double>::infinity() : m.std);
    for (size_t i = 0; i < n; ++i)
      to[i * width + f] = standardised_feature(
          data->meaning, f, std::isnan(values[i]) ? std::nullopt : std::optional(values[i]));
  }
  return ok_status();
}

Tensor target_tensor(const TableMeaning& meaning, const std::vector<double>& targets) {
  const auto n = static_cast<int64_t>(targets.size());
  if (meaning.task == Task::classification) return from_values(targets, {n}, DType::i64);
  std::vector<double> scaled;
  scaled.reserve(targets.size());
  for (const double v : targets)
    scaled.push_back(standardised(v, meaning.target_mean, meaning.target_std));
  return from_values(scaled, {n, 1});
}

}  // namespace

float standardised_feature(const TableMeaning& meaning, size_t feature,
                           std::optional<double> value) {
  if (!value) return 0;
  return static_cast<float>(
      standardised(*value, meaning.mean.at(feature), meaning.std.at(feature)));
}

Result<TableData> table_data(const CsvTable& table, const TableOptions& options) {
  if (!(options.held_out > 0 && options.held_out < 1))
    throw Error(fmt::format("[table_data] expected 0 < held_out < 1, got {}", options.held_out));
  auto laid_out = lay_out(table, options);
  if (!laid_out) return laid_out.failure();
  const Layout& layout = laid_out.value();
  const auto n = static_cast<int64_t>(layout.rows.size());
  const auto held_out =
      std::clamp<int64_t>(std::llround(options.held_out * static_cast<double>(n)), 1, n - 1);
  const std::vector<int64_t> order = permutation(n, options.seed, kSplitStream);
  const auto test = std::span(order).first(static_cast<size_t>(held_out));
  const auto train = std::span(order).subspan(static_cast<size_t>(held_out));

  TableData data;
  data.notes.rows_without_target = table.rows() - n;
  data.meaning.target = table.columns()[layout.target];
  std::vector<double> targets = numeric_targets(table, layout);
  data.meaning.task = options.task.value_or(suggested_task(targets));
  if (data.meaning.task == Task::classification) {
    auto classes = class_targets(table, layout, targets, &data.meaning);
    if (!classes) return classes.failure();
    targets = std::move(classes).value();
  } else if (targets.empty()) {
    for (const int64_t row : layout.rows)
      if (auto number = table.number(row, layout.target); !number) return number.failure();
  } else {
    const Moments m = moments(targets, train);
    data.meaning.target_mean = m.mean;
    data.meaning.target_std = m.is_constant ? 1 : m.std;
  }
  const Tensor inputs = empty({n, static_cast<int64_t>(layout.features.size())});
  if (auto s = fill_features(table, layout, train, &data, inputs); !s) return s.failure();
  const Tensor all_targets = target_tensor(data.meaning, targets);
  data.train = {take_rows(inputs, train), take_rows(all_targets, train)};
  data.test = {take_rows(inputs, test), take_rows(all_targets, test)};
  return data;
}

}  // namespace epilogue::train
