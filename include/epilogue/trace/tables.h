// SPDX-License-Identifier: Apache-2.0
// A trace as tables for databases and data frames: Arrow streams through the C data interface
// (https://arrow.apache.org/docs/format/CDataInterface.html), without a library of Arrow's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/event.h"

// The three structs of the specification, as it gives them: whoever includes another header that
// has them gets them once.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
extern "C" {
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}
#endif

#pragma GCC visibility push(default)

namespace epilogue::trace {

struct TableData;  // of the library

// The tables of one trace; docs/query.md lists their columns. Times are nanoseconds since the
// trace's base time. Copies share the trace. Safe to call from several threads.
//
// Events are stored row by row, so a stream converts them, kTableBatchRows at a time, when it is
// asked for the next batch. Text is encoded by dictionaries, of the strings that the column has.
class TraceTables {
 public:
  explicit TraceTables(Trace trace);

  // "ops", "kernels", "launches", "steps", "memory", "ranges", "frames", "links".
  static std::span<const std::string_view> names();

  // All of these throw Error, with the names that there are, for another name.
  int64_t row_count(std::string_view table) const;
  // The caller releases what is written to `out`. It holds nothing of the trace.
  void export_schema(std::string_view table, ArrowSchema* out) const;
  // The stream keeps the trace alive, as long as it is not released; batches do not. A stream is
  // for one thread at a time.
  void export_stream(std::string_view table, ArrowArrayStream* out) const;

  const Trace& trace() const;

 private:
  std::shared_ptr<const TableData> data_;
};

inline constexpr int64_t kTableBatchRows = 65536;

}  // namespace epilogue::trace

#pragma GCC visibility pop
