// SPDX-License-Identifier: Apache-2.0
#include "train/table_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "io/csv_cell.h"

namespace epilogue::train {
namespace {

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

}  // namespace

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

}  // namespace epilogue::train
