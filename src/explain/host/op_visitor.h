// SPDX-License-Identifier: Apache-2.0
// One pass over the ops of a run without a device, for all who visit them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "epilogue/trace/host.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {

struct OpBytes {
  int64_t moved = 0;  // read and written
  int64_t written = 0;
};

// An op of the main thread, with what several visitors ask. Valid during the visit; its name as
// long as the trace.
class VisitedOp {
 public:
  VisitedOp(const Trace& of, const Links& its_links, uint32_t at, int64_t own_ns);

  const Trace& trace;
  const Links& links;
  const uint32_t index;  // of its event
  const Event& event;
  const std::string_view name;
  const OpClass kind;
  const int64_t self_ns;                  // without the ops that it calls
  const std::span<const OpInput> inputs;  // empty if they were not recorded

  std::string_view name_of(uint32_t op) const { return trace.name(trace.events[op]); }
  uint32_t parent_of(uint32_t op) const { return links.parent[op]; }

  // Empty if its shapes do not say. Computed once for all visitors.
  const std::optional<OpBytes>& bytes() const;
  // Simple: moves more than it computes.
  bool is_simple() const { return is_elementwise(kind) && !is_transcendental(name); }
  // False for ops such as a zero_ that calls fill_: the called op has the time.
  bool works_itself() const { return 2 * self_ns >= event.dur_ns; }

 private:
  mutable std::optional<std::optional<OpBytes>> bytes_;
};

class OpVisitor {
 public:
  virtual ~OpVisitor() = default;
  // Called by start, for ops that take time.
  virtual void visit(const VisitedOp& op) = 0;
};

// As host_time(), and shows each visitor the ops that count. `cpu`, if it is known, tells the
// caches.
std::optional<HostTime> host_time(const Trace& trace, const Links& links,
                                  std::span<OpVisitor* const> visitors,
                                  const CpuPeaks* cpu = nullptr);

}  // namespace epilogue::trace
