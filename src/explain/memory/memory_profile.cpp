// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/memory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/json.h"
#include "explain/index/op_tree.h"
#include "explain/index/sort_runs.h"

namespace epilogue::trace {
namespace {

using Records = std::vector<uint32_t>;  // positions in Trace::memory, by time

void sort_by_time(const Trace& trace, Records& records) {
  sort_runs(records, [&](uint32_t a, uint32_t b) {
    const MemoryEvent& x = trace.memory[a];
    const MemoryEvent& y = trace.memory[b];
    if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
    return x.ev_idx != y.ev_idx ? x.ev_idx < y.ev_idx : a < b;
  });
}

// The records up to and with the peak; sets the totals on the way.
size_t add_totals(const Trace& trace, const Records& records, DeviceMemory& memory) {
  memory.is_relative = std::all_of(records.begin(), records.end(), [&](uint32_t i) {
    return trace.memory[i].total_allocated == 0;
  });
  int64_t sum = 0;
  size_t peak = 0;
  for (size_t at = 0; at < records.size(); ++at) {
    const MemoryEvent& m = trace.memory[records[at]];
    if (m.out_of_memory) {
      ++memory.out_of_memory;
      continue;
    }
    ++(m.bytes >= 0 ? memory.allocations : memory.frees);
    sum += m.bytes;
    const int64_t total = memory.is_relative ? sum : m.total_allocated;
    memory.totals.push_back({m.ts_ns, total});
    memory.peak_reserved_bytes = std::max(memory.peak_reserved_bytes, m.total_reserved);
    if (total <= memory.peak_bytes) continue;
    memory.peak_bytes = total;
    memory.peak_ns = m.ts_ns;
    peak = at + 1;
  }
  return peak;
}

// Allocations among the first `count` records that none of them frees.
Records live_after(const Trace& trace, const Records& records, size_t count) {
  std::unordered_map<uint64_t, uint32_t> live;  // by address
  for (size_t at = 0; at < count; ++at) {
    const MemoryEvent& m = trace.memory[records[at]];
    if (m.out_of_memory) continue;
    if (m.bytes > 0) {
      live[m.addr] = records[at];
    } else {
      live.erase(m.addr);
    }
  }
  Records list;
  for (const auto& [addr, record] : live) list.push_back(record);
  std::sort(list.begin(), list.end());
  return list;
}

// Frames of Python in which somebody may allocate.
struct AllocatingFrames {
  std::vector<PythonFrame> events;  // and those of the trace, if it has both
  bool are_events = false;
  std::vector<uint32_t> modules;
  std::vector<uint32_t> own;        // functions that are not PyTorch's
  std::vector<uint32_t> functions;  // all that are not built in

  // The lists are indices of these.
  const std::vector<PythonFrame>& all(const Trace& trace) const {
    return events.empty() ? trace.frames : events;
  }
};

AllocatingFrames allocating_frames(const Trace& trace) {
  AllocatingFrames frames;
  for (const Event& e : trace.events)
    if (e.category == Category::python_function)
      frames.events.push_back({e.ts_ns, e.dur_ns, e.tid, e.pid, e.name});
  if (!frames.events.empty())
    frames.events.insert(frames.events.begin(), trace.frames.begin(), trace.frames.end());
  frames.are_events = trace.frames.empty();
  enum class FrameKind : uint8_t { unknown, built_in, module, torch, own };
  std::vector<FrameKind> kinds(trace.strings.size());  // each name is asked once
  const std::vector<PythonFrame>& all = frames.all(trace);
  for (uint32_t i = 0; i < all.size(); ++i) {
    FrameKind& kind = kinds[all[i].name];
    if (kind == FrameKind::unknown) {
      const std::string_view name = trace.strings[all[i].name];
      const bool is_torch = name.starts_with("torch/") || name.find("/torch/") != name.npos;
      kind = name.starts_with(kModulePrefix) ? FrameKind::module
             : name.starts_with("<built-in") ? FrameKind::built_in
             : is_torch                      ? FrameKind::torch
                                             : FrameKind::own;
    }
    if (kind == FrameKind::module) frames.modules.push_back(i);
    if (kind == FrameKind::torch || kind == FrameKind::own) frames.functions.push_back(i);
    if (kind == FrameKind::own) frames.own.push_back(i);
  }
  return frames;
}

void add_python_holders(const Trace& trace, const AllocatingFrames& frames, const Records& live,
                        const std::vector<Moment>& moments, DeviceMemory& memory) {
  if (frames.modules.empty() && frames.functions.empty()) return;
  const std::vector<PythonFrame>& all = frames.all(trace);
  const std::vector<uint32_t> modules = innermost_at(all, frames.modules, moments);
  const std::vector<uint32_t> own = innermost_at(all, frames.own, moments);
  const std::vector<uint32_t> functions = innermost_at(all, frames.functions, moments);
  const auto name_of = [&](uint32_t frame) { return frame == kNone ? 0 : all[frame].name; };
  std::map<std::pair<StringId, StringId>, PythonMemoryHolder> holders;
  for (size_t i = 0; i < live.size(); ++i) {
    const StringId module = name_of(modules[i]);
    const StringId function = name_of(own[i] != kNone ? own[i] : functions[i]);
    PythonMemoryHolder& holder = holders[{module, function}];
    if (module != 0) holder.module = trace.strings[module].substr(kModulePrefix.size());
    holder.function = std::string(trace.strings[function]);
    ++holder.allocations;
    holder.bytes += trace.memory[live[i]].bytes;
  }
  std::vector<PythonMemoryHolder> list;
  list.reserve(holders.size());
  for (auto& [names, holder] : holders) list.push_back(std::move(holder));
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (!list.empty()) memory.largest_python = list.front();
  if (frames.are_events) memory.at_peak_by_python = std::move(list);
}

void add_holders(const Trace& trace, const std::vector<uint32_t>& ops,
                 const AllocatingFrames& frames, const Records& live, DeviceMemory& memory) {
  std::vector<Moment> moments;
  for (const uint32_t i : live) {
    const MemoryEvent& m = trace.memory[i];
    moments.push_back({m.pid, m.tid, m.ts_ns});
  }
  add_python_holders(trace, frames, live, moments, memory);
  const std::vector<uint32_t> around = innermost_at(trace, ops, moments);
  std::map<StringId, MemoryHolder> holders;
  int64_t known_bytes = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const StringId name = around[i] == kNone ? 0 : trace.events[around[i]].name;
    MemoryHolder& holder = holders[name];
    holder.op = std::string(trace.strings[name]);
    ++holder.allocations;
    holder.bytes += trace.memory[live[i]].bytes;
    known_bytes += trace.memory[live[i]].bytes;
  }
  for (auto& [name, holder] : holders) memory.at_peak.push_back(std::move(holder));
  std::stable_sort(memory.at_peak.begin(), memory.at_peak.end(),
                   [](const MemoryHolder& a, const MemoryHolder& b) { return a.bytes > b.bytes; });
  if (!memory.is_relative)
    memory.before_window_bytes = std::max<int64_t>(memory.peak_bytes - known_bytes, 0);
}

// Memory that existed before the window; false if the trace has no categories.
bool memory_at_start(const Trace& trace, CategoryBytes& bytes) {
  for (const auto& [key, json] : trace.metadata) {
    if (key != kMemoryAtStartKey) continue;
    const auto object = parse_json(json);
    for (size_t c = 0; object.is_object() && c < kMemoryCategories; ++c) {
      const auto member =
          object.find(std::string(memory_category_name(static_cast<MemoryCategory>(c))));
      if (member != object.end() && member->is_number_integer()) bytes[c] = *member;
    }
    return true;
  }
  return std::any_of(trace.memory.begin(), trace.memory.end(),
                     [](const MemoryEvent& m) { return m.category != MemoryCategory::unknown; });
}

// Runs along `totals`: the sums of all categories are its bytes, so that what was there before and
// the trace does not give ends up as unknown.
void add_categories(const Trace& trace, const Records& records, DeviceMemory& memory) {
  CategoryBytes now{};
  if (memory.type != DeviceType::cpu || !memory_at_start(trace, now)) return;
  constexpr auto kUnknown = static_cast<size_t>(MemoryCategory::unknown);
  for (const uint32_t i : records) {
    const MemoryEvent& m = trace.memory[i];
    if (m.out_of_memory) continue;
    now[static_cast<size_t>(m.category)] += m.bytes;
    const MemoryPoint& point = memory.totals[memory.category_totals.size()];
    int64_t known = 0;
    for (size_t c = 0; c < kUnknown; ++c) known += now[c];
    now[kUnknown] = point.allocated_bytes - known;
    memory.category_totals.push_back(now);
    for (size_t c = 0; c < kMemoryCategories; ++c)
      memory.category_peak[c] = std::max(memory.category_peak[c], now[c]);
    if (point.ts_ns == memory.peak_ns && point.allocated_bytes == memory.peak_bytes)
      memory.category_at_peak = now;
  }
}

}  // namespace

std::optional<int64_t> step_peak_bytes(const Trace& trace, const Links& links) {
  const std::vector<DeviceMemory> devices = memory_profile(trace, links);
  if (devices.empty() || devices.front().is_relative) return std::nullopt;
  Records records;
  for (uint32_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& m = trace.memory[i];
    if (m.device_type == devices.front().type && m.device_id == devices.front().device &&
        !m.out_of_memory)
      records.push_back(i);
  }
  sort_by_time(trace, records);
  std::optional<int64_t> peak;
  for (const uint32_t step : links.steps) {
    const Event& window = trace.events[step];
    const auto from =
        std::lower_bound(records.begin(), records.end(), window.ts_ns,
                         [&](uint32_t i, int64_t ts_ns) { return trace.memory[i].ts_ns < ts_ns; });
    int64_t growth = 0;
    for (auto at = from; at != records.end() && trace.memory[*at].ts_ns <= window.end_ns(); ++at) {
      const MemoryEvent& first = trace.memory[*from];
      growth = std::max(growth,
                        trace.memory[*at].total_allocated - (first.total_allocated - first.bytes));
    }
    peak = std::max(peak.value_or(0), growth);
  }
  return peak;
}

std::vector<DeviceMemory> memory_profile(const Trace& trace, const Links& links) {
  std::map<std::pair<DeviceType, int32_t>, Records> by_device;
  for (uint32_t i = 0; i < trace.memory.size(); ++i)
    by_device[{trace.memory[i].device_type, trace.memory[i].device_id}].push_back(i);
  std::vector<uint32_t> ops;
  for (uint32_t i = 0; i < links.parent.size(); ++i)
    if (trace.events[i].category == Category::cpu_op) ops.push_back(i);

  if (by_device.empty()) return {};
  const AllocatingFrames frames = allocating_frames(trace);
  std::vector<DeviceMemory> list;
  for (auto& [device, records] : by_device) {
    sort_by_time(trace, records);
    DeviceMemory memory = {.type = device.first, .device = device.second};
    const size_t until_peak = add_totals(trace, records, memory);
    add_categories(trace, records, memory);
    add_holders(trace, ops, frames, live_after(trace, records, until_peak), memory);
    list.push_back(std::move(memory));
  }
  std::stable_sort(list.begin(), list.end(), [](const DeviceMemory& a, const DeviceMemory& b) {
    return a.peak_bytes > b.peak_bytes;
  });
  return list;
}

}  // namespace epilogue::trace
