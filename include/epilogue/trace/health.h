// SPDX-License-Identifier: Apache-2.0
// What is missing or odd in a trace: to be read before any number of it is believed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

enum class Severity : uint8_t {
  kInfo,     // worth knowing
  kWarning,  // some numbers are off or missing
  kError,    // what one would look for is not there
};
std::string_view severity_name(Severity severity);  // "info"

struct HealthItem {
  std::string id;  // stable, for scripts: "kernels-without-launch"
  Severity severity = Severity::kInfo;
  int64_t count = 0;   // events concerned; 0 where it is not about events
  std::string detail;  // one or two sentences
};

// The gravest first. The last item is always "era": which profiler wrote the trace.
std::vector<HealthItem> health(const Trace& trace, const Links& links);

// TensorBoard's plug-in calls a "Record Window End" later than this a fault of the profiler.
inline constexpr int64_t kFarWindowEndNs = 24LL * 3600 * 1'000'000'000;

}  // namespace epilogue::trace
