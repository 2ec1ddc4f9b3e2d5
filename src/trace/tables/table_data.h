// SPDX-License-Identifier: Apache-2.0
// A trace, and beside it what the columns of its tables are made of.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

using Rows = std::vector<uint32_t>;  // positions in Trace::events, or in Trace::memory

enum class TableKind : uint8_t { ops, kernels, launches, steps, memory, ranges, frames, links };
inline constexpr std::array<std::string_view, 8> kTableNames = {
    "ops", "kernels", "launches", "steps", "memory", "ranges", "frames", "links"};

inline constexpr std::string_view kModuleFrame = "nn.Module: ";

struct TableData {
  explicit TableData(Trace from);

  Trace trace;
  Links links;
  std::array<Rows, kTableNames.size()> rows;
  // Indexed as the events are. An op's self time leaves out called ops; its device time and kernels
  // include theirs.
  std::vector<int64_t> self_ns;
  std::vector<int64_t> device_ns;
  std::vector<uint32_t> kernels;
  // The Python frame and the nn.Module's frame around ops and calls. Empty without frames.
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

}  // namespace epilogue::trace
