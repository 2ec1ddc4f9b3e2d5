// SPDX-License-Identifier: Apache-2.0
// Which rank of a distributed run a trace is of.
#pragma once

#include <cstdint>
#include <optional>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct RankInfo {
  std::optional<int64_t> rank;  // as distributedInfo says, else the number in a file name "rank7"
  std::optional<int64_t> world_size;  // as distributedInfo says
};
RankInfo rank_info(const Trace& trace);

}  // namespace epilogue::trace
