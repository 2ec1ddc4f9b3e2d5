// SPDX-License-Identifier: Apache-2.0
#include "trace/tables/table_data.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "trace/nesting.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

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

}  // namespace epilogue::trace
