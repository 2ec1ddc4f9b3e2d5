// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/table.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "explain/table/flops.h"
#include "explain/table/function_events.h"
#include "trace/python_shapes.h"

namespace epilogue::trace {
namespace {

// Two events share a row if all of these agree. Parts that the options leave out are 0.
struct GroupKey {
  StringId name = 0;
  StringId overload_name = 0;
  uint32_t shapes = 0;
  uint32_t stack = 0;
  bool is_device = false;
  bool is_user_annotation = false;
  bool operator==(const GroupKey&) const = default;
};
struct GroupHash {
  size_t operator()(const GroupKey& k) const {
    uint64_t h = k.name;
    for (const uint64_t part : {uint64_t{k.overload_name}, uint64_t{k.shapes}, uint64_t{k.stack},
                                uint64_t{k.is_device} * 2 + uint64_t{k.is_user_annotation}})
      h = (h ^ (h >> 29)) * 0x9E3779B97F4A7C15ULL + part;
    return std::hash<uint64_t>{}(h);
  }
};

std::vector<std::string> first_frames(std::string_view stack, int n) {
  std::vector<std::string> frames;
  while (!stack.empty() && static_cast<int>(frames.size()) < n) {
    const size_t end = std::min(stack.find(';'), stack.size());
    frames.emplace_back(stack.substr(0, end));
    stack.remove_prefix(std::min(end + 1, stack.size()));
  }
  return frames;
}

class Grouper {
 public:
  Grouper(const Trace& trace, const KeyAveragesOptions& options)
      : trace_(trace),
        options_(options),
        is_grouped_further_(options.group_by_input_shape || options.group_by_stack_n > 0 ||
                            options.group_by_overload_name) {
    if (!options.group_by_input_shape) return;
    for (size_t i = 0; i < trace.inputs.size(); ++i)
      shapes_.push_back(number(python_shapes(trace.inputs[static_cast<uint32_t>(i)])));
    no_shapes_ = number("[]");
  }

  void add(const FunctionEvent& e, const FunctionMemory& memory) {
    Row& row = row_of(e);
    ++row.count;
    row.cpu_time_total_ns += cpu_time_ns(trace_, e);
    row.self_cpu_time_total_ns += e.self_cpu_time_ns;
    row.device_time_total_ns += e.device_time_ns;
    row.self_device_time_total_ns += e.self_device_time_ns;
    row.cpu_memory_bytes += memory.cpu_bytes;
    row.self_cpu_memory_bytes += memory.self_cpu_bytes;
    row.device_memory_bytes += memory.device_bytes;
    row.self_device_memory_bytes += memory.self_device_bytes;
    if (trace_.recorded.with_flops && has_inputs(e))
      row.flops +=
          torch_flops(trace_.name(*event_of(trace_, e)), trace_.inputs[args_of(trace_, e)->inputs]);
  }

  std::vector<Row> take_rows() { return std::move(rows_); }

 private:
  // Names and flags alone need no hashing.
  Row& row_of(const FunctionEvent& e) {
    if (is_grouped_further_) return row_of(key(e), e);
    // kStepName and its like count down from kNone.
    const uint32_t name = e.name < trace_.strings.size() ? e.name + kNamesOutside : kNone - e.name;
    const uint64_t slot =
        uint64_t{name} * 4 + (e.is_device ? 2 : 0) + (e.is_user_annotation ? 1 : 0);
    if (slot >= rows_by_name_.size())
      rows_by_name_.resize((trace_.strings.size() + kNamesOutside) * 4);
    size_t& row = rows_by_name_[slot];
    if (row == 0) {
      rows_.push_back(first_of(e));
      row = rows_.size();
    }
    return rows_[row - 1];
  }
  Row& row_of(const GroupKey& k, const FunctionEvent& e) {
    const auto [place, is_new] = row_of_.try_emplace(k, rows_.size());
    if (is_new) rows_.push_back(first_of(e));
    return rows_[place->second];
  }

  // A number per distinct text.
  uint32_t number(std::string text) {
    return numbers_.try_emplace(std::move(text), static_cast<uint32_t>(numbers_.size()))
        .first->second;
  }

  bool has_inputs(const FunctionEvent& e) const {
    const OpArgs* args = args_of(trace_, e);
    return args != nullptr && args->inputs < trace_.inputs.size();
  }
  std::vector<std::string> frames(const FunctionEvent& e) const {
    return first_frames(trace_.strings[e.stack], options_.group_by_stack_n);
  }

  GroupKey key(const FunctionEvent& e) {
    GroupKey k{
        .name = e.name, .is_device = e.is_device, .is_user_annotation = e.is_user_annotation};
    const OpArgs* args = args_of(trace_, e);
    if (options_.group_by_overload_name && args != nullptr) k.overload_name = args->overload_name;
    if (options_.group_by_input_shape)
      k.shapes = has_inputs(e) ? shapes_[args->inputs] : no_shapes_;
    if (options_.group_by_stack_n > 0) {
      std::string text = "stack";
      for (const std::string& frame : frames(e)) text += ';' + frame;
      k.stack = number(std::move(text));
    }
    return k;
  }

  Row first_of(const FunctionEvent& e) const {
    Row row;
    row.key = function_name(trace_, e.name);
    row.device = e.is_device ? RowDevice::device : RowDevice::cpu;
    row.is_user_annotation = e.is_user_annotation;
    row.is_async = e.is_async;
    row.is_top_level = e.parent == kNone;
    const OpArgs* args = args_of(trace_, e);
    if (options_.group_by_overload_name && args != nullptr)
      row.overload_name = trace_.strings[args->overload_name];
    if (options_.group_by_input_shape)
      row.input_shapes = has_inputs(e) ? python_shapes(trace_.inputs[args->inputs]) : "[]";
    if (options_.group_by_stack_n > 0) row.stack = frames(e);
    return row;
  }

  const Trace& trace_;
  const KeyAveragesOptions& options_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<uint32_t> shapes_;  // by inputs id: the number of its shapes
  uint32_t no_shapes_ = 0;
  static constexpr uint32_t kNamesOutside = 4;
  bool is_grouped_further_;
  std::vector<size_t> rows_by_name_;  // by name and flags: 1 + position in rows_, 0: none yet
  std::unordered_map<GroupKey, size_t, GroupHash> row_of_;
  std::vector<Row> rows_;
};

// Work of replayed graphs in the rows of the ops that captured it.
class CapturedBooks {
 public:
  CapturedBooks(const Trace& trace, const CapturedOps& captured, bool by_shape,
                std::vector<Row>& rows)
      : trace_(trace), captured_(captured), by_shape_(by_shape), rows_(rows) {
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].device == RowDevice::cpu && !rows[i].is_user_annotation)
        row_of_name_.try_emplace(key(rows[i].key, rows[i].input_shapes), i);
    row_of_op_.assign(captured.ops.size(), kNoRow);
  }

  void book() {
    if (trace_.device_label.empty()) return;
    for (uint32_t i = 0; i < trace_.events.size(); ++i)
      if (captured_.op_of(i) != kNone) add(trace_.events[i], captured_.op_of(i));
  }

 private:
  static constexpr size_t kNoRow = SIZE_MAX;

  void add(const Event& work, uint32_t op) {
    Row& own = row(op);
    own.self_device_time_total_ns += work.dur_ns;
    own.captured_self_device_ns += work.dur_ns;
    for (uint32_t at = op; at != kNone; at = captured_.ops[at].parent) {
      // An op that calls an op of its own name is one op.
      const uint32_t above = captured_.ops[at].parent;
      if (above != kNone && captured_.ops[above].name == captured_.ops[at].name) continue;
      Row& around = row(at);
      around.device_time_total_ns += work.dur_ns;
      if (!seen_.insert(call(work, at)).second) continue;
      ++around.count;
      ++around.captured_count;
    }
  }

  // One call of an op in one replay.
  uint64_t call(const Event& work, uint32_t op) {
    const auto [place, is_new] = replays_.try_emplace(work.correlation, replays_.size());
    return place->second * captured_.ops.size() + op;
  }

  std::string key(const std::string& name, const std::string& shapes) const {
    return by_shape_ ? name + '\0' + shapes : name;
  }

  Row& row(uint32_t op) {
    // The outermost of its name, which the row is of.
    while (captured_.ops[op].parent != kNone &&
           captured_.ops[captured_.ops[op].parent].name == captured_.ops[op].name)
      op = captured_.ops[op].parent;
    size_t& at = row_of_op_[op];
    if (at != kNoRow) return rows_[at];
    const CapturedOps::Op& captured = captured_.ops[op];
    const std::string shapes = captured.shapes.empty() ? "[]" : captured.shapes;
    const auto [place, is_new] = row_of_name_.try_emplace(key(captured.name, shapes), rows_.size());
    at = place->second;
    if (is_new) {
      Row& made = rows_.emplace_back();
      made.key = captured.name;
      made.is_top_level = captured.parent == kNone;
      if (by_shape_) made.input_shapes = shapes;
    }
    return rows_[at];
  }

  const Trace& trace_;
  const CapturedOps& captured_;
  bool by_shape_;
  std::vector<Row>& rows_;
  std::unordered_map<std::string, size_t> row_of_name_;
  std::vector<size_t> row_of_op_;
  std::unordered_map<int64_t, uint64_t> replays_;  // by correlation
  std::unordered_set<uint64_t> seen_;
};

double average_us(int64_t total_ns, int64_t count) {
  return count == 0 ? 0.0 : static_cast<double>(total_ns) / 1000.0 / static_cast<double>(count);
}

}  // namespace

double Row::cpu_time_avg_us() const {
  return average_us(cpu_time_total_ns, count - captured_count);
}
double Row::device_time_avg_us() const { return average_us(device_time_total_ns, count); }

int64_t KeyAverages::self_cpu_time_total_ns() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0}, [](int64_t sum, const Row& row) {
    return sum + row.self_cpu_time_total_ns;
  });
}

int64_t KeyAverages::self_device_time_total_ns() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0}, [](int64_t sum, const Row& row) {
    const bool counts = row.device == RowDevice::device && !row.is_user_annotation;
    return sum + (counts ? row.self_device_time_total_ns : 0);
  });
}

KeyAverages key_averages(const Trace& trace, const KeyAveragesOptions& options) {
  Grouper grouper(trace, options);
  const FunctionEvents functions = function_events(trace, options.captured);
  for (const FunctionEvent& e : functions.events)
    if (!e.is_collapsed && !e.is_frame) grouper.add(e, functions.memory_of(e));
  std::vector<Row> rows = grouper.take_rows();
  if (options.captured != nullptr)
    CapturedBooks(trace, *options.captured, options.group_by_input_shape, rows).book();
  return {.rows = std::move(rows),
          .device_label = trace.device_label,
          .profile_memory = trace.recorded.profile_memory,
          .with_flops = trace.recorded.with_flops,
          .has_captured_ops = options.captured != nullptr};
}

}  // namespace epilogue::trace
