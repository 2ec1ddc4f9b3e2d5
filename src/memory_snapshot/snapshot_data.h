// SPDX-License-Identifier: Apache-2.0
// The large tables of a snapshot.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/memory_snapshot.h"
#include "memory_snapshot/chunked.h"
#include "memory_snapshot/pickle.h"

namespace epilogue::trace {

struct SnapshotData {
  PickleTexts texts;
  Chunked<SnapshotEvent> events;
  Chunked<SnapshotFrame> frames;
  // The frames of stack i are [stack_begin[i], stack_begin[i + 1]) of stack_frames. Each stack is
  // there once.
  std::vector<uint32_t> stack_frames;
  std::vector<uint32_t> stack_begin = {0, 0};

  std::span<const uint32_t> stack(uint32_t id) const {
    return std::span(stack_frames).subspan(stack_begin[id], stack_begin[id + 1] - stack_begin[id]);
  }
};

}  // namespace epilogue::trace
