// SPDX-License-Identifier: Apache-2.0
#include "train/feature_encoder.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "io/csv_cell.h"
#include "io/message.h"

namespace epilogue::train {
namespace {

constexpr float kNoCategory = -1;

}  // namespace

// Halves, which are exact, as the difference of values at the ends of the range is not finite.
double standardised(double value, double mean, double std) {
  return (value / 2 - mean / 2) / (std / 2);
}

uint64_t text_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Failure cell_failure(std::string_view file, FailureCode code, int64_t line, std::string_view column,
                     std::string_view expected, std::string_view got) {
  return io::io_failure(file, code,
                        fmt::format("line {}, column {}: expected {}, got {}", line,
                                    io::in_quotes(column), expected, io::in_quotes(got)));
}

FeatureEncoder::FeatureEncoder(const std::vector<Feature>& features)
    : features_(features), categories_(features.size()) {
  for (size_t f = 0; f < features.size(); ++f)
    for (const std::string& name : features[f].categories)
      categories_[f].emplace(name, static_cast<int64_t>(categories_[f].size()));
}

float FeatureEncoder::missing(size_t feature) const {
  const Feature& f = features_[feature];
  if (f.marks_missing) return std::numeric_limits<float>::quiet_NaN();
  return f.is_text() ? kNoCategory : 0;
}

float FeatureEncoder::stored(size_t feature, double value) const {
  const Feature& f = features_[feature];
  if (std::isnan(value)) return missing(feature);
  return static_cast<float>(standardised(value, f.mean, f.std));
}

float FeatureEncoder::stored_text(size_t feature, std::string_view text, int64_t* unseen) const {
  const Feature& f = features_[feature];
  if (f.kind == FeatureKind::hashed)
    return static_cast<float>(text_hash(text) % static_cast<uint64_t>(f.buckets));
  const auto found = categories_[feature].find(text);
  if (found != categories_[feature].end()) return static_cast<float>(found->second);
  if (unseen != nullptr) ++unseen[feature];
  return kNoCategory;
}

Status FeatureEncoder::encode(const CsvTable& rows, int64_t row, std::span<const size_t> columns,
                              float* to, int64_t* unseen) const {
  for (size_t f = 0; f < features_.size(); ++f) {
    const std::string_view cell = rows.cell(row, columns[f]);
    double value = 0;
    const io::CellKind kind = io::cell_kind(cell, &value);
    if (kind == io::CellKind::missing) {
      to[f] = missing(f);
    } else if (features_[f].kind == FeatureKind::number) {
      if (kind != io::CellKind::number) return rows.number(row, columns[f]).failure();
      to[f] = stored(f, value);
    } else if (features_[f].kind == FeatureKind::date) {
      const auto days = days_of_date(cell);
      if (!days)
        return cell_failure(rows.name(), FailureCode::csv_date, rows.line(row), features_[f].name,
                            kExpectedDate, cell);
      to[f] = stored(f, *days);
    } else {
      to[f] = stored_text(f, cell, unseen);
    }
  }
  return ok_status();
}

}  // namespace epilogue::train
