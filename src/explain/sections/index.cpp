// SPDX-License-Identifier: Apache-2.0
// All sections. JSON has an order of its own: scripts compare answers byte by byte.
#include "explain/sections/section.h"

namespace epilogue::trace {

// Each is defined in the file of its topic.
extern const Section kHead, kHealth, kFindings, kWall, kSteps, kCriticalPath, kIdle, kHost,
    kHostProducts, kHostFunctions, kGemms, kRooflines, kFused, kFusions, kChains, kLaunches,
    kQueues, kWaits, kCopies, kCollectives, kDeviceRanges, kCompile, kMemory, kModules, kOccupancy,
    kCosts, kServing, kGraphs;

std::span<const Section* const> shown_sections() {
  static constexpr const Section* kShown[] = {
      &kHead,          &kHealth, &kFindings,     &kCosts,    &kWall,        &kSteps,
      &kServing,       &kGraphs, &kCriticalPath, &kIdle,     &kHost,        &kHostProducts,
      &kHostFunctions, &kGemms,  &kRooflines,    &kFused,    &kFusions,     &kChains,
      &kLaunches,      &kQueues, &kWaits,        &kCopies,   &kCollectives, &kDeviceRanges,
      &kCompile,       &kMemory, &kModules,      &kOccupancy};
  return kShown;
}

std::span<const Section* const> json_sections() {
  static constexpr const Section* kJson[] = {
      &kHead,        &kSteps,        &kHost,  &kIdle,      &kCriticalPath, &kLaunches,
      &kQueues,      &kDeviceRanges, &kGemms, &kRooflines, &kFusions,      &kFindings,
      &kHealth,      &kChains,       &kWaits, &kCompile,   &kOccupancy,    &kMemory,
      &kCollectives, &kModules,      &kCosts, &kServing,   &kGraphs};
  return kJson;
}

}  // namespace epilogue::trace
