// SPDX-License-Identifier: Apache-2.0
#include "train/table_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <unordered_set>

#include "io/csv_cell.h"
#include "train/feature_encoder.h"
#include "train/moments.h"

namespace epilogue::train {
namespace {

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

}  // namespace

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

}  // namespace epilogue::train
