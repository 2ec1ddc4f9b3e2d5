// SPDX-License-Identifier: Apache-2.0
// From the texts of an event's args to the schema's side tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/partial.h"
#include "trace/read/raw_args.h"
#include "trace/read/string_table.h"

namespace epilogue::trace {

// One worker's texts and argument lists, numbered. Everything here keeps its numbers from window to
// window.
class ArgsBuilder {
 public:
  // The event whose args follow: where notes about them belong.
  void start_event(Partial& partial, int64_t offset) {
    partial_ = &partial;
    offset_ = offset;
  }

  // The number of a JSON value's text: of a string what it stands for, else as it is written.
  // A bad escape is noted if `is_noted`; the text is then taken as it is.
  StringId text(std::string_view value, bool is_noted = true);
  // The value under `key`; `missing` when it is not there, null, or no number (which is noted).
  int64_t integer(const RawArgs& raw, ArgKey key, int64_t missing);

  OpArgs op(const RawArgs& raw, std::string_view name, bool is_annotation);
  // For an event without a category: all of its args in other_args but for the correlation.
  OpArgs uncategorised(const RawArgs& raw);
  KernelArgs kernel(const RawArgs& raw, int32_t pid, int64_t tid);
  RuntimeArgs runtime_call(const RawArgs& raw);
  SyncArgs sync(const RawArgs& raw);
  PythonArgs python(const RawArgs& raw);
  MemoryEvent memory(const RawArgs& raw);

  // Moves what is new since the last call into the partial.
  void take_new(Partial& partial);

 private:
  int32_t small(const RawArgs& raw, ArgKey key, int32_t missing);
  double real(const RawArgs& raw, ArgKey key);
  bool triple(std::string_view value, std::array<int64_t, 3>& out);
  uint32_t inputs(const RawArgs& raw);
  StringId other(const std::string& members);  // of an object, without its braces
  void note(std::string_view value);

  Partial* partial_ = nullptr;
  int64_t offset_ = 0;
  StringTable strings_;
  StringTable input_texts_;
  std::vector<uint32_t> input_ids_ = {kNone};  // by number in input_texts_
  std::vector<std::vector<OpInput>> new_inputs_;
  uint32_t inputs_count_ = 0;
  StringTable other_texts_;
  std::vector<StringId> other_ids_ = {0};  // by number in other_texts_
  std::string scratch_;
};

}  // namespace epilogue::trace
