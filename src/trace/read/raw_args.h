// SPDX-License-Identifier: Apache-2.0
// The args object of an event as texts by key, before anyone knows what they mean.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/read/json/json_cursor.h"

namespace epilogue::trace {

// The keys of traces since 2021; older spellings share an enumerator with the newer ones.
enum class ArgKey : uint8_t {
  external_id,
  correlation,
  record_function_id,
  ev_idx,
  sequence_number,
  fwd_thread_id,
  input_dims,
  input_type,
  input_strides,
  concrete_inputs,
  call_stack,
  module_hierarchy,
  overload_name,
  async,
  queued,
  device,
  context,
  stream,
  registers_per_thread,
  shared_memory,
  blocks_per_sm,
  warps_per_sm,
  grid,
  block,
  occupancy,
  graph_id,
  graph_node_id,
  bytes,
  flops,
  threads,
  fused_ops,
  unfused_bytes,
  cbid,
  wait_on_stream,
  wait_on_record,
  kernel,
  python_id,
  python_parent_id,
  python_module_id,
  addr,
  memory_bytes,
  total_allocated,
  total_reserved,
  memory_category,
  device_type,
  device_id,
  name,
  labels,
  sort_index,
  ignored,  // known to say nothing that the trace keeps
  other,
};
inline constexpr size_t kArgKeys = static_cast<size_t>(ArgKey::other) + 1;

class RawArgs {
 public:
  // Reads the object at the cursor; false when it is broken or not complete. With `keep_other`,
  // members without an enumerator are collected in other().
  // `kind`, any number, is the same for events whose args have the same keys in the same order:
  // what followed a key there is looked for first.
  bool parse(JsonCursor& cursor, bool keep_other, size_t kind = 0);
  void clear() { present_ = 0; }

  bool has(ArgKey key) const { return (present_ >> static_cast<unsigned>(key) & 1U) != 0; }
  // The value's JSON text; "" when there is none.
  std::string_view operator[](ArgKey key) const {
    return has(key) ? values_[static_cast<size_t>(key)] : std::string_view();
  }
  // The members of a JSON object, without its braces.
  const std::string& other() const { return other_; }
  bool has_duplicate() const { return has_duplicate_; }
  bool has_extra_comma() const { return has_extra_comma_; }

 private:
  uint64_t present_ = 0;
  std::array<std::string_view, kArgKeys> values_;
  std::string other_;
  // By kind and place in the table of keys: where the key that followed last is.
  static constexpr size_t kKinds = 16;
  static constexpr size_t kPlaces = 256;
  std::array<std::array<uint8_t, kPlaces>, kKinds> following_{};
  bool has_duplicate_ = false;
  bool has_extra_comma_ = false;
};

}  // namespace epilogue::trace
