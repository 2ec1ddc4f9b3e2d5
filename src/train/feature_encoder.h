// SPDX-License-Identifier: Apache-2.0
// Cells of a table as the values that are stored of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "epilogue/csv.h"
#include "epilogue/data.h"

namespace epilogue::train {

// For lookups by string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// (value - mean) / std; 0 where std is infinite.
double standardised(double value, double mean, double std);

// FNV-1a, 64 bits.
uint64_t text_hash(std::string_view text);

// Safe to use from several threads.
class FeatureEncoder {
 public:
  explicit FeatureEncoder(const std::vector<Feature>& features);

  // The stored form of a row: one value per feature, found in the named columns. `unseen`, if it is
  // not null, counts by feature the categories that are not known. Codes: CsvNumber, CsvDate.
  Status encode(const CsvTable& rows, int64_t row, std::span<const size_t> columns, float* to,
                int64_t* unseen) const;
  // A number, a date in days, or NaN: missing. Precondition: the feature is no text.
  float stored(size_t feature, double value) const;

 private:
  using Numbers = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

  float stored_text(size_t feature, std::string_view text, int64_t* unseen) const;
  float missing(size_t feature) const;

  std::vector<Feature> features_;
  std::vector<Numbers> categories_;  // by feature
};

// "FILE: CODE: line N, column 'C': expected ..., got '...'".
Failure cell_failure(std::string_view file, FailureCode code, int64_t line, std::string_view column,
                     std::string_view expected, std::string_view got);

inline constexpr std::string_view kExpectedDate = "a date like 2024-12-31 or 2024-12-31T23:59:59";

}  // namespace epilogue::train
