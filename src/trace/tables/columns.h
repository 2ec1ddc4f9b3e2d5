// SPDX-License-Identifier: Apache-2.0
// The columns of a trace's tables: how the values of a batch of rows are made.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trace/tables/table_data.h"

namespace epilogue::trace {

// The buffers of one column of a batch.
struct Buffers {
  std::vector<uint8_t> valid;  // bits; empty: no nulls
  std::vector<uint8_t> values;
  int64_t nulls = 0;

  void set_null(size_t row, size_t rows) {
    if (valid.empty()) valid.assign((rows + 7) / 8, 0xff);
    valid[row / 8] = static_cast<uint8_t>(valid[row / 8] & ~(1u << (row % 8)));
    ++nulls;
  }
};

// The strings of a column, each once. Arrays of all batches share it.
struct Dictionary {
  std::vector<int32_t> codes;  // by key; -1: not in the column
  std::vector<int64_t> offsets = {0};
  std::string text;
};

using FillColumn =
    std::function<void(std::span<const uint32_t> rows, const Dictionary*, Buffers& out)>;
using MakeDictionary = std::function<Dictionary(const Rows& rows)>;

struct ArrowColumn {
  const char* name;
  const char* format;  // Arrow's: "l" int64, "i" int32, "g" float64, "b" bool
  FillColumn fill;
  MakeDictionary dictionary = {};  // of columns of text: values are then int32, its codes
};

// They refer to `data`.
std::vector<ArrowColumn> columns_of(TableKind kind, const TableData& data);

}  // namespace epilogue::trace
