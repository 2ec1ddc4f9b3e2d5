// SPDX-License-Identifier: Apache-2.0
// The answer of a snapshot: the state of the allocator at its end, who held memory at the peak, and
// what grew.
//
// Bytes of allocations are what was asked for; bytes of blocks, segments and "reserved" are what
// the allocator took. An allocation lives from `alloc` to `free_completed`, as _memory_viz draws
// it. Where the history does not have its beginning, it began before; where its frames are not
// known, that is said.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/trace/memory_snapshot.h"

namespace epilogue::trace {

enum class HolderCategory : uint8_t {
  parameters,
  gradients,
  optimizer_state,
  activations,
  inputs,
  workspaces,
  temporary,
  unknown
};
inline constexpr std::string_view kHolderCategoryNames[] = {
    "parameters", "gradients",  "optimizer state", "activations",
    "inputs",     "workspaces", "temporary",       "unknown"};
inline constexpr size_t kHolderCategories = std::size(kHolderCategoryNames);

// Thresholds of the findings; docs/memory.md explains them.
namespace snapshot_thresholds {
inline constexpr double kMib = 1024.0 * 1024.0;
inline constexpr double kSplitShare = 0.10;       // of reserved: free memory within segments in use
inline constexpr double kSplitBytes = 64 * kMib;  // and at least so much
inline constexpr double kActivationShare = 0.40;  // of the peak
inline constexpr double kOptimizerShare = 0.25;   // of the peak
inline constexpr double kGradientShare = 0.05;    // of the peak, from before forward
inline constexpr double kRoundingShare = 0.10;    // of allocated
inline constexpr double kCachedShare = 0.30;      // of reserved: whole segments without use
inline constexpr double kPendingShare = 0.05;     // of active
inline constexpr double kPoolIdleShare = 0.10;    // of reserved: free memory of private pools
inline constexpr double kUnknownShare = 0.20;     // of the peak
inline constexpr double kLeastBytes = 16 * kMib;  // no finding is about less
inline constexpr double kLeakBytes = 1 * kMib;    // growth over all steps
inline constexpr int kLeakSteps = 3;              // in which it grows, behind the first
inline constexpr int kEmptyCacheCalls = 2;
}  // namespace snapshot_thresholds

struct SnapshotHolder {
  std::string label;
  int64_t bytes = 0;
  int64_t allocations = 0;
};
struct SnapshotLeak {
  std::string label;
  int64_t bytes = 0;  // growth from the first boundary to the last
  int64_t steps = 0;  // in which it grew
  double bytes_per_step = 0;
};
struct SnapshotOom {
  int64_t time_us = 0;
  int64_t asked_bytes = 0;
  int64_t device_free_bytes = 0;
  int64_t allocated_bytes = 0;  // then
  int64_t reserved_bytes = 0;   // then
  std::string label;            // who asked
  std::string module;
};
struct SnapshotPool {
  int64_t first = 0;
  int64_t second = 0;
  int64_t segments = 0;
  int64_t reserved_bytes = 0;
  int64_t active_bytes = 0;
};
struct SnapshotStepMemory {
  std::string name;
  int64_t peak_bytes = 0;
  int64_t end_bytes = 0;
};
struct SnapshotPoint {
  int64_t time_us = 0;  // from the first event's; the event's number where times are not recorded
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  std::array<int64_t, kHolderCategories> categories{};
};
struct MemoryFinding {
  std::string id;
  std::string severity;  // "error", "warning", "info"
  std::string title;
  std::vector<std::string> evidence;
  std::string remedy;
  std::optional<int64_t> saving_bytes;
};
// A life of memory: [begin, end) are places in the device's history.
struct SnapshotAllocation {
  static constexpr uint32_t kBefore = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
  uint32_t stack = 0;
  uint32_t begin = kBefore;   // 1 + place of the event; 0: before the history
  uint32_t end = UINT32_MAX;  // UINT32_MAX: alive at the end
  uint32_t label = 0;         // in DeviceMemoryReport::labels
  uint32_t module = 0;
  uint32_t metadata = 0;
  HolderCategory category = HolderCategory::unknown;
};
// A segment's life, as an allocation's.
struct SnapshotSegmentLife {
  uint64_t address = 0;
  int64_t bytes = 0;
  uint32_t begin = 0;
  uint32_t end = UINT32_MAX;
};

struct DeviceMemoryReport {
  int32_t device = 0;

  // At the end, from the segments.
  int64_t segments = 0;
  int64_t reserved_bytes = 0;
  int64_t allocated_bytes = 0;  // blocks in use
  int64_t active_bytes = 0;     // those, and blocks whose free waits for a stream
  int64_t requested_bytes = 0;  // of blocks in use, before rounding
  int64_t pending_bytes = 0;
  int64_t inactive_split_bytes = 0;  // free blocks of segments that are in use
  int64_t releasable_bytes = 0;      // segments without use, which empty_cache() gives back
  int64_t largest_free_bytes = 0;    // block
  int64_t free_blocks = 0;
  std::vector<SnapshotPool> pools;
  // Blocks in use, by their whole stack, the outermost frame first.
  std::vector<SnapshotHolder> at_end_by_stack;

  // From the history.
  int64_t events = 0;
  int64_t first_us = 0;
  int64_t span_us = 0;
  bool has_times = false;
  bool has_frames = false;
  int64_t peak_bytes = 0;
  int64_t peak_us = 0;
  uint32_t peak_at = 0;  // as SnapshotAllocation::begin
  int64_t peak_reserved_bytes = 0;
  int64_t before_bytes = 0;  // allocated before the history, at its beginning
  int64_t alive_at_peak = 0;
  std::vector<SnapshotHolder> by_frame, by_module, by_category, by_metadata,
      by_stack;                 // at the peak, largest first
  int64_t no_frame_bytes = 0;   // of the peak
  int64_t no_module_bytes = 0;  // of the peak
  // Gradients at the peak that forward work came after: of an earlier backward.
  int64_t kept_gradient_bytes = 0;
  std::string steps_by;  // what steps are: "ProfilerStep", "optimizer", "eighths of the history"
  std::vector<SnapshotStepMemory> steps;
  std::vector<SnapshotLeak> leaks;
  std::vector<SnapshotOom> ooms;
  int64_t empty_cache_calls = 0;
  int64_t retaken_bytes = 0;  // given back, and taken again
  int64_t unmatched_frees = 0;
  std::vector<SnapshotPoint> curve;
  std::vector<std::string> labels, modules;
  std::vector<SnapshotAllocation> allocations;
  std::vector<SnapshotSegmentLife> segment_lives;
  std::vector<MemoryFinding> findings;
};

struct MemoryReport {
  std::string path;
  int64_t file_bytes = 0;
  uint64_t frames = 0;
  uint64_t stacks = 0;
  bool expandable = false;  // the setting
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<DeviceMemoryReport> devices;
  std::vector<std::string> notes;
};

MemoryReport memory_report(const MemorySnapshot& snapshot);

// One thing of which there is more or less; bytes.
struct MemoryChange {
  std::string label;
  int64_t before = 0;
  int64_t after = 0;
};
struct DeviceMemoryDiff {
  int32_t device = 0;
  std::vector<MemoryChange> totals;        // peak, reserved, allocated, ...
  std::vector<MemoryChange> by_category;   // at the peak
  std::vector<MemoryChange> by_frame;      // at the peak, the largest change first
  std::vector<MemoryChange> by_frame_end;  // blocks in use at the end, by stack
  // Segments by address and size, as _memory_viz compare.
  int64_t segments_only_before = 0;
  int64_t segments_only_after = 0;
};
std::vector<DeviceMemoryDiff> memory_diff(const MemorySnapshot& before,
                                          const MemoryReport& before_report,
                                          const MemorySnapshot& after,
                                          const MemoryReport& after_report);

// "train.py:61:train", as _memory_viz writes a frame.
std::string frame_label(const MemorySnapshot& snapshot, const SnapshotFrame& frame);

// Fills the findings of a device.
void find_memory_findings(const MemorySnapshot& snapshot, const MemoryReport& report,
                          DeviceMemoryReport& device);

}  // namespace epilogue::trace
