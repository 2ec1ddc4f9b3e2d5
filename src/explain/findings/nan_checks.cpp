// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kOpsOfCheck = 4;
constexpr double kCheckShare = 0.01;  // the tracebacks of the forward pass take more
constexpr std::string_view kAnyTrue = "aten::_is_any_true";

// Autograd's anomaly mode looks at each gradient, with what these call.
struct NanChecks : OpVisitor {
  void visit(const VisitedOp& op) override {
    if (op.name == "aten::isnan" || op.name == kAnyTrue) found.add(op.name, op.event.dur_ns);
  }

  OpLosses found;
};

void find_nan_checks(const Explanation& e, const NanChecks& checks, std::vector<Finding>& out) {
  int64_t calls = 0;
  for (const OpLoss& check : checks.found.by_time()) calls += check.count;
  // Each calls about four more ops; calling them takes time, too.
  const int64_t ns = checks.found.total_ns() + calls * kOpsOfCheck * kDispatchNsPerOp;
  // isnan alone may be the program's own.
  if (!checks.found.contains(kAnyTrue) || to_us(ns) < kCheckShare * wall_us(e)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("looking for NaN in gradients takes {}", share(*e.host, ns));
  for (const OpLoss& check : checks.found.by_time())
    f.evidence.push_back(fmt::format("{}: {}, {}", check.name,
                                     counted(check.count, "call", "calls"), duration(check.ns)));
  f.evidence.emplace_back(
      "each forward op keeps a traceback of Python besides, which is not counted here");
  advise(f,
         "anomaly mode checks each gradient: switch it on to find a NaN, not for whole runs "
         "(torch.autograd.set_detect_anomaly)");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kNanChecksRule = {
    .id = "nan-checks",
    .says = "what autograd's anomaly mode takes of a run without a device",
    .said_if =
        [] {
          return "`aten::isnan` and `aten::_is_any_true` take " + percent_text(kCheckShare) +
                 " of the wall time or more, with what they call and with calling it; saves that";
        },
    .visits = visits_of<NanChecks, find_nan_checks>()};

}  // namespace epilogue::trace
