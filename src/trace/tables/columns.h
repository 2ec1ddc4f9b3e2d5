// SPDX-License-Identifier: Apache-2.0
// The columns of a trace's tables: how the values of a batch of rows are made.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "epilogue/trace/tables.h"
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

template <class T>
constexpr const char* format_of() {
  if constexpr (std::is_same_v<T, bool>) return "b";
  if constexpr (std::is_same_v<T, int32_t>) return "i";
  if constexpr (std::is_same_v<T, double>) return "g";
  return "l";
}

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

template <class T>
void put(Buffers& out, size_t at, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value) out.values[at / 8] = static_cast<uint8_t>(out.values[at / 8] | 1u << (at % 8));
  } else {
    std::memcpy(out.values.data() + at * sizeof(T), &value, sizeof(T));
  }
}

// get(row) gives int64_t, int32_t, double or bool, or an optional of these.
template <class Get>
ArrowColumn numbers(const char* name, const Get& get) {
  using Given = std::invoke_result_t<Get, uint32_t>;
  using T = typename Unwrapped<Given>::type;
  return {name, format_of<T>(),
          [get](std::span<const uint32_t> rows, const Dictionary*, Buffers& out) {
            out.values.assign(
                std::is_same_v<T, bool> ? (rows.size() + 7) / 8 : rows.size() * sizeof(T), 0);
            for (size_t i = 0; i < rows.size(); ++i) {
              const Given value = get(rows[i]);
              if constexpr (std::is_same_v<Given, T>) {
                put<T>(out, i, value);
              } else if (value) {
                put<T>(out, i, *value);
              } else {
                out.set_null(i, rows.size());
              }
            }
          }};
}

// Foreign traces hold any bytes; Arrow's text is UTF-8. Text that is not keeps its ASCII.
std::string utf8(std::string_view text);

// key(row) gives a number below `keys`, or kNone for null; text(key) its string, called once each.
template <class Key, class Text>
ArrowColumn texts(const char* name, size_t keys, const Key& key, const Text& text) {
  const auto fill = [key](std::span<const uint32_t> rows, const Dictionary* dictionary,
                          Buffers& out) {
    out.values.assign(rows.size() * sizeof(int32_t), 0);
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t k = key(rows[i]);
      if (k == kNone) {
        out.set_null(i, rows.size());
      } else {
        put<int32_t>(out, i, dictionary->codes[k]);
      }
    }
  };
  const auto make = [=](const Rows& rows) {
    Dictionary dictionary;
    dictionary.codes.assign(keys, -1);
    // Several keys may have one text; a dictionary's values are distinct.
    std::unordered_map<std::string, int32_t> by_text;
    for (const uint32_t row : rows) {
      const uint32_t k = key(row);
      if (k == kNone || dictionary.codes[k] >= 0) continue;
      const auto [found, is_new] =
          by_text.try_emplace(utf8(text(k)), static_cast<int32_t>(by_text.size()));
      dictionary.codes[k] = found->second;
      if (!is_new) continue;
      dictionary.text += found->first;
      dictionary.offsets.push_back(static_cast<int64_t>(dictionary.text.size()));
    }
    return dictionary;
  };
  return {name, "i", fill, make};
}

// Tables over rows of any kind. `data` keeps alive what the columns and `rows` refer to.
void export_arrow_schema(const std::vector<ArrowColumn>& columns, ArrowSchema* out);
void export_arrow_stream(std::shared_ptr<const void> data, const Rows& rows,
                         std::vector<ArrowColumn> columns, ArrowArrayStream* out);

// They refer to `data`.
std::vector<ArrowColumn> columns_of(TableKind kind, const TableData& data);

}  // namespace epilogue::trace
