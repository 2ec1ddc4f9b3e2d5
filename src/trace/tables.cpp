// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/tables.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "epilogue/base/error.h"
#include "epilogue/trace/links.h"
#include "trace/nesting.h"
#include "trace/step_name.h"

namespace epilogue::trace {

namespace {

using Rows = std::vector<uint32_t>;  // positions in Trace::events, or in Trace::memory

enum class TableKind : uint8_t { ops, kernels, launches, steps, memory, ranges, frames, links };
constexpr std::array<std::string_view, 8> kTableNames = {"ops",    "kernels", "launches", "steps",
                                                         "memory", "ranges",  "frames",   "links"};

constexpr std::string_view kModuleFrame = "nn.Module: ";

// A moment of a thread, of the row that asks.
struct Asked {
  int64_t pid;
  int64_t tid;
  int64_t ts_ns;
  uint32_t row;
};

// For each row that asks the innermost of `spans` around it on its thread, or kNone: of those that
// hold the moment, the one that started last. `spans` may overlap in part.
std::vector<uint32_t> innermost_around(const Trace& trace, Rows spans, std::vector<Asked> asked,
                                       size_t rows) {
  std::vector<uint32_t> found(rows, kNone);
  const auto key = [&](uint32_t i) {
    const Event& e = trace.events[i];
    return std::tuple(int64_t{e.pid}, e.tid, e.ts_ns, -e.dur_ns);
  };
  std::sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return std::tie(a.pid, a.tid, a.ts_ns) < std::tie(b.pid, b.tid, b.ts_ns);
  });
  Rows open;
  size_t next = 0;
  std::pair<int64_t, int64_t> lane;
  for (const Asked& ask : asked) {
    if (lane != std::pair(ask.pid, ask.tid)) open.clear();
    lane = {ask.pid, ask.tid};
    for (; next < spans.size(); ++next) {
      const Event& e = trace.events[spans[next]];
      const auto at = std::tuple(int64_t{e.pid}, e.tid, e.ts_ns);
      if (at > std::tuple(ask.pid, ask.tid, ask.ts_ns)) break;
      if (e.pid == ask.pid && e.tid == ask.tid) open.push_back(spans[next]);
    }
    while (!open.empty() && trace.events[open.back()].end_ns() < ask.ts_ns) open.pop_back();
    if (!open.empty()) found[ask.row] = open.back();
  }
  return found;
}

}  // namespace

struct TableData {
  explicit TableData(Trace from);

  Trace trace;
  Links links;
  std::array<Rows, kTableNames.size()> rows;
  // Beside the events. Of ops: without the ops that they called; with what these launched.
  std::vector<int64_t> self_ns;
  std::vector<int64_t> device_ns;
  std::vector<uint32_t> kernels;
  // Of ops and calls: the Python frame, the nn.Module's frame around them. Empty without frames.
  std::vector<uint32_t> frame;
  std::vector<uint32_t> module;
  std::vector<uint32_t> frame_parent;  // of frames
  // Beside Trace::memory.
  std::vector<uint32_t> memory_op;
  std::vector<uint32_t> memory_frame;
  std::vector<uint32_t> memory_module;
  std::vector<std::optional<int64_t>> step_numbers;  // beside Links::steps

  const Event& event(uint32_t i) const { return trace.events[i]; }
  const Rows& rows_of(TableKind kind) const { return rows[static_cast<size_t>(kind)]; }

 private:
  Rows& list(TableKind kind) { return rows[static_cast<size_t>(kind)]; }
  void sort_events();
  void sum_over_ops();
  void find_frames();
};

TableData::TableData(Trace from) : trace(std::move(from)), links(link(trace)) {
  sort_events();
  sum_over_ops();
  find_frames();
  for (const uint32_t i : links.steps) step_numbers.push_back(step_number(trace.name(event(i))));
}

void TableData::sort_events() {
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Category category = trace.events[i].category;
    if (category == Category::cpu_op) {
      list(TableKind::ops).push_back(i);
    } else if (is_device_work(category)) {
      list(TableKind::kernels).push_back(i);
    } else if (is_launch_category(category)) {
      list(TableKind::launches).push_back(i);
    } else if (category == Category::user_annotation || category == Category::gpu_user_annotation) {
      list(TableKind::ranges).push_back(i);
    } else if (category == Category::python_function) {
      list(TableKind::frames).push_back(i);
    }
  }
  list(TableKind::steps) = links.steps;
  list(TableKind::links) = list(TableKind::kernels);
  const auto sort = [](Rows& list, const auto& time_of) {
    std::stable_sort(list.begin(), list.end(),
                     [&](uint32_t a, uint32_t b) { return time_of(a) < time_of(b); });
  };
  for (Rows& list : rows) sort(list, [&](uint32_t i) { return trace.events[i].ts_ns; });
  Rows& memory = list(TableKind::memory);
  memory.resize(trace.memory.size());
  for (uint32_t i = 0; i < memory.size(); ++i) memory[i] = i;
  sort(memory,
       [&](uint32_t i) { return std::pair(trace.memory[i].ts_ns, trace.memory[i].ev_idx); });
}

void TableData::sum_over_ops() {
  const size_t count = trace.events.size();
  self_ns.resize(count);
  device_ns.resize(count);
  kernels.resize(count);
  for (const uint32_t i : rows_of(TableKind::ops)) self_ns[i] += event(i).dur_ns;
  for (const uint32_t i : rows_of(TableKind::ops)) {
    if (links.parent[i] != kNone) self_ns[links.parent[i]] -= event(i).dur_ns;
  }
  for (const uint32_t i : rows_of(TableKind::kernels)) {
    for (uint32_t op = links.op[i]; op != kNone; op = links.parent[op]) {
      device_ns[op] += event(i).dur_ns;
      kernels[op] += event(i).category == Category::kernel ? 1 : 0;
    }
  }
}

void TableData::find_frames() {
  std::vector<Asked> asked;
  for (uint32_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& m = trace.memory[i];
    asked.push_back({m.pid, m.tid, m.ts_ns, i});
  }
  memory_op = innermost_around(trace, rows_of(TableKind::ops), asked, asked.size());
  const Rows& all = rows_of(TableKind::frames);
  if (all.empty()) return;
  Rows modules;
  for (const uint32_t i : all)
    if (trace.name(event(i)).starts_with(kModuleFrame)) modules.push_back(i);
  memory_frame = innermost_around(trace, all, asked, asked.size());
  memory_module = innermost_around(trace, modules, asked, asked.size());
  asked.clear();
  for (const TableKind kind : {TableKind::ops, TableKind::launches})
    for (const uint32_t i : rows_of(kind)) {
      asked.push_back({event(i).pid, event(i).tid, event(i).ts_ns, i});
    }
  frame = innermost_around(trace, all, asked, trace.events.size());
  std::vector<Asked> frames_too = asked;
  for (const uint32_t i : all)
    frames_too.push_back({event(i).pid, event(i).tid, event(i).ts_ns, i});
  module = innermost_around(trace, modules, frames_too, trace.events.size());
  // A module's frame is one of the frames that nest.
  frame_parent.assign(trace.events.size(), kNone);
  Rows order;
  for (const uint32_t i : event_order(trace))
    if (event(i).category == Category::python_function) order.push_back(i);
  LaneNester nester;
  for (const uint32_t i : order) {
    const Event& e = event(i);
    frame_parent[i] = nester.add(i, {e.pid, e.tid, e.ts_ns, e.end_ns()});
  }
}

namespace {

// --- Columns ------------------------------------------------------------------------------------

// What the arrays of one column of a batch are made of.
struct Buffers {
  std::vector<uint8_t> valid;  // bits; empty: no nulls
  std::vector<uint8_t> values;
  int64_t nulls = 0;

  void set_null(size_t row, size_t rows) {
    if (valid.empty()) valid.assign((rows + 7) / 8, 0xff);
    valid[row / 8] = static_cast<uint8_t>(valid[row / 8] & ~(1u << (row % 8)));
    ++nulls;
  }
};

// The strings of a column, each once. Arrays of all batches share it.
struct Dictionary {
  std::vector<int32_t> codes;  // by key; -1: not in the column
  std::vector<int64_t> offsets = {0};
  std::string text;
};

using FillColumn =
    std::function<void(std::span<const uint32_t> rows, const Dictionary*, Buffers& out)>;
using MakeDictionary = std::function<Dictionary(const Rows& rows)>;

struct Column {
  const char* name;
  const char* format;  // Arrow's: "l" int64, "i" int32, "g" float64, "b" bool
  FillColumn fill;
  MakeDictionary dictionary = {};  // of columns of text: values are then int32, its codes
};

template <class T>
constexpr const char* format_of() {
  if constexpr (std::is_same_v<T, bool>) return "b";
  if constexpr (std::is_same_v<T, int32_t>) return "i";
  if constexpr (std::is_same_v<T, double>) return "g";
  return "l";
}

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

template <class T>
void put(Buffers& out, size_t at, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value) out.values[at / 8] = static_cast<uint8_t>(out.values[at / 8] | 1u << (at % 8));
  } else {
    std::memcpy(out.values.data() + at * sizeof(T), &value, sizeof(T));
  }
}

// get(row) gives int64_t, int32_t, double or bool, or an optional of these.
template <class Get>
Column numbers(const char* name, const Get& get) {
  using Given = std::invoke_result_t<Get, uint32_t>;
  using T = typename Unwrapped<Given>::type;
  return {name, format_of<T>(),
          [get](std::span<const uint32_t> rows, const Dictionary*, Buffers& out) {
            out.values.assign(
                std::is_same_v<T, bool> ? (rows.size() + 7) / 8 : rows.size() * sizeof(T), 0);
            for (size_t i = 0; i < rows.size(); ++i) {
              const Given value = get(rows[i]);
              if constexpr (std::is_same_v<Given, T>) {
                put<T>(out, i, value);
              } else if (value) {
                put<T>(out, i, *value);
              } else {
                out.set_null(i, rows.size());
              }
            }
          }};
}

// Foreign traces hold any bytes; Arrow's text is UTF-8. Text that is not keeps its ASCII.
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

// key(row) gives a number below `keys`, or kNone for null; text(key) its string, called once each.
template <class Key, class Text>
Column texts(const char* name, size_t keys, const Key& key, const Text& text) {
  const auto fill = [key](std::span<const uint32_t> rows, const Dictionary* dictionary,
                          Buffers& out) {
    out.values.assign(rows.size() * sizeof(int32_t), 0);
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t k = key(rows[i]);
      if (k == kNone) {
        out.set_null(i, rows.size());
      } else {
        put<int32_t>(out, i, dictionary->codes[k]);
      }
    }
  };
  const auto make = [=](const Rows& rows) {
    Dictionary dictionary;
    dictionary.codes.assign(keys, -1);
    // Several keys may have one text; a dictionary's values are distinct.
    std::unordered_map<std::string, int32_t> by_text;
    for (const uint32_t row : rows) {
      const uint32_t k = key(row);
      if (k == kNone || dictionary.codes[k] >= 0) continue;
      const auto [found, is_new] =
          by_text.try_emplace(utf8(text(k)), static_cast<int32_t>(by_text.size()));
      dictionary.codes[k] = found->second;
      if (!is_new) continue;
      dictionary.text += found->first;
      dictionary.offsets.push_back(static_cast<int64_t>(dictionary.text.size()));
    }
    return dictionary;
  };
  return {name, "i", fill, make};
}

template <class Id>
Column strings(const char* name, const TableData& d, const Id& id) {
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
Column event_int(const char* name, const TableData& d, const Of& of) {
  return numbers(name, [&d, of](uint32_t i) -> int64_t { return of(d.event(i)); });
}
Column id_column() {
  return numbers("id", [](uint32_t i) -> int64_t { return i; });
}
Column link_column(const char* name, const std::vector<uint32_t>& list) {
  return numbers(name, [&list](uint32_t i) { return known(at(list, i)); });
}
Column step_column(const TableData& d) {
  return numbers("step", [&d](uint32_t i) -> std::optional<int64_t> {
    const uint32_t at = d.links.step[i];
    return at == kNone ? std::nullopt : d.step_numbers[at];
  });
}
Column name_column(const TableData& d) {
  return strings("name", d, [&d](uint32_t i) { return d.event(i).name; });
}

// id, name, ts_ns, dur_ns: what all tables of events begin with.
std::vector<Column> event_columns(const TableData& d) {
  return {id_column(), name_column(d),
          event_int("ts_ns", d, [](const Event& e) { return e.ts_ns; }),
          event_int("dur_ns", d, [](const Event& e) { return e.dur_ns; })};
}
void add_thread(std::vector<Column>& list, const TableData& d) {
  list.push_back(event_int("pid", d, [](const Event& e) { return e.pid; }));
  list.push_back(event_int("tid", d, [](const Event& e) { return e.tid; }));
}

// "Linear_3" of frames named "nn.Module: Linear_3".
Column module_column(const TableData& d, const std::vector<uint32_t>& frames,
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

Column op_name_column(const TableData& d, const std::vector<uint32_t>& op_of) {
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
Column inputs_column(const char* name, const TableData& d, const Text& text) {
  return texts(
      name, d.trace.inputs.size(),
      [&d](uint32_t i) {
        const OpArgs* args = d.trace.op_args(d.event(i));
        return args == nullptr ? kNone : args->inputs;
      },
      [&d, text](uint32_t k) { return text(d.trace.inputs[k]); });
}

template <class Of>
Column op_string(const char* name, const TableData& d, const Of& of) {
  return strings(name, d, [&d, of](uint32_t i) {
    const OpArgs* args = d.trace.op_args(d.event(i));
    return args == nullptr || of(*args) == 0 ? kNone : of(*args);
  });
}

std::vector<Column> op_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
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
Column kernel_number(const char* name, const TableData& d, const Of& of) {
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

std::vector<Column> kernel_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
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

std::vector<Column> launch_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
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

std::vector<Column> step_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
  add_thread(list, d);
  list.push_back(
      numbers("step", [&d](uint32_t i) { return step_number(d.trace.name(d.event(i))); }));
  return list;
}

std::string_view device_name(uint32_t type) {
  return static_cast<DeviceType>(type) == DeviceType::cpu ? "cpu" : "device";
}

template <class Of>
Column memory_int(const char* name, const TableData& d, const Of& of) {
  return numbers(name, [&d, of](uint32_t i) -> int64_t {
    return static_cast<int64_t>(of(d.trace.memory[i]));
  });
}

std::vector<Column> memory_columns(const TableData& d) {
  std::vector<Column> list = {
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

std::vector<Column> range_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
  add_thread(list, d);
  list.push_back(numbers("is_device", [&d](uint32_t i) {
    return d.event(i).category == Category::gpu_user_annotation;
  }));
  return list;
}

std::vector<Column> frame_columns(const TableData& d) {
  std::vector<Column> list = event_columns(d);
  add_thread(list, d);
  list.push_back(link_column("parent_id", d.frame_parent));
  list.push_back(module_column(d, d.module));
  return list;
}

std::vector<Column> link_columns(const TableData& d) {
  std::vector<Column> list;
  list.push_back(numbers("kernel_id", [](uint32_t i) -> int64_t { return i; }));
  list.push_back(link_column("launch_id", d.links.launch));
  list.push_back(link_column("op_id", d.links.op));
  list.push_back(step_column(d));
  return list;
}

std::vector<Column> columns_of(TableKind kind, const TableData& d) {
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

// --- Arrow's C data interface -------------------------------------------------------------------
// Each struct owns what it points to by its private_data; release() frees that and marks the
// struct as released, as the specification asks.

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

void schema_of(const std::vector<Column>& columns, ArrowSchema* out) {
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
  std::shared_ptr<const TableData> data;
  const Rows* rows = nullptr;
  std::vector<Column> columns;
  std::vector<std::shared_ptr<const Dictionary>> dictionaries;  // made for the first batch
  size_t next = 0;
  std::string error;

  void make_dictionaries() {
    for (const Column& column : columns)
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

TraceTables::TraceTables(Trace trace)
    : data_(std::make_shared<const TableData>(std::move(trace))) {}

std::span<const std::string_view> TraceTables::names() { return kTableNames; }

int64_t TraceTables::row_count(std::string_view table) const {
  return static_cast<int64_t>(data_->rows_of(kind_of(table)).size());
}

void TraceTables::export_schema(std::string_view table, ArrowSchema* out) const {
  schema_of(columns_of(kind_of(table), *data_), out);
}

void TraceTables::export_stream(std::string_view table, ArrowArrayStream* out) const {
  const TableKind kind = kind_of(table);
  auto holder = std::make_unique<StreamHolder>();
  holder->data = data_;
  holder->rows = &data_->rows_of(kind);
  holder->columns = columns_of(kind, *data_);
  *out = {stream_schema, stream_next, stream_error, release_stream, holder.release()};
}

const Trace& TraceTables::trace() const { return data_->trace; }

}  // namespace epilogue::trace
