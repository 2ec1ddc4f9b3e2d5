// SPDX-License-Identifier: Apache-2.0
// The contents of a trace of Perfetto, without its counters: tracks, slices, stages of a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue::trace {

// Texts by number: of one sequence of packets, from one clearing of its state to the next.
struct InternedTexts {
  using Table = std::unordered_map<uint64_t, std::string_view>;
  Table names, categories, annotation_names, annotation_texts, stages, kernels, compute_args;
};

struct PerfettoTrack {
  std::string_view name;
  uint64_t parent = 0;
  std::optional<int64_t> pid;
  std::optional<int64_t> tid;  // empty: a process, or a track of neither
};

// Begins on a track and ends there, or is a stage of a GPU, which has no track.
struct PerfettoSlice {
  int64_t ts_ns = 0;
  int64_t dur_ns = -1;  // -1: it has no end
  uint64_t track = 0;
  uint32_t texts = 0;  // in PerfettoTrace::texts
  bool is_stage = false;
  std::string_view message;  // of the TrackEvent or GpuRenderStageEvent
};

// Views into the bytes that were parsed.
struct PerfettoTrace {
  int64_t base_ns = 0;  // of the wall clock, which the first snapshot of clocks says; else 0
  std::unordered_map<uint64_t, PerfettoTrack> tracks;
  std::vector<InternedTexts> texts;
  std::vector<PerfettoSlice> slices;  // in the order of their beginnings in the file
};

// `name` stands for the path in the failure's message.
Result<PerfettoTrace> parse_perfetto(std::string_view bytes, const std::string& name);

}  // namespace epilogue::trace
