// SPDX-License-Identifier: Apache-2.0
// The sections of a memory snapshot's answer: as those of a trace's (section.h), but of a
// MemoryReport.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "explain/sections/section.h"
#include "memory_snapshot/memory_report.h"

namespace epilogue::trace {

// What the command was asked for.
struct SnapshotAnswer {
  MemoryReport report;
  std::string before_path;              // "": no comparison
  std::vector<DeviceMemoryDiff> diffs;  // empty: no comparison
};

struct SnapshotSection {
  std::string_view id;
  std::string_view title;
  // Adds the keys of one device to its object; null: it has none.
  void (*add_json)(const SnapshotAnswer& answer, size_t device, Json& json) = nullptr;
  void (*show)(const SnapshotAnswer& answer, size_t device, SectionSink& sink) = nullptr;
};

// In the order of text and page.
std::span<const SnapshotSection* const> snapshot_sections();

// {"schema_version" is the caller's; "path", "file_bytes", ..., "devices": [...]}.
Json snapshot_json(const SnapshotAnswer& answer);

}  // namespace epilogue::trace
