// SPDX-License-Identifier: Apache-2.0
// The chain of host work, launches, kernels and waits that decides how long a run takes, and what
// it would take if parts of that chain were faster.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

enum class PathKind : uint8_t {
  kernel,            // kernels and fills
  copy,              // copies
  host_op,           // host: in an op, by the outermost one
  launch_call,       // host: in a call that starts work
  sync_call,         // host: what a call that waits takes after the work has ended
  host_between_ops,  // host: Python, mostly
  launch_latency,    // from a launch call to its work on an idle stream
  device_gap,        // between two pieces of work that were both launched
  before,            // before the first event that the chain can be followed to
};
inline constexpr int kPathKinds = static_cast<int>(PathKind::before) + 1;
std::string_view path_kind_name(PathKind kind);  // "kernel", "host_op"

// All pieces of the path with one name.
struct PathGroup {
  PathKind kind = PathKind::kernel;
  std::string name;      // of kernel, copy, call or outermost op; "" for the other kinds
  int64_t count = 0;     // pieces on the path
  int64_t path_ns = 0;   // on the path
  int64_t total_ns = 0;  // on the path or not; of latency and gaps: as far as they must be
  // How long the whole would take if all of these, on the path or not, took half their time, or
  // none: the longest path is sought anew each time. Set for the largest groups that somebody can
  // make faster.
  std::optional<int64_t> if_half_ns;
  std::optional<int64_t> if_none_ns;
};

// A piece of the path, neighbours of one group as one.
struct PathPiece {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t group = 0;  // position in CriticalPath::groups
};

struct CriticalPath {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::array<int64_t, kPathKinds> kind_ns = {};  // add up to the span
  std::vector<PathGroup> groups;                 // by path_ns, the largest first
  std::vector<PathPiece> pieces;                 // by time, without gaps
  int64_t stream_waits = 0;                      // waits of a stream for another that the graph has
  int64_t inferred_waits = 0;                    // of these: inferred from calls and times

  int64_t span_ns() const { return end_ns - start_ns; }
  int64_t of(PathKind kind) const { return kind_ns[static_cast<size_t>(kind)]; }
};

// How many groups have PathGroup::if_half_ns at most.
inline constexpr size_t kWhatIfGroups = 8;

// Over the threads that start device work and the devices. Empty without device work, and for a
// device that runs its work inside of the launch call (our CPU device).
std::optional<CriticalPath> critical_path(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
