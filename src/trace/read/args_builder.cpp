// SPDX-License-Identifier: Apache-2.0
#include "trace/read/args_builder.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "trace/read/inputs_parser.h"
#include "trace/read/json/json_string.h"
#include "trace/read/json/number_text.h"

namespace epilogue::trace {
namespace {

// The autograd engine's wrapper of a backward function carries its forward thread, too.
constexpr std::string_view kEngineWrapper = "autograd::engine::evaluate_function";

bool is_absent(std::string_view value) { return value.empty() || value == "null"; }

}  // namespace

StringId ArgsBuilder::text(std::string_view value, bool is_noted) {
  if (value.empty()) return 0;
  const std::string_view inside = inside_quotes(value);
  if (inside.find('\\') == std::string_view::npos) return strings_.intern(inside);
  if (has_bad_escape(inside)) {
    if (is_noted) partial_->notes.add(Note::bad_escape, offset_);
    return strings_.intern(inside);
  }
  scratch_.clear();
  append_decoded(scratch_, inside);
  return strings_.intern(scratch_);
}

void ArgsBuilder::note(std::string_view value) {
  const bool is_bare_word = value.front() != '"' && value.front() != '[' && value.front() != '{' &&
                            !parse_real(value).has_value();
  partial_->notes.add(is_bare_word ? Note::bare_word : Note::bad_argument, offset_);
}

int64_t ArgsBuilder::integer(const RawArgs& raw, ArgKey key, int64_t missing) {
  const std::string_view value = raw[key];
  if (is_absent(value)) return missing;
  const ExactNumber number = parse_integer(value);
  if (number.ok()) return number.value;
  note(value);
  return missing;
}

int32_t ArgsBuilder::small(const RawArgs& raw, ArgKey key, int32_t missing) {
  const int64_t value = integer(raw, key, missing);
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max())
    return static_cast<int32_t>(value);
  note(raw[key]);
  return missing;
}

double ArgsBuilder::real(const RawArgs& raw, ArgKey key) {
  constexpr double kUnknown = -1;
  const std::string_view value = raw[key];
  if (is_absent(value)) return kUnknown;
  const std::optional<double> number = parse_real(value);
  if (!number) note(value);
  return number.value_or(kUnknown);
}

bool ArgsBuilder::triple(std::string_view value, std::array<int64_t, 3>& out) {
  if (is_absent(value)) return false;
  std::array<int64_t, 3> read{};
  size_t n = 0;
  std::string_view rest = value;
  while (n < read.size()) {
    const size_t from = rest.find_first_of("-0123456789");
    if (from == std::string_view::npos) break;
    rest.remove_prefix(from);
    const size_t digits = std::min(rest.find_first_not_of("-0123456789"), rest.size());
    const ExactNumber number = parse_integer(rest.substr(0, digits));
    if (!number.ok()) break;
    read[n++] = number.value;
    rest.remove_prefix(digits);
  }
  if (n < read.size()) {
    note(value);
    return false;
  }
  out = read;
  return true;
}

uint32_t ArgsBuilder::inputs(const RawArgs& raw) {
  if (!raw.has(ArgKey::input_dims)) return kNone;
  const InputTexts texts = {raw[ArgKey::input_dims], raw[ArgKey::input_strides],
                            raw[ArgKey::input_type], raw[ArgKey::concrete_inputs]};
  const std::array parts = {texts.dims, texts.strides, texts.types, texts.concrete};
  const uint32_t number = input_texts_.intern(parts);
  if (number == input_ids_.size()) {
    std::optional<std::vector<OpInput>> parsed = parse_inputs(texts);
    input_ids_.push_back(parsed ? inputs_count_++ : kNone);
    if (parsed) new_inputs_.push_back(std::move(*parsed));
  }
  if (input_ids_[number] == kNone) partial_->notes.add(Note::bad_argument, offset_);
  return input_ids_[number];
}

StringId ArgsBuilder::other(const RawArgs& raw) {
  if (raw.other().empty()) return 0;
  const uint32_t number = other_texts_.intern(raw.other());
  if (number == other_ids_.size()) {
    const std::string object = "{" + raw.other() + "}";
    other_ids_.push_back(nlohmann::json::accept(object) ? strings_.intern(object) : 0);
  }
  if (other_ids_[number] == 0) partial_->notes.add(Note::bad_argument, offset_);
  return other_ids_[number];
}

OpArgs ArgsBuilder::op(const RawArgs& raw, std::string_view name, bool is_annotation) {
  OpArgs args;
  args.inputs = inputs(raw);
  args.overload_name = text(raw[ArgKey::overload_name]);
  args.stack = text(raw[ArgKey::call_stack]);
  args.module_hierarchy = text(raw[ArgKey::module_hierarchy]);
  args.record_function_id = integer(raw, ArgKey::record_function_id, 0);
  args.ev_idx = integer(raw, ArgKey::ev_idx, -1);
  args.sequence_number = integer(raw, ArgKey::sequence_number, -1);
  args.fwd_tid = integer(raw, ArgKey::fwd_thread_id, 0);
  args.is_async = raw[ArgKey::async] == "true";
  args.other_args = other(raw);
  args.fused_ops = text(raw[ArgKey::fused_ops]);
  // The scope is not in the file. Only backward functions and their wrapper name a forward thread.
  if (is_annotation) {
    args.scope = Scope::user_scope;
  } else if (args.fwd_tid != 0 && args.sequence_number >= 0 && !name.starts_with(kEngineWrapper)) {
    args.scope = Scope::backward_function;
  }
  return args;
}

KernelArgs ArgsBuilder::kernel(const RawArgs& raw, int32_t pid, int64_t tid) {
  KernelArgs args;
  args.device = small(raw, ArgKey::device, pid);
  args.context = small(raw, ArgKey::context, 0);
  args.stream = integer(raw, ArgKey::stream, tid);
  args.queued = integer(raw, ArgKey::queued, 0);
  args.registers_per_thread = small(raw, ArgKey::registers_per_thread, -1);
  args.shared_memory_bytes = integer(raw, ArgKey::shared_memory, -1);
  args.blocks_per_sm = real(raw, ArgKey::blocks_per_sm);
  args.warps_per_sm = real(raw, ArgKey::warps_per_sm);
  args.est_occupancy_pct = small(raw, ArgKey::occupancy, -1);
  const bool has_grid = triple(raw[ArgKey::grid], args.grid);
  const bool has_block = triple(raw[ArgKey::block], args.block);
  args.has_grid = has_grid && has_block;
  args.graph_id = integer(raw, ArgKey::graph_id, -1);
  args.graph_node_id = integer(raw, ArgKey::graph_node_id, -1);
  args.bytes = integer(raw, ArgKey::bytes, -1);
  args.flops = integer(raw, ArgKey::flops, -1);
  args.threads = small(raw, ArgKey::threads, -1);
  args.other_args = other(raw);
  args.fused_ops = text(raw[ArgKey::fused_ops]);
  args.unfused_bytes = integer(raw, ArgKey::unfused_bytes, -1);
  return args;
}

RuntimeArgs ArgsBuilder::runtime_call(const RawArgs& raw) {
  RuntimeArgs args;
  args.cbid = small(raw, ArgKey::cbid, -1);
  args.stream = integer(raw, ArgKey::stream, -1);
  args.bytes = integer(raw, ArgKey::bytes, -1);
  args.kernel_name = text(raw[ArgKey::kernel]);
  return args;
}

SyncArgs ArgsBuilder::sync(const RawArgs& raw) {
  SyncArgs args;
  args.stream = integer(raw, ArgKey::stream, -1);
  args.wait_on_stream = integer(raw, ArgKey::wait_on_stream, -1);
  args.wait_on_record = integer(raw, ArgKey::wait_on_record, 0);
  return args;
}

PythonArgs ArgsBuilder::python(const RawArgs& raw) {
  PythonArgs args;
  args.id = integer(raw, ArgKey::python_id, 0);
  args.parent_id = integer(raw, ArgKey::python_parent_id, -1);
  args.module_id = integer(raw, ArgKey::python_module_id, -1);
  args.ev_idx = integer(raw, ArgKey::ev_idx, -1);
  return args;
}

MemoryEvent ArgsBuilder::memory(const RawArgs& raw) {
  MemoryEvent event;
  event.device_type = static_cast<DeviceType>(small(raw, ArgKey::device_type, 0));
  event.device_id = small(raw, ArgKey::device_id, -1);
  event.addr = static_cast<uint64_t>(integer(raw, ArgKey::addr, 0));
  event.bytes = integer(raw, ArgKey::memory_bytes, 0);
  event.total_allocated = integer(raw, ArgKey::total_allocated, 0);
  event.total_reserved = integer(raw, ArgKey::total_reserved, 0);
  event.ev_idx = integer(raw, ArgKey::ev_idx, -1);
  const int64_t category = integer(raw, ArgKey::memory_category, -1);
  if (category >= 0 && category < static_cast<int64_t>(kMemoryCategories))
    event.category = static_cast<MemoryCategory>(category);
  return event;
}

void ArgsBuilder::take_new(Partial& partial) {
  partial.new_strings = strings_.take_new();
  partial.new_inputs = std::exchange(new_inputs_, {});
  input_texts_.take_new();
  other_texts_.take_new();
}

}  // namespace epilogue::trace
