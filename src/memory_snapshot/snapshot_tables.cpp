// SPDX-License-Identifier: Apache-2.0
// The tables of a snapshot; docs/memory.md lists their columns.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "epilogue/base/error.h"
#include "memory_snapshot/memory_report.h"
#include "trace/tables/columns.h"

namespace epilogue::trace {

constexpr std::array<std::string_view, 5> kSnapshotTableNames = {"allocations", "events", "blocks",
                                                                 "segments", "frames"};

struct SnapshotTableData {
  explicit SnapshotTableData(MemorySnapshot from)
      : snapshot(std::move(from)), report(memory_report(snapshot)) {
    for (size_t d = 0; d < report.devices.size(); ++d)
      for (size_t i = 0; i < report.devices[d].allocations.size(); ++i)
        allocations.emplace_back(static_cast<uint32_t>(d), static_cast<uint32_t>(i));
    // An event is of the device whose trace has it.
    device_of_event.assign(snapshot.event_count(), INT32_MIN);
    for (const SnapshotTrace& trace : snapshot.traces)
      for (const auto& [first, count] : trace.ranges)
        std::fill_n(device_of_event.begin() + first, count, trace.device);
    for (uint32_t s = 0; s < snapshot.segments.size(); ++s)
      segment_of_block.insert(segment_of_block.end(), snapshot.segments[s].blocks, s);
    for (uint32_t stack = 0; stack < snapshot.stack_count(); ++stack)
      for (uint32_t depth = 0; depth < snapshot.stack(stack).size(); ++depth)
        frames.emplace_back(stack, depth);
    const size_t sizes[] = {allocations.size(), snapshot.event_count(), snapshot.blocks.size(),
                            snapshot.segments.size(), frames.size()};
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].resize(sizes[i]);
      std::iota(rows[i].begin(), rows[i].end(), 0u);
    }
  }

  const SnapshotAllocation& allocation(uint32_t row) const {
    return report.devices[allocations[row].first].allocations[allocations[row].second];
  }
  const DeviceMemoryReport& device(uint32_t row) const {
    return report.devices[allocations[row].first];
  }
  SnapshotFrame frame(uint32_t row) const {
    return snapshot.frame(snapshot.stack(frames[row].first)[frames[row].second]);
  }

  MemorySnapshot snapshot;
  MemoryReport report;
  std::vector<std::pair<uint32_t, uint32_t>> allocations;  // device, place in its list
  std::vector<std::pair<uint32_t, uint32_t>> frames;       // stack, depth
  std::vector<int32_t> device_of_event;
  std::vector<uint32_t> segment_of_block;
  std::array<Rows, kSnapshotTableNames.size()> rows;
};

namespace {

size_t snapshot_table(std::string_view table) {
  const auto* found = std::find(kSnapshotTableNames.begin(), kSnapshotTableNames.end(), table);
  if (found != kSnapshotTableNames.end())
    return static_cast<size_t>(found - kSnapshotTableNames.begin());
  throw Error(
      fmt::format("expected a table of {}, got '{}'", fmt::join(kSnapshotTableNames, ", "), table));
}

int64_t address_of(uint64_t address) { return static_cast<int64_t>(address); }

template <class Id>
ArrowColumn snapshot_texts(const char* name, const SnapshotTableData& d, const Id& id) {
  return texts(
      name, d.snapshot.text_count(), [id](uint32_t row) { return id(row) == 0 ? kNone : id(row); },
      [&d](uint32_t k) { return d.snapshot.text(k); });
}
template <class Names, class Key>
ArrowColumn named(const char* name, const Names& names, const Key& key) {
  return texts(name, std::size(names), key,
               [&names](uint32_t k) { return std::string_view(names[k]); });
}

std::vector<ArrowColumn> allocation_columns(const SnapshotTableData& d) {
  const auto alive = [&d](uint32_t r) {
    const SnapshotAllocation& a = d.allocation(r);
    return a.begin <= d.device(r).peak_at && a.end > d.device(r).peak_at;
  };
  const auto of_list = [&d](const char* name, auto list, auto id) {
    // Devices have lists of their own: keys are rows, and the dictionary joins equal texts.
    return texts(
        name, d.allocations.size(),
        [&d, id](uint32_t r) { return d.allocation(r).*id == 0 ? kNone : r; },
        [&d, list, id](uint32_t r) {
          return std::string_view((d.device(r).*list)[d.allocation(r).*id]);
        });
  };
  const auto place = [](uint32_t p) {
    return p == 0 || p == UINT32_MAX ? std::nullopt : std::optional<int64_t>(p);
  };
  return {
      numbers("id", [](uint32_t r) { return int64_t{r}; }),
      numbers("device", [&d](uint32_t r) { return int64_t{d.device(r).device}; }),
      numbers("address", [&d](uint32_t r) { return address_of(d.allocation(r).address); }),
      numbers("bytes", [&d](uint32_t r) { return d.allocation(r).bytes; }),
      numbers("begin_event", [&d, place](uint32_t r) { return place(d.allocation(r).begin); }),
      numbers("end_event", [&d, place](uint32_t r) { return place(d.allocation(r).end); }),
      numbers("is_alive_at_peak", alive),
      named("category", kHolderCategoryNames,
            [&d](uint32_t r) { return static_cast<uint32_t>(d.allocation(r).category); }),
      of_list("frame", &DeviceMemoryReport::labels, &SnapshotAllocation::label),
      of_list("module", &DeviceMemoryReport::modules, &SnapshotAllocation::module),
      snapshot_texts("metadata", d, [&d](uint32_t r) { return d.allocation(r).metadata; }),
      numbers("stack_id", [&d](uint32_t r) { return int64_t{d.allocation(r).stack}; }),
  };
}

std::vector<ArrowColumn> event_columns(const SnapshotTableData& d) {
  const MemorySnapshot& s = d.snapshot;
  const auto is_oom = [&s](uint32_t r) { return s.event(r).action == SnapshotAction::oom; };
  return {
      numbers("id", [](uint32_t r) { return int64_t{r}; }),
      numbers("device",
              [&d](uint32_t r) {
                return d.device_of_event[r] == INT32_MIN
                           ? std::nullopt
                           : std::optional<int64_t>(d.device_of_event[r]);
              }),
      named("action", kSnapshotActionNames,
            [&s](uint32_t r) { return static_cast<uint32_t>(s.event(r).action); }),
      numbers("address",
              [&s, is_oom](uint32_t r) {
                return is_oom(r) ? std::nullopt : std::optional(address_of(s.event(r).address));
              }),
      numbers("device_free_bytes",
              [&s, is_oom](uint32_t r) {
                return is_oom(r) ? std::optional(address_of(s.event(r).address)) : std::nullopt;
              }),
      numbers("bytes", [&s](uint32_t r) { return s.event(r).bytes; }),
      numbers("time_us",
              [&s](uint32_t r) {
                return s.event(r).time_us == 0 ? std::nullopt : std::optional(s.event(r).time_us);
              }),
      numbers("stream", [&s](uint32_t r) { return s.streams[s.event(r).stream]; }),
      numbers("pool_first", [&s](uint32_t r) { return s.pools[s.event(r).pool].first; }),
      numbers("pool_second", [&s](uint32_t r) { return s.pools[s.event(r).pool].second; }),
      snapshot_texts("metadata", d, [&s](uint32_t r) { return s.event(r).metadata; }),
      numbers("stack_id", [&s](uint32_t r) { return int64_t{s.event(r).stack}; }),
  };
}

std::vector<ArrowColumn> block_columns(const SnapshotTableData& d) {
  const MemorySnapshot& s = d.snapshot;
  return {
      numbers("id", [](uint32_t r) { return int64_t{r}; }),
      numbers("segment_id", [&d](uint32_t r) { return int64_t{d.segment_of_block[r]}; }),
      numbers("address", [&s](uint32_t r) { return address_of(s.blocks[r].address); }),
      numbers("bytes", [&s](uint32_t r) { return s.blocks[r].bytes; }),
      numbers("requested_bytes", [&s](uint32_t r) { return s.blocks[r].requested_bytes; }),
      named("state", kBlockStateNames,
            [&s](uint32_t r) { return static_cast<uint32_t>(s.blocks[r].state); }),
      numbers("stack_id", [&s](uint32_t r) { return int64_t{s.blocks[r].stack}; }),
  };
}

std::vector<ArrowColumn> segment_columns(const SnapshotTableData& d) {
  const MemorySnapshot& s = d.snapshot;
  return {
      numbers("id", [](uint32_t r) { return int64_t{r}; }),
      numbers("device", [&s](uint32_t r) { return int64_t{s.segments[r].device}; }),
      numbers("address", [&s](uint32_t r) { return address_of(s.segments[r].address); }),
      numbers("bytes", [&s](uint32_t r) { return s.segments[r].bytes; }),
      numbers("stream", [&s](uint32_t r) { return s.streams[s.segments[r].stream]; }),
      numbers("pool_first", [&s](uint32_t r) { return s.pools[s.segments[r].pool].first; }),
      numbers("pool_second", [&s](uint32_t r) { return s.pools[s.segments[r].pool].second; }),
      numbers("is_large", [&s](uint32_t r) { return s.segments[r].is_large; }),
      numbers("is_expandable", [&s](uint32_t r) { return s.segments[r].is_expandable; }),
      numbers("blocks", [&s](uint32_t r) { return int64_t{s.segments[r].blocks}; }),
      numbers("stack_id", [&s](uint32_t r) { return int64_t{s.segments[r].stack}; }),
  };
}

std::vector<ArrowColumn> frame_columns(const SnapshotTableData& d) {
  return {
      numbers("stack_id", [&d](uint32_t r) { return int64_t{d.frames[r].first}; }),
      numbers("depth", [&d](uint32_t r) { return int64_t{d.frames[r].second}; }),
      snapshot_texts("name", d, [&d](uint32_t r) { return d.frame(r).name; }),
      snapshot_texts("file", d, [&d](uint32_t r) { return d.frame(r).file; }),
      numbers("line", [&d](uint32_t r) { return int64_t{d.frame(r).line}; }),
  };
}

std::vector<ArrowColumn> snapshot_columns(size_t table, const SnapshotTableData& d) {
  switch (table) {
    case 0: return allocation_columns(d);
    case 1: return event_columns(d);
    case 2: return block_columns(d);
    case 3: return segment_columns(d);
    default: return frame_columns(d);
  }
}

}  // namespace

SnapshotTables::SnapshotTables(MemorySnapshot snapshot)
    : data_(std::make_shared<const SnapshotTableData>(std::move(snapshot))) {}

std::span<const std::string_view> SnapshotTables::names() { return kSnapshotTableNames; }

int64_t SnapshotTables::row_count(std::string_view table) const {
  return static_cast<int64_t>(data_->rows[snapshot_table(table)].size());
}

void SnapshotTables::export_schema(std::string_view table, ArrowSchema* out) const {
  export_arrow_schema(snapshot_columns(snapshot_table(table), *data_), out);
}

void SnapshotTables::export_stream(std::string_view table, ArrowArrayStream* out) const {
  const size_t index = snapshot_table(table);
  export_arrow_stream(data_, data_->rows[index], snapshot_columns(index, *data_), out);
}

}  // namespace epilogue::trace
