// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr size_t kOpsShown = 4;

// Between ops, while collectives ran.
double collectives_pct(const HostTime& host) {
  if (!host.collectives || host.wall_ns <= 0) return 0;
  return 100.0 * static_cast<double>(host.collectives->alone_ns) /
         static_cast<double>(host.wall_ns);
}

// "compute-bound on the CPU: products take 62 %..." with the ops that take most.
void find_host_verdict(const HostTime& host, std::vector<Finding>& out) {
  const double compute = host.pct(HostPart::compute);
  const double memory = host.pct(HostPart::memory);
  const double overhead = host.pct(HostPart::dispatch) + host.pct(HostPart::between_ops);
  const double alone = collectives_pct(host);
  Finding f;
  f.title = std::string(bound_name(host.bound)) + " on the CPU: ";
  switch (host.bound) {
    case Bound::compute:
      f.title += fmt::format("ops that compute take {:.0f} % of the time", compute);
      break;
    case Bound::memory:
      f.title += fmt::format("ops that move bytes take {:.0f} % of the time", memory);
      break;
    case Bound::data:
      f.title +=
          fmt::format("the data loader takes {:.0f} % of the time", host.pct(HostPart::data));
      break;
    default:
      f.title += alone > 0 && 2 * alone >= overhead
                     ? fmt::format("waiting for collectives takes {:.0f} % of the time", alone)
                     : fmt::format("calling ops and Python between them take {:.0f} % of the time",
                                   overhead);
  }
  f.evidence.push_back(fmt::format(
      "Of {}: ops that compute {:.1f} %, ops that move bytes {:.1f} %, calling ops {:.1f} "
      "%, data loader {:.1f} %, between ops {:.1f} %, the profiler {:.1f} % (estimated).",
      duration(host.wall_ns), compute, memory, host.pct(HostPart::dispatch),
      host.pct(HostPart::data), host.pct(HostPart::between_ops), host.pct(HostPart::profiler)));
  if (alone > 0)
    f.evidence.push_back(
        fmt::format("Between ops, collectives ran for {:.1f} % of the time.", alone));
  for (size_t i = 0; i < std::min(kOpsShown, host.ops.size()); ++i) {
    const HostOp& op = host.ops[i];
    f.evidence.push_back(fmt::format("{}: {} ({:.1f} %), {}", op.name, duration(op.self_ns),
                                     100.0 * static_cast<double>(op.self_ns) /
                                         static_cast<double>(std::max<int64_t>(1, host.wall_ns)),
                                     calls_text(op.count, op.self_ns)));
  }
  out.push_back(std::move(f));
}

void find_verdict(const Explanation& e, std::vector<Finding>& out) {
  if (e.host) return find_host_verdict(*e.host, out);
  Finding f;
  const Verdict& whole = e.verdicts.whole;
  f.title = bound_name(whole.bound);
  const double alone = whole.pct(TimePart::communication);
  if (whole.bound == Bound::sync && alone > whole.pct(TimePart::sync)) {
    f.title +=
        fmt::format(": collectives that no other kernel hides take {:.0f} % of the time", alone);
  } else if (const std::optional<double> busy = e.timeline.busy_pct()) {
    f.title += fmt::format(": the device works {:.0f} % of the time", *busy);
    if (whole.judged_pct && (*busy >= kDeviceBoundPct) != (*whole.judged_pct >= kDeviceBoundPct))
      f.title += fmt::format(", {:.1f} % as judged", *whole.judged_pct);
  }
  if (whole.bound == Bound::unknown) f.title += ", and the trace does not show why it idles";
  f.evidence = e.verdicts.whole.evidence;
  f.where = whole.bound == Bound::compute || whole.bound == Bound::memory ? FindingPlace::device
                                                                          : FindingPlace::host;
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kVerdictRule = {
    .id = "verdict",
    .says = "what limits the run, and what the device did",
    .said_if = [] { return std::string("always"); },
    .find = find_verdict};

}  // namespace epilogue::trace
