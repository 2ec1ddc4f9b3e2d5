// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Each has the id of what is wrong with the trace.
void find_lost_data(const Explanation& e, std::vector<Finding>& out) {
  for (const HealthItem& item : e.health)
    if (item.severity == Severity::error)
      out.push_back({item.id, Severity::error, item.detail, {}, {}});
}

}  // namespace

constinit const ExplanationRule kLostDataRule = {.id = "", .find = find_lost_data};

}  // namespace epilogue::trace
