// SPDX-License-Identifier: Apache-2.0
// Reads Python pickles (protocols 2 to 5) that hold data alone: None, bools, numbers, texts,
// tuples, lists, dicts, sets. Nothing is imported and nothing is called: an opcode that would do so
// is a failure that names it and its place.
//
// A pickle is a program for a machine with a stack and a memo (pickletools of CPython documents
// every opcode). This machine has no objects. Containers are what a PickleBuilder makes of them,
// and a builder may turn a dict into a row of a table as soon as its items are there, so that no
// tree is built. The machine is a loop: nesting costs no stack of the process.
//
// Input from anywhere is safe: it ends in a value or a failure, in time linear in its bytes, and in
// memory of at most kBaseBytes and kBytesPerByte times the bytes read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "memory_snapshot/chunked.h"
#include "trace/read/byte_source.h"
#include "trace/read/string_table.h"

namespace epilogue::trace {

// A value in 8 bytes: what it is, and a number or where it is.
struct PickleValue {
  enum Kind : uint8_t {
    none,
    boolean,     // 0 or 1
    integer,     // signed, 60 bits
    wide,        // in PickleTexts::wide: an integer of 64 bits, signed or not
    huge,        // an integer of more bits, which is not kept
    real,        // in PickleTexts::reals
    text,        // in PickleTexts::texts; bytes too
    empty_dict,  // number 1: it was read from the memo, and must stay empty
    empty_list,  // as empty_dict; sets too
    // The builder's from here on.
    tuple,
    record_0,
    record_1,
    record_2,
    record_3,
    record_4,
    record_5,
  };

  PickleValue() = default;
  PickleValue(Kind kind, int64_t number)
      : bits(static_cast<uint64_t>(number) << 4 | static_cast<uint64_t>(kind)) {}
  Kind kind() const { return static_cast<Kind>(bits & 15); }
  int64_t number() const { return static_cast<int64_t>(bits) >> 4; }
  uint32_t id() const { return static_cast<uint32_t>(bits >> 4); }
  bool operator==(const PickleValue&) const = default;

  uint64_t bits = 0;
};

// Values refer to these.
struct PickleTexts {
  StringTable table;
  Chunked<std::string_view> texts;  // by id
  uint64_t text_bytes = 0;
  Chunked<int64_t> wide;  // two's complement
  Chunked<double> reals;

  uint32_t intern(std::string_view text);
  std::string_view operator[](uint32_t id) const { return texts[id]; }
  // The number of a boolean, integer or wide value, else `otherwise`.
  int64_t integer(PickleValue value, int64_t otherwise = 0) const;
};

// Makes containers. Throws PickleFault, without the place, at what it cannot use.
struct PickleFault {
  std::string what;
};
class PickleBuilder {
 public:
  virtual ~PickleBuilder() = default;
  // `dict` with more items, keys and values in turn. An empty_dict becomes a record.
  virtual PickleValue set_items(PickleValue dict, std::span<const PickleValue> items) = 0;
  // `list` with more elements; an empty_list becomes a record.
  virtual PickleValue append(PickleValue list, std::span<const PickleValue> elements) = 0;
  virtual PickleValue make_tuple(std::span<const PickleValue> elements) = 0;
  // Counts for the bound on memory.
  virtual uint64_t held_bytes() const = 0;
};

inline constexpr uint64_t kPickleBaseBytes = uint64_t{64} << 20;
inline constexpr uint64_t kPickleBytesPerByte = 2;
inline constexpr size_t kMaxPickleText = size_t{64} << 20;
inline constexpr size_t kMaxPickleMarks = 1000;  // open containers within each other

// The value before STOP; what follows STOP is not looked at. `progress` is called now and then with
// the file's bytes read and in all. Fails with the source's failure, or with not_a_trace; messages
// begin with `name`.
Result<PickleValue> read_pickle(ByteSource& source, std::string_view name, PickleTexts& texts,
                                PickleBuilder& builder,
                                const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace epilogue::trace
