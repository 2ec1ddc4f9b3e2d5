// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: any bytes are a snapshot or a failure of one line, and a snapshot's numbers
// refer to what is there.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "epilogue/trace/memory_snapshot.h"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace epilogue::trace;
  const auto read = read_memory_snapshot_bytes({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!read) {
    require(!read.failure().message.empty() &&
            read.failure().message.find('\n') == std::string::npos);
    return 0;
  }
  const MemorySnapshot& s = read.value();
  for (uint32_t i = 0; i < s.event_count(); ++i) {
    const SnapshotEvent& e = s.event(i);
    require(e.stack < s.stack_count() && e.stream < s.streams.size() && e.pool < s.pools.size() &&
            e.category < s.categories.size());
    s.text(e.metadata);
    for (const uint32_t frame : s.stack(e.stack)) require(frame < s.frame_count());
  }
  for (const SnapshotTrace& trace : s.traces)
    for (const auto& [first, count] : trace.ranges)
      require(uint64_t{first} + count <= s.event_count());
  for (const SnapshotSegment& segment : s.segments)
    require(uint64_t{segment.first_block} + segment.blocks <= s.blocks.size() &&
            segment.stack < s.stack_count());
  return 0;
}
