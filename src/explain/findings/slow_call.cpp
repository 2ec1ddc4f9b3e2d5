// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kSlowCallShare = 0.05;

bool is_wait_or_launch(const CallStats& call) {
  return call.starts_work || is_sync_call_name(call.name);
}

void find_slow_calls(const Explanation& e, std::vector<Finding>& out) {
  for (const CallStats& call : e.launches.calls) {
    if (is_wait_or_launch(call) || to_us(call.time.total_ns) < kSlowCallShare * wall_us(e))
      continue;
    Finding f;
    f.severity = Severity::warning;
    f.title =
        fmt::format("{} takes {} of the host's time", call.name, duration(call.time.total_ns));
    f.evidence.push_back(fmt::format("{}, the longest {}",
                                     counted(call.time.count, "call", "calls"),
                                     duration(call.time.max_ns)));
    const std::string_view advice = slow_call_advice(call.name);
    advise(f, advice.empty()
                  ? "if it occurs in every step, its stack (with_stack) says where it comes from"
                  : advice);
    if (e.verdicts.whole.judged_pct.value_or(100) < kDeviceBoundPct) {
      f.cost_us = to_us(call.time.total_ns);
      claim_idle(e, f, {IdleCause::host_in_ops}, *f.cost_us);
    }
    out.push_back(std::move(f));
  }
}

}  // namespace

std::string_view slow_call_advice(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("HostAlloc") || has("HostRegister") || has("MallocHost"))
    return "pinned memory is allocated: allocate it once and use it again";
  if (has("Free") || has("Malloc"))
    return "the allocator asks the driver for memory or gives it back: the first steps warm its "
           "cache; if it occurs again, memory is nearly full "
           "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, smaller batches)";
  if (has("Module") || has("FuncGetAttributes") || has("Library"))
    return "code is loaded to the device: calls before the recording (a warm-up) take it out";
  return "";
}

constinit const ExplanationRule kSlowCallRule = {
    .id = "slow-call",
    .says =
        "which runtime calls that start no work take the host's time (`cudaFree`, `cudaMalloc`, "
        "loading code)",
    .said_if = [] { return "they take " + share_of_span(kSlowCallShare); },
    .find = find_slow_calls,
    .where = FindingPlace::host,
    .is_general = true};

}  // namespace epilogue::trace
