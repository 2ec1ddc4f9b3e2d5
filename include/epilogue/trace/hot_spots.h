// SPDX-License-Identifier: Apache-2.0
// Where the host waits for the device or for data, and what is copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/trace/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// Calls in which the host waits, by name and place.
struct SyncSpot {
  std::string call;   // "cudaStreamSynchronize"; "cudaMemcpyAsync" where it returned after the copy
  std::string where;  // the outermost op around it, else the innermost annotation, else ""
  bool is_implied = false;  // inside an op (.item(), nonzero, to): nobody asked for it by name
  Distribution time;        // inside the call
};

// Copies and fills of the device, by name and place.
struct CopySpot {
  std::string name;              // "Memcpy HtoD (Pageable -> Device)"
  std::string where;             // as above
  bool is_pageable = false;      // from or to memory that is not pinned: slower, and it blocks
  Distribution time;             // on the device
  std::optional<int64_t> bytes;  // in all; empty where the trace does not say
  std::optional<double> bandwidth_gb_s;  // of these bytes over their time
};

// A data loader's annotations of one name, whether or not the device waited for them.
struct LoaderSpot {
  std::string name;  // "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
  Distribution time;
};

struct HotSpots {
  std::vector<SyncSpot> syncs;      // by total time
  std::vector<CopySpot> copies;     // by total time
  std::vector<LoaderSpot> loaders;  // by total time
};

HotSpots hot_spots(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
