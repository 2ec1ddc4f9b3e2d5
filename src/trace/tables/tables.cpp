// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/base/error.h"
#include "trace/tables/columns.h"
#include "trace/tables/table_data.h"

namespace epilogue::trace {
namespace {

// Each of Arrow's structs owns what it points to by its private_data; release() frees that and
// marks the struct as released, as the specification asks.

struct SchemaHolder {
  std::string format;
  std::string name;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
  ArrowSchema dictionary{};
};

void release_schema(ArrowSchema* schema) {
  const std::unique_ptr<SchemaHolder> holder(static_cast<SchemaHolder*>(schema->private_data));
  // A consumer may have moved a child out; then it is marked as released.
  for (ArrowSchema& child : holder->children)
    if (child.release != nullptr) child.release(&child);
  if (holder->dictionary.release != nullptr) holder->dictionary.release(&holder->dictionary);
  schema->release = nullptr;
}

void make_schema(ArrowSchema* out, std::unique_ptr<SchemaHolder> holder, int64_t flags) {
  for (ArrowSchema& child : holder->children) holder->pointers.push_back(&child);
  *out = {};
  out->format = holder->format.c_str();
  out->name = holder->name.c_str();
  out->flags = flags;
  out->n_children = static_cast<int64_t>(holder->children.size());
  out->children = holder->pointers.empty() ? nullptr : holder->pointers.data();
  out->dictionary = holder->dictionary.release != nullptr ? &holder->dictionary : nullptr;
  out->release = release_schema;
  out->private_data = holder.release();
}

void schema_of(const std::vector<ArrowColumn>& columns, ArrowSchema* out) {
  auto root = std::make_unique<SchemaHolder>();
  root->format = "+s";
  root->children.resize(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    auto child = std::make_unique<SchemaHolder>();
    child->format = columns[i].format;
    child->name = columns[i].name;
    if (columns[i].dictionary) {
      auto text = std::make_unique<SchemaHolder>();
      text->format = "U";
      make_schema(&child->dictionary, std::move(text), 0);
    }
    make_schema(&root->children[i], std::move(child), ARROW_FLAG_NULLABLE);
  }
  make_schema(out, std::move(root), 0);
}

struct ArrayHolder {
  Buffers buffers;
  std::shared_ptr<const Dictionary> text;  // of a dictionary's array
  std::array<const void*, 3> pointers{};
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> child_pointers;
  ArrowArray dictionary{};
};

void release_array(ArrowArray* array) {
  const std::unique_ptr<ArrayHolder> holder(static_cast<ArrayHolder*>(array->private_data));
  for (ArrowArray& child : holder->children)
    if (child.release != nullptr) child.release(&child);
  if (holder->dictionary.release != nullptr) holder->dictionary.release(&holder->dictionary);
  array->release = nullptr;
}

void make_array(ArrowArray* out, std::unique_ptr<ArrayHolder> holder, int64_t length,
                int64_t buffers) {
  for (ArrowArray& child : holder->children) holder->child_pointers.push_back(&child);
  *out = {};
  out->length = length;
  out->null_count = holder->buffers.nulls;
  out->n_buffers = buffers;
  out->buffers = holder->pointers.data();
  out->n_children = static_cast<int64_t>(holder->children.size());
  out->children = holder->child_pointers.empty() ? nullptr : holder->child_pointers.data();
  out->dictionary = holder->dictionary.release != nullptr ? &holder->dictionary : nullptr;
  out->release = release_array;
  out->private_data = holder.release();
}

void dictionary_array(ArrowArray* out, const std::shared_ptr<const Dictionary>& dictionary) {
  auto holder = std::make_unique<ArrayHolder>();
  holder->text = dictionary;
  holder->pointers = {nullptr, dictionary->offsets.data(), dictionary->text.data()};
  make_array(out, std::move(holder), static_cast<int64_t>(dictionary->offsets.size()) - 1, 3);
}

struct StreamHolder {
  std::shared_ptr<const void> data;
  const Rows* rows = nullptr;
  std::vector<ArrowColumn> columns;
  std::vector<std::shared_ptr<const Dictionary>> dictionaries;  // made for the first batch
  size_t next = 0;
  std::string error;

  void make_dictionaries() {
    for (const ArrowColumn& column : columns)
      dictionaries.push_back(column.dictionary
                                 ? std::make_shared<const Dictionary>(column.dictionary(*rows))
                                 : nullptr);
  }

  void next_batch(ArrowArray* out) {
    if (dictionaries.empty()) make_dictionaries();
    const size_t count =
        std::min<size_t>(rows->size() - next, static_cast<size_t>(kTableBatchRows));
    const auto batch = std::span(*rows).subspan(next, count);
    auto root = std::make_unique<ArrayHolder>();
    root->children.resize(columns.size());
    const auto length = static_cast<int64_t>(count);
    for (size_t i = 0; i < columns.size(); ++i) {
      auto child = std::make_unique<ArrayHolder>();
      columns[i].fill(batch, dictionaries[i].get(), child->buffers);
      if (dictionaries[i]) dictionary_array(&child->dictionary, dictionaries[i]);
      child->pointers = {child->buffers.valid.empty() ? nullptr : child->buffers.valid.data(),
                         child->buffers.values.data(), nullptr};
      make_array(&root->children[i], std::move(child), length, 2);
    }
    make_array(out, std::move(root), length, 1);
    next += count;
  }
};

StreamHolder& held(ArrowArrayStream* stream) {
  return *static_cast<StreamHolder*>(stream->private_data);
}

// Nothing may be thrown into the consumer's C: a failure is a number and a line.
template <class Body>
int as_errno(ArrowArrayStream* stream, const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::bad_alloc&) {
    held(stream).error = "out of memory";
    return ENOMEM;
  } catch (const std::exception& e) {
    held(stream).error = e.what();
    return EIO;
  }
}

int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return as_errno(stream, [&] { schema_of(held(stream).columns, out); });
}

int stream_next(ArrowArrayStream* stream, ArrowArray* out) {
  return as_errno(stream, [&] {
    StreamHolder& holder = held(stream);
    *out = {};  // released: the end
    if (holder.next < holder.rows->size()) holder.next_batch(out);
  });
}

const char* stream_error(ArrowArrayStream* stream) {
  const StreamHolder& holder = held(stream);
  return holder.error.empty() ? nullptr : holder.error.c_str();
}

void release_stream(ArrowArrayStream* stream) {
  delete static_cast<StreamHolder*>(stream->private_data);
  stream->release = nullptr;
  stream->private_data = nullptr;
}

TableKind kind_of(std::string_view table) {
  const auto* found = std::find(kTableNames.begin(), kTableNames.end(), table);
  if (found != kTableNames.end()) return static_cast<TableKind>(found - kTableNames.begin());
  throw Error(fmt::format("expected a table of {}, got '{}'", fmt::join(kTableNames, ", "), table));
}

}  // namespace

void export_arrow_schema(const std::vector<ArrowColumn>& columns, ArrowSchema* out) {
  schema_of(columns, out);
}

void export_arrow_stream(std::shared_ptr<const void> data, const Rows& rows,
                         std::vector<ArrowColumn> columns, ArrowArrayStream* out) {
  auto holder = std::make_unique<StreamHolder>();
  holder->data = std::move(data);
  holder->rows = &rows;
  holder->columns = std::move(columns);
  *out = {stream_schema, stream_next, stream_error, release_stream, holder.release()};
}

TraceTables::TraceTables(Trace trace)
    : data_(std::make_shared<const TableData>(std::move(trace))) {}

std::span<const std::string_view> TraceTables::names() { return kTableNames; }

int64_t TraceTables::row_count(std::string_view table) const {
  return static_cast<int64_t>(data_->rows_of(kind_of(table)).size());
}

void TraceTables::export_schema(std::string_view table, ArrowSchema* out) const {
  export_arrow_schema(columns_of(kind_of(table), *data_), out);
}

void TraceTables::export_stream(std::string_view table, ArrowArrayStream* out) const {
  const TableKind kind = kind_of(table);
  export_arrow_stream(data_, data_->rows_of(kind), columns_of(kind, *data_), out);
}

const Trace& TraceTables::trace() const { return data_->trace; }

}  // namespace epilogue::trace
