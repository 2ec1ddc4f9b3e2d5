// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "io/json_handler.h"
#include "io/message.h"
#include "io/safetensors_json.h"

namespace epilogue::io {
namespace {

// {"metadata": anything, "weight_map": {tensor: file}, anything else}
class IndexHandler final : public JsonHandler {
 public:
  explicit IndexHandler(std::string_view file) : JsonHandler(file, FailureCode::invalid_index) {}
  bool has_map() const { return has_map_; }
  WeightMap take() { return std::move(map_); }

 protected:
  bool on(const JsonEvent& event) override {
    switch (at_) {
      case At::start:
        if (event.kind != JsonEvent::open_object) return unexpected("index", "an object", event);
        return go(At::top);
      case At::top: return on_top(event);
      case At::unknown: at_ = At::top; return skip_value(event);
      case At::map_value:
        if (event.kind != JsonEvent::open_object)
          return unexpected("weight_map", "an object", event);
        return go(At::map);
      case At::map: return on_tensor(event);
      case At::file: return on_file(event);
    }
    return false;
  }

 private:
  enum class At { start, top, unknown, map_value, map, file };

  bool go(At at) {
    at_ = at;
    return true;
  }

  bool on_top(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_object) return true;
    if (*event.text != "weight_map") return go(At::unknown);
    if (std::exchange(has_map_, true))
      return fail(FailureCode::duplicate_key,
                  "index: expected unique keys, got 'weight_map' twice");
    return go(At::map_value);
  }

  bool on_tensor(const JsonEvent& event) {
    if (event.kind == JsonEvent::close_object) return go(At::top);
    tensor_ = std::move(*event.text);
    if (map_.contains(tensor_))
      return fail(
          FailureCode::duplicate_key,
          fmt::format("weight_map: expected unique keys, got {} twice", in_quotes(tensor_)));
    return go(At::file);
  }

  bool on_file(const JsonEvent& event) {
    if (event.kind != JsonEvent::string)
      return unexpected("weight_map of " + in_quotes(tensor_), "a file name", event);
    map_.emplace(std::move(tensor_), std::move(*event.text));
    return go(At::map);
  }

  At at_ = At::start;
  bool has_map_ = false;
  WeightMap map_;
  std::string tensor_;
};

}  // namespace

Result<WeightMap> parse_index_json(std::string_view json, std::string_view file) {
  IndexHandler handler(file);
  if (auto status = handler.parse(json); !status) return status.failure();
  if (!handler.has_map())
    return io_failure(file, FailureCode::invalid_index, "expected the key 'weight_map', got none");
  return handler.take();
}

}  // namespace epilogue::io
