// SPDX-License-Identifier: Apache-2.0
// The kind of a cell's text.
#pragma once

#include <cstdint>
#include <string_view>

namespace epilogue::io {

enum class CellKind : uint8_t {
  missing,     // as CsvTable::is_missing() says
  number,      // finite
  not_finite,  // "inf", "-nan", "1e999"
  text
};

// `value` is that of a number; else it stays.
CellKind cell_kind(std::string_view text, double* value);

}  // namespace epilogue::io
