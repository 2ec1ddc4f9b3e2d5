// SPDX-License-Identifier: Apache-2.0

#include "trace/read/args_builder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "epilogue/trace/event.h"
#include "trace/read/json/json_string.h"
#include "trace/read/json/number_text.h"

namespace epilogue::trace {

namespace {

// Raw JSON arrays, one element per argument; "" where the trace has none.
struct InputTexts {
  std::string_view dims;      // [[128, 64], [], [[2], [3]]]: a tensor, a scalar, a tensor list
  std::string_view strides;   // as dims
  std::string_view types;     // ["float", "Scalar", "TensorList"]
  std::string_view concrete;  // ["", "1", ""]
};

// One argument's sizes or strides.
struct Sizes {
  std::vector<int64_t> ints;
  std::vector<std::vector<int64_t>> lists;
  bool is_list = false;
};

class ListReader {
 public:
  explicit ListReader(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool next_is(char c) {
    skip_space();
    return !text_.empty() && text_.front() == c;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }
  bool take_int(int64_t& value) {
    skip_space();
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  bool take_string(std::string& value) {
    if (!take('"')) return false;
    size_t end = 0;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return false;
    append_decoded(value, text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return true;
  }
  // [each, each, ...]
  template <class Each>
  bool take_list(Each each) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!each()) return false;
    } while (take(','));
    return take(']');
  }

 private:
  void skip_space() {
    const size_t used = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(std::min(used, text_.size()));
  }
  std::string_view text_;
};

// Tensor lists are one level deeper; nothing is deeper than that.
bool take_sizes(ListReader& reader, Sizes& sizes) {
  const auto take_ints = [&](std::vector<int64_t>& ints) {
    return reader.take_list([&] { return reader.take_int(ints.emplace_back()); });
  };
  return reader.take_list([&] {
    if (!reader.next_is('[')) return !sizes.is_list && reader.take_int(sizes.ints.emplace_back());
    sizes.is_list = true;
    return sizes.ints.empty() && take_ints(sizes.lists.emplace_back());
  });
}

bool parse_sizes(std::string_view text, std::vector<Sizes>& out) {
  if (text.empty()) return true;
  ListReader reader(text);
  return reader.take_list([&] { return take_sizes(reader, out.emplace_back()); }) &&
         reader.at_end();
}

bool parse_strings(std::string_view text, std::vector<std::string>& out) {
  if (text.empty()) return true;
  ListReader reader(text);
  return reader.take_list([&] { return reader.take_string(out.emplace_back()); }) &&
         reader.at_end();
}

void set_sizes(OpInput& input, Sizes& sizes, std::vector<int64_t> OpInput::*member) {
  if (!sizes.is_list) {
    input.*member = std::move(sizes.ints);
    return;
  }
  input.is_list = true;
  if (input.list.size() < sizes.lists.size()) input.list.resize(sizes.lists.size());
  for (size_t i = 0; i < sizes.lists.size(); ++i) input.list[i].*member = std::move(sizes.lists[i]);
}

// Nothing when a text is not of that form.
std::optional<std::vector<OpInput>> parse_inputs(const InputTexts& texts) {
  std::vector<Sizes> dims;
  std::vector<Sizes> strides;
  std::vector<std::string> types;
  std::vector<std::string> concrete;
  if (!parse_sizes(texts.dims, dims) || !parse_sizes(texts.strides, strides) ||
      !parse_strings(texts.types, types) || !parse_strings(texts.concrete, concrete))
    return std::nullopt;
  std::vector<OpInput> inputs(
      std::max({dims.size(), strides.size(), types.size(), concrete.size()}));
  for (size_t i = 0; i < inputs.size(); ++i) {
    OpInput& input = inputs[i];
    if (i < types.size()) input.type = std::move(types[i]);
    if (i < concrete.size()) input.concrete = std::move(concrete[i]);
    input.is_list = input.type == "TensorList";
    if (i < dims.size()) set_sizes(input, dims[i], &OpInput::dims);
    if (i < strides.size()) set_sizes(input, strides[i], &OpInput::strides);
  }
  return inputs;
}

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

StringId ArgsBuilder::other(const std::string& members) {
  if (members.empty()) return 0;
  const uint32_t number = other_texts_.intern(members);
  if (number == other_ids_.size()) {
    const std::string object = "{" + members + "}";
    other_ids_.push_back(is_json(object) ? strings_.intern(object) : 0);
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
  args.other_args = other(raw.other());
  args.fused_ops = text(raw[ArgKey::fused_ops]);
  // The scope is not in the file. Only backward functions and their wrapper name a forward thread.
  if (is_annotation) {
    args.scope = Scope::user_scope;
  } else if (args.fwd_tid != 0 && args.sequence_number >= 0 && !name.starts_with(kEngineWrapper)) {
    args.scope = Scope::backward_function;
  }
  return args;
}

OpArgs ArgsBuilder::uncategorised(const RawArgs& raw) {
  constexpr std::array<std::pair<std::string_view, ArgKey>, 3> kKnown = {
      {{"name", ArgKey::name}, {"flops", ArgKey::flops}, {"bytes", ArgKey::bytes}}};
  std::string members = raw.other();
  for (const auto& [text, key] : kKnown) {
    if (!raw.has(key)) continue;
    if (!members.empty()) members += ", ";
    members += '"';
    members += text;
    members += "\": ";
    members += raw[key];
  }
  OpArgs args;
  args.other_args = other(members);
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
  if (raw.has(ArgKey::name)) {  // an annotation of a graph's node (torch.cuda.graph)
    std::string members = raw.other();
    if (!members.empty()) members += ", ";
    members += "\"name\": ";
    members += raw[ArgKey::name];
    args.other_args = other(members);
  } else {
    args.other_args = other(raw.other());
  }
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
