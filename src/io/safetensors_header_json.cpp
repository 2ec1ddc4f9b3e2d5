// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <set>
#include <utility>

#include "io/json_handler.h"
#include "io/message.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_json.h"

namespace epilogue::io {
namespace {

// {"__metadata__": {text: text}, NAME: {"dtype": text, "shape": [n], "data_offsets": [n, n]}}
// Unknown fields of a tensor are skipped, as the reference reader does.
class HeaderHandler final : public JsonHandler {
 public:
  explicit HeaderHandler(std::string_view file)
      : JsonHandler(file, FailureCode::invalid_header_deserialization) {}
  SafetensorsHeader take() { return std::move(header_); }

 protected:
  bool on(const JsonEvent& event) override {
    switch (at_) {
      case At::start: return on_start(event);
      case At::top: return on_top(event);
      case At::tensor_value: return on_tensor_value(event);
      case At::tensor: return on_tensor(event);
      case At::dtype: return on_dtype(event);
      case At::shape_value: return on_list_start(event, "shape", At::shape);
      case At::shape: return on_shape(event);
      case At::offsets_value: return on_list_start(event, "data_offsets", At::offsets);
      case At::offsets: return on_offset(event);
      case At::unknown: at_ = At::tensor; return skip_value(event);
      case At::metadata_value: return on_metadata_value(event);
      case At::metadata: return on_metadata(event);
      case At::metadata_text: return on_metadata_text(event);
    }
    return false;
  }

 private:
  // Where in the header the next event belongs; "_value" is before a value's opening bracket.
  enum class At {
    start,
    top,
    tensor_value,
    tensor,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    unknown,
    metadata_value,
    metadata,
    metadata_text
  };

  SafetensorsEntry& entry() { return header_.entries.back(); }
  std::string here() { return "tensor " + in_quotes(entry().name); }
  std::string here(std::string_view field) { return fmt::format("{} of {}", field, here()); }
  bool go(At at) {
    at_ = at;
    return true;
  }

  bool on_start(const JsonEvent& event) {
    if (event.kind != JsonEvent::open_object) return unexpected("header", "an object", event);
    return go(At::top);
  }

  bool on_top(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_object) return true;
    if (!keys_.insert(*event.text).second)
      return fail(FailureCode::duplicate_key,
                  "header: expected unique keys, got " + in_quotes(*event.text) + " twice");
    if (*event.text == kMetadataKey) return go(At::metadata_value);
    header_.entries.emplace_back().name = std::move(*event.text);
    fields_.clear();
    offsets_.clear();
    return go(At::tensor_value);
  }

  bool on_tensor_value(const JsonEvent& event) {
    if (event.kind != JsonEvent::open_object) return unexpected(here(), "an object", event);
    return go(At::tensor);
  }

  bool on_tensor(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_object) return on_tensor_end();
    const std::string& field = *event.text;
    if (!fields_.insert(field).second)
      return fail(FailureCode::duplicate_key,
                  here() + ": expected unique keys, got " + in_quotes(field) + " twice");
    if (field == "dtype") return go(At::dtype);
    if (field == "shape") return go(At::shape_value);
    if (field == "data_offsets") return go(At::offsets_value);
    return go(At::unknown);
  }

  bool on_tensor_end() {
    for (const std::string_view field : {"dtype", "shape", "data_offsets"})
      if (!fields_.contains(field))
        return fail_syntax(fmt::format("{}: expected the field '{}', got none", here(), field));
    return go(At::top);
  }

  bool on_dtype(const JsonEvent& event) {
    if (event.kind != JsonEvent::string) return unexpected(here("dtype"), "a string", event);
    const auto dtype = parse_safetensors_dtype(*event.text);
    if (!dtype) return unexpected(here("dtype"), "a dtype such as 'F32' or 'BF16'", event);
    entry().dtype = *dtype;
    return go(At::tensor);
  }

  bool on_list_start(const JsonEvent& event, std::string_view field, At inside) {
    if (event.kind != JsonEvent::open_array) return unexpected(here(field), "an array", event);
    return go(inside);
  }

  bool on_shape(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_array) return go(At::tensor);
    if (event.kind != JsonEvent::number)
      return unexpected(here("shape"), "non-negative integers", event);
    if (event.number_value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return fail(FailureCode::validation_overflow,
                  fmt::format("{}: expected dimensions below 2^63, got {}", here("shape"),
                              event.number_value));
    entry().shape.push_back(static_cast<int64_t>(event.number_value));
    return true;
  }

  bool on_offset(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_array && offsets_.size() == 2) {
      entry().begin = offsets_[0];
      entry().end = offsets_[1];
      return go(At::tensor);
    }
    if (event.kind != JsonEvent::number || offsets_.size() == 2)
      return unexpected(here("data_offsets"), "two non-negative integers", event);
    offsets_.push_back(event.number_value);
    return true;
  }

  bool on_metadata_value(const JsonEvent& event) {
    if (event.kind != JsonEvent::open_object) return unexpected(kMetadataKey, "an object", event);
    return go(At::metadata);
  }

  bool on_metadata(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_object) return go(At::top);
    metadata_key_ = std::move(*event.text);
    if (header_.metadata.contains(metadata_key_))
      return fail(FailureCode::duplicate_key, fmt::format("{}: expected unique keys, got {} twice",
                                                          kMetadataKey, in_quotes(metadata_key_)));
    return go(At::metadata_text);
  }

  bool on_metadata_text(const JsonEvent& event) {
    if (event.kind != JsonEvent::string)
      return unexpected(fmt::format("{} {}", kMetadataKey, in_quotes(metadata_key_)), "a string",
                        event);
    header_.metadata.emplace(std::move(metadata_key_), std::move(*event.text));
    return go(At::metadata);
  }

  At at_ = At::start;
  SafetensorsHeader header_;
  // Ordered sets: a hostile file can make a hash table quadratic.
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> fields_;
  std::vector<uint64_t> offsets_;
  std::string metadata_key_;
};

}  // namespace

Result<SafetensorsHeader> parse_header_json(std::string_view json, std::string_view file) {
  HeaderHandler handler(file);
  if (auto status = handler.parse(json); !status) return status.failure();
  return handler.take();
}

}  // namespace epilogue::io
