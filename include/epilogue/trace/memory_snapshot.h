// SPDX-License-Identifier: Apache-2.0
// Memory snapshots of PyTorch's caching allocator, as torch.cuda.memory._dump_snapshot() writes
// them: what is allocated, what is cached, and the history of both. A snapshot is a pickle. It is
// read as data: nothing is imported or called.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/tables.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// A device_traces entry's action. PyTorch says what each means in torch.cuda.memory._snapshot().
enum class SnapshotAction : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
  oom,
  other,  // annotations of tensors, and what later versions add
};
inline constexpr std::string_view kSnapshotActionNames[] = {
    "alloc",       "free_requested", "free_completed", "segment_alloc", "segment_free",
    "segment_map", "segment_unmap",  "snapshot",       "oom",           "other"};

enum class BlockState : uint8_t { allocated, pending_free, inactive };
inline constexpr std::string_view kBlockStateNames[] = {"active_allocated", "active_pending_free",
                                                        "inactive"};

// Texts are numbers of MemorySnapshot::text(), 0 is "". Stacks are numbers of
// MemorySnapshot::stack(), 0 has no frames.
struct SnapshotFrame {
  uint32_t name = 0;
  uint32_t file = 0;
  int32_t line = 0;
  bool operator==(const SnapshotFrame&) const = default;
};
struct SnapshotEvent {
  uint64_t address = 0;  // of an oom: what the device had free, in bytes
  int64_t bytes = 0;     // what was asked for; of segments what they hold
  int64_t time_us = 0;   // Unix time; 0: not recorded
  uint32_t stack = 0;
  uint32_t metadata = 0;  // text: what the user attached, or the compile context
  uint16_t stream = 0;    // in MemorySnapshot::streams
  uint16_t pool = 0;      // in MemorySnapshot::pools
  SnapshotAction action = SnapshotAction::other;
  uint8_t category = 0;  // in MemorySnapshot::categories; 0: not recorded
};
struct SnapshotBlock {
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;  // before rounding
  uint32_t stack = 0;
  BlockState state = BlockState::inactive;
};
struct SnapshotSegment {
  uint64_t address = 0;
  int64_t bytes = 0;
  int32_t device = 0;
  uint32_t stack = 0;
  uint32_t first_block = 0;  // its blocks lie one behind the other in MemorySnapshot::blocks
  uint32_t blocks = 0;
  uint16_t stream = 0;
  uint16_t pool = 0;
  bool is_large = true;
  bool is_expandable = false;
};
struct SnapshotAnnotation {  // of the profiler, where it was recorded
  uint32_t name = 0;
  int32_t device = 0;
  int64_t time_us = 0;
  bool is_start = true;
};
// Pinned memory of the host has a device number of its own.
inline constexpr int32_t kHostDevice = -1;
struct SnapshotTrace {  // of one device, in the order of its ring buffer: oldest first
  int32_t device = 0;
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // [first, count) of events
  uint64_t events = 0;
};

struct SnapshotData;  // of the library: what is too large to move

class MemorySnapshot {
 public:
  explicit MemorySnapshot(std::shared_ptr<const SnapshotData> data);

  std::string_view text(uint32_t id) const;
  std::span<const uint32_t> stack(uint32_t id) const;  // of frames, the innermost first
  const SnapshotFrame& frame(uint32_t id) const;
  const SnapshotEvent& event(uint32_t id) const;
  uint32_t event_count() const;
  uint32_t frame_count() const;
  uint32_t stack_count() const;
  uint32_t text_count() const;
  uint64_t held_bytes() const;  // memory of all tables
  const SnapshotData& data() const { return *data_; }

  std::string path;
  int64_t file_bytes = 0;
  std::vector<SnapshotTrace> traces;  // of devices that recorded something
  std::vector<SnapshotSegment> segments;
  std::vector<SnapshotBlock> blocks;
  std::vector<SnapshotAnnotation> annotations;
  std::vector<std::pair<std::string, std::string>>
      settings;                                    // of the allocator; empty: not recorded
  std::vector<int64_t> streams;                    // two's complement: a handle, or a number
  std::vector<std::pair<int64_t, int64_t>> pools;  // (0, 0): the one of all that asked for none
  std::vector<std::string> categories;             // "" first; of profiles alone
  int64_t skipped_entries = 0;  // of lists, that are no events, segments or blocks

 private:
  std::shared_ptr<const SnapshotData> data_;
};

// Reads a snapshot: plain or gzip, "-" is stdin; of any PyTorch since 1.13, also a bare list of
// segments (torch.cuda.memory_snapshot()). Fails, with one line that names the file: cannot_open;
// not_a_trace (cut, damaged or another format; a pickle that would import or call code: the opcode
// and its place are named; one of something else). `progress` is called as ReadOptions::progress
// is. Safe to call from several threads.
Result<MemorySnapshot> read_memory_snapshot(
    const std::string& path, const std::function<void(int64_t, int64_t)>& progress = {});
// The same of what a file holds.
Result<MemorySnapshot> read_memory_snapshot_bytes(
    std::string_view bytes, std::string_view name,
    const std::function<void(int64_t, int64_t)>& progress = {});

struct SnapshotTableData;  // of the library

// A snapshot as tables for databases and data frames: Arrow streams, as TraceTables. docs/memory.md
// lists the columns. Copies share the snapshot. Safe to call from several threads.
class SnapshotTables {
 public:
  explicit SnapshotTables(MemorySnapshot snapshot);

  // "allocations", "events", "blocks", "segments", "frames".
  static std::span<const std::string_view> names();

  // All of these throw Error, with the names that there are, for another name.
  int64_t row_count(std::string_view table) const;
  void export_schema(std::string_view table, ArrowSchema* out) const;
  void export_stream(std::string_view table, ArrowArrayStream* out) const;

 private:
  std::shared_ptr<const SnapshotTableData> data_;
};

}  // namespace epilogue::trace

#pragma GCC visibility pop
