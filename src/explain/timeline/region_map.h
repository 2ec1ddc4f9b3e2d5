// SPDX-License-Identifier: Apache-2.0
// Which region each event belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/time.h"

namespace epilogue::trace {

struct RegionMap {
  std::vector<Region> regions;
  // By event: of ops, launch calls and device work the position in `regions`, else kNone.
  std::vector<uint32_t> of_event;
};

// Steps, annotations or the window, with all their sums.
RegionMap map_regions(const Trace& trace, const Links& links);
// RegionMap::of_event alone.
std::vector<uint32_t> region_of_events(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
