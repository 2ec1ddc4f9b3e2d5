// SPDX-License-Identifier: Apache-2.0
// Calls of a run without a device that lose time for a reason of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epilogue/trace/host.h"

namespace epilogue::trace {

// Of an op; empty if its shapes do not tell.
struct OpBytes {
  int64_t moved = 0;  // read and written
  int64_t written = 0;
};
std::optional<OpBytes> bytes_of_op(const Trace& trace, const Event& op);

// Of the given ops of one thread; `self_ns` is by event.
HostLosses host_losses(const Trace& trace, const Links& links, const std::vector<uint32_t>& ops,
                       const std::vector<int64_t>& self_ns);

}  // namespace epilogue::trace
