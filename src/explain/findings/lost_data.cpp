// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Each has the id of what is wrong with the trace.
void find_lost_data(const Explanation& e, std::vector<Finding>& out) {
  for (const HealthItem& item : e.health) {
    if (item.severity != Severity::error) continue;
    Finding f{item.id, Severity::error, item.detail, {}, {}};
    advise(
        f,
        item.id == "truncated"
            ? "record again, and leave the profiler's block (or call stop()) before the process "
              "ends"
            : "record again with fewer steps (schedule), while no other profiler uses the device");
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kLostDataRule = {.id = "", .find = find_lost_data};

}  // namespace epilogue::trace
