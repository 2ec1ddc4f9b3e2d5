// SPDX-License-Identifier: Apache-2.0
#include "trace/tables/columns.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <cstring>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

template <class Id>
ArrowColumn strings(const char* name, const TableData& d, const Id& id) {
  return texts(name, d.trace.strings.size(), id, [&d](uint32_t k) { return d.trace.strings[k]; });
}

std::optional<int64_t> known(uint32_t row) {
  return row == kNone ? std::nullopt : std::optional<int64_t>(row);
}
std::optional<int64_t> from_zero(int64_t value) {
  return value < 0 ? std::nullopt : std::optional(value);
}
uint32_t at(const std::vector<uint32_t>& list, uint32_t row) {
  return list.empty() ? kNone : list[row];
}

template <class Of>
ArrowColumn event_int(const char* name, const TableData& d, const Of& of) {
  return numbers(name, [&d, of](uint32_t i) -> int64_t { return of(d.event(i)); });
}
ArrowColumn id_column() {
  return numbers("id", [](uint32_t i) -> int64_t { return i; });
}
ArrowColumn link_column(const char* name, const std::vector<uint32_t>& list) {
  return numbers(name, [&list](uint32_t i) { return known(at(list, i)); });
}
ArrowColumn step_column(const TableData& d) {
  return numbers("step", [&d](uint32_t i) -> std::optional<int64_t> {
    const uint32_t at = d.links.step[i];
    return at == kNone ? std::nullopt : d.step_numbers[at];
  });
}
ArrowColumn name_column(const TableData& d) {
  return strings("name", d, [&d](uint32_t i) { return d.event(i).name; });
}

// id, name, ts_ns, dur_ns: what all tables of events begin with.
std::vector<ArrowColumn> event_columns(const TableData& d) {
  return {id_column(), name_column(d),
          event_int("ts_ns", d, [](const Event& e) { return e.ts_ns; }),
          event_int("dur_ns", d, [](const Event& e) { return e.dur_ns; })};
}
void add_thread(std::vector<ArrowColumn>& list, const TableData& d) {
  list.push_back(event_int("pid", d, [](const Event& e) { return e.pid; }));
  list.push_back(event_int("tid", d, [](const Event& e) { return e.tid; }));
}

// "Linear_3" of frames named "nn.Module: Linear_3".
ArrowColumn module_column(const TableData& d, const std::vector<uint32_t>& frames,
                          const std::vector<uint32_t>* op_of = nullptr) {
  return texts(
      "module", d.trace.strings.size(),
      [&d, &frames, op_of](uint32_t i) {
        if (op_of != nullptr) i = (*op_of)[i];
        const uint32_t frame = i == kNone ? kNone : at(frames, i);
        return frame == kNone ? kNone : d.event(frame).name;
      },
      [&d](uint32_t k) { return d.trace.strings[k].substr(kModuleFrame.size()); });
}

ArrowColumn op_name_column(const TableData& d, const std::vector<uint32_t>& op_of) {
  return strings("op", d, [&d, &op_of](uint32_t i) {
    return op_of[i] == kNone ? kNone : d.event(op_of[i]).name;
  });
}

void append_shape(std::string& out, const OpInput& input) {
  out += '[';
  for (size_t i = 0; i < input.dims.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", input.dims[i]);
  for (size_t i = 0; i < input.list.size(); ++i) {
    if (i != 0) out += ", ";
    append_shape(out, input.list[i]);
  }
  out += ']';
}

std::string shapes_text(std::span<const OpInput> inputs) {
  std::string out = "[";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i != 0) out += ", ";
    append_shape(out, inputs[i]);
  }
  return out + "]";
}

std::string types_text(std::span<const OpInput> inputs) {
  std::string out = "[";
  for (size_t i = 0; i < inputs.size(); ++i) out += (i == 0 ? "" : ", ") + inputs[i].type;
  return out + "]";
}

std::string_view scope_name(uint32_t scope) {
  if (scope == static_cast<uint32_t>(Scope::backward_function)) return "backward";
  return scope == static_cast<uint32_t>(Scope::user_scope) ? "user" : "forward";
}

template <class Text>
ArrowColumn inputs_column(const char* name, const TableData& d, const Text& text) {
  return texts(
      name, d.trace.inputs.size(),
      [&d](uint32_t i) {
        const OpArgs* args = d.trace.op_args(d.event(i));
        return args == nullptr ? kNone : args->inputs;
      },
      [&d, text](uint32_t k) { return text(d.trace.inputs[k]); });
}

template <class Of>
ArrowColumn op_string(const char* name, const TableData& d, const Of& of) {
  return strings(name, d, [&d, of](uint32_t i) {
    const OpArgs* args = d.trace.op_args(d.event(i));
    return args == nullptr || of(*args) == 0 ? kNone : of(*args);
  });
}

std::vector<ArrowColumn> op_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  list.push_back(numbers("self_ns", [&d](uint32_t i) { return d.self_ns[i]; }));
  list.push_back(numbers("device_ns", [&d](uint32_t i) { return d.device_ns[i]; }));
  list.push_back(numbers("kernels", [&d](uint32_t i) -> int64_t { return d.kernels[i]; }));
  add_thread(list, d);
  list.push_back(link_column("parent_id", d.links.parent));
  list.push_back(step_column(d));
  list.push_back(inputs_column("input_shapes", d, shapes_text));
  list.push_back(inputs_column("input_types", d, types_text));
  list.push_back(texts(
      "scope", 256,
      [&d](uint32_t i) {
        const OpArgs* args = d.trace.op_args(d.event(i));
        return args == nullptr ? uint32_t{0} : static_cast<uint32_t>(args->scope);
      },
      scope_name));
  list.push_back(numbers("sequence_number", [&d](uint32_t i) -> std::optional<int64_t> {
    const OpArgs* args = d.trace.op_args(d.event(i));
    return args == nullptr ? std::nullopt : from_zero(args->sequence_number);
  }));
  list.push_back(op_string("stack", d, [](const OpArgs& args) { return args.stack; }));
  list.push_back(link_column("frame_id", d.frame));
  list.push_back(module_column(d, d.module));
  return list;
}

template <class Of>
ArrowColumn kernel_number(const char* name, const TableData& d, const Of& of) {
  using T = std::decay_t<std::invoke_result_t<Of, const KernelArgs&>>;
  using Given = std::conditional_t<std::is_same_v<T, double>, double, int64_t>;
  return numbers(name, [&d, of](uint32_t i) -> std::optional<Given> {
    const KernelArgs* args = d.trace.kernel_args(d.event(i));
    if (args == nullptr) return std::nullopt;
    const auto value = static_cast<Given>(of(*args));
    return value < 0 ? std::nullopt : std::optional<Given>(value);
  });
}

std::string_view work_name(uint32_t category) {
  if (category == static_cast<uint32_t>(Category::kernel)) return "kernel";
  return category == static_cast<uint32_t>(Category::gpu_memcpy) ? "memcpy" : "memset";
}

std::vector<ArrowColumn> kernel_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  list.push_back(texts(
      "kind", kCategories, [&d](uint32_t i) { return static_cast<uint32_t>(d.event(i).category); },
      work_name));
  list.push_back(event_int("device", d, [](const Event& e) { return e.pid; }));
  list.push_back(event_int("stream", d, [](const Event& e) { return e.tid; }));
  list.push_back(event_int("correlation", d, [](const Event& e) { return e.correlation; }));
  list.push_back(link_column("launch_id", d.links.launch));
  list.push_back(link_column("op_id", d.links.op));
  list.push_back(op_name_column(d, d.links.op));
  list.push_back(step_column(d));
  list.push_back(module_column(d, d.module, &d.links.op));
  constexpr std::array<const char*, 6> kSizes = {"grid_x",  "grid_y",  "grid_z",
                                                 "block_x", "block_y", "block_z"};
  for (size_t k = 0; k < kSizes.size(); ++k)
    list.push_back(kernel_number(kSizes[k], d, [k](const KernelArgs& args) {
      return !args.has_grid ? -1 : k < 3 ? args.grid[k] : args.block[k - 3];
    }));
  list.push_back(kernel_number("registers_per_thread", d,
                               [](const KernelArgs& a) { return a.registers_per_thread; }));
  list.push_back(kernel_number("shared_memory_bytes", d,
                               [](const KernelArgs& a) { return a.shared_memory_bytes; }));
  list.push_back(
      kernel_number("blocks_per_sm", d, [](const KernelArgs& a) { return a.blocks_per_sm; }));
  list.push_back(kernel_number("est_occupancy_pct", d,
                               [](const KernelArgs& a) { return a.est_occupancy_pct; }));
  list.push_back(kernel_number("bytes", d, [](const KernelArgs& a) { return a.bytes; }));
  list.push_back(kernel_number("graph_id", d, [](const KernelArgs& a) { return a.graph_id; }));
  return list;
}

std::vector<ArrowColumn> launch_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  add_thread(list, d);
  list.push_back(event_int("correlation", d, [](const Event& e) { return e.correlation; }));
  list.push_back(link_column("op_id", d.links.op));
  list.push_back(op_name_column(d, d.links.op));
  list.push_back(step_column(d));
  list.push_back(link_column("frame_id", d.frame));
  list.push_back(numbers("is_kernel_launch", [&d](uint32_t i) {
    const std::string_view name = d.trace.name(d.event(i));
    return is_kernel_launch_name(name) || is_graph_launch_name(name);
  }));
  return list;
}

std::vector<ArrowColumn> step_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  add_thread(list, d);
  list.push_back(
      numbers("step", [&d](uint32_t i) { return step_number(d.trace.name(d.event(i))); }));
  return list;
}

std::string_view device_name(uint32_t type) {
  return static_cast<DeviceType>(type) == DeviceType::cpu ? "cpu" : "device";
}

template <class Of>
ArrowColumn memory_int(const char* name, const TableData& d, const Of& of) {
  return numbers(name, [&d, of](uint32_t i) -> int64_t {
    return static_cast<int64_t>(of(d.trace.memory[i]));
  });
}

std::vector<ArrowColumn> memory_columns(const TableData& d) {
  std::vector<ArrowColumn> list = {
      memory_int("ts_ns", d, [](const MemoryEvent& m) { return m.ts_ns; }),
      memory_int("bytes", d, [](const MemoryEvent& m) { return m.bytes; }),
      memory_int("addr", d, [](const MemoryEvent& m) { return m.addr; }),
      memory_int("total_allocated_bytes", d,
                 [](const MemoryEvent& m) { return m.total_allocated; }),
      memory_int("total_reserved_bytes", d, [](const MemoryEvent& m) { return m.total_reserved; }),
  };
  list.push_back(texts(
      "device_type", 256,
      [&d](uint32_t i) { return static_cast<uint32_t>(d.trace.memory[i].device_type); },
      device_name));
  list.push_back(memory_int("device", d, [](const MemoryEvent& m) { return m.device_id; }));
  list.push_back(texts(
      "category", kMemoryCategories,
      [&d](uint32_t i) { return static_cast<uint32_t>(d.trace.memory[i].category); },
      [](uint32_t k) { return memory_category_name(static_cast<MemoryCategory>(k)); }));
  list.push_back(
      numbers("out_of_memory", [&d](uint32_t i) { return d.trace.memory[i].out_of_memory; }));
  list.push_back(memory_int("pid", d, [](const MemoryEvent& m) { return m.pid; }));
  list.push_back(memory_int("tid", d, [](const MemoryEvent& m) { return m.tid; }));
  list.push_back(link_column("op_id", d.memory_op));
  list.push_back(op_name_column(d, d.memory_op));
  list.push_back(numbers("step", [&d](uint32_t i) -> std::optional<int64_t> {
    const uint32_t op = d.memory_op[i];
    const uint32_t at = op == kNone ? kNone : d.links.step[op];
    return at == kNone ? std::nullopt : d.step_numbers[at];
  }));
  list.push_back(link_column("frame_id", d.memory_frame));
  list.push_back(module_column(d, d.memory_module));
  return list;
}

std::vector<ArrowColumn> range_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  add_thread(list, d);
  list.push_back(numbers("is_device", [&d](uint32_t i) {
    return d.event(i).category == Category::gpu_user_annotation;
  }));
  return list;
}

std::vector<ArrowColumn> frame_columns(const TableData& d) {
  std::vector<ArrowColumn> list = event_columns(d);
  add_thread(list, d);
  list.push_back(link_column("parent_id", d.frame_parent));
  list.push_back(module_column(d, d.module));
  return list;
}

std::vector<ArrowColumn> link_columns(const TableData& d) {
  std::vector<ArrowColumn> list;
  list.push_back(numbers("kernel_id", [](uint32_t i) -> int64_t { return i; }));
  list.push_back(link_column("launch_id", d.links.launch));
  list.push_back(link_column("op_id", d.links.op));
  list.push_back(step_column(d));
  return list;
}

}  // namespace

std::string utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::string(text);
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
    } else {
      out += "\xEF\xBF\xBD";
    }
  }
  return out;
}

std::vector<ArrowColumn> columns_of(TableKind kind, const TableData& d) {
  switch (kind) {
    case TableKind::ops: return op_columns(d);
    case TableKind::kernels: return kernel_columns(d);
    case TableKind::launches: return launch_columns(d);
    case TableKind::steps: return step_columns(d);
    case TableKind::memory: return memory_columns(d);
    case TableKind::ranges: return range_columns(d);
    case TableKind::frames: return frame_columns(d);
    case TableKind::links: return link_columns(d);
  }
  return {};
}

}  // namespace epilogue::trace
