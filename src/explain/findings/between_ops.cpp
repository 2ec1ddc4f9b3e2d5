// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/host/host_functions.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {
namespace {

// A function that also computes cannot leave the step: its Python can.
constexpr std::string_view kVectorise =
    "if it goes through elements in Python, one call on tensors of the whole batch does the same "
    "(vectorised: torch.randint, masks, index ops, torch.unique, searchsorted); if what it makes "
    "depends on the data alone, a loader's worker can make it; if it is the same in every step, "
    "make it once before; if it calls many small ops, torch.compile it";

constexpr double kRangeShare = 0.01;  // of the wall time: shorter ranges are not named

// Python that waits for other ranks.
int64_t waits_for_ranks(const HostTime& host) {
  int64_t ns = 0;
  for (const HostFunction& function : host.functions)
    if (is_of_distributed(function.name)) ns += function.self_ns;
  return ns;
}

void find_between_ops(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  // Compilation and collectives are findings of their own.
  const int64_t other_ns =
      e.compile.compile_ns +
      (host.collectives ? std::max(host.collectives->alone_ns, waits_for_ranks(host)) : 0);
  const int64_t ns = std::max<int64_t>(0, host.of(HostPart::between_ops) - other_ns);
  if (!is_notable(host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  // A range that the program named is what its author knows best.
  const HostRange* range = nullptr;
  if (!host.ranges.empty() && 2 * host.ranges.front().self_ns >= ns) range = &host.ranges.front();
  f.title = fmt::format("{} pass between ops{}: Python, or code that is not traced",
                        share(host, ns), range != nullptr ? ", most of it in " + range->name : "");
  for (size_t i = 0; i < std::min(kHostFindings, host.ranges.size()); ++i)
    if (is_share_of(host, host.ranges[i].self_ns, kRangeShare))
      f.evidence.push_back(fmt::format("range {}: {}, {}", host.ranges[i].name,
                                       counted(host.ranges[i].count, "time", "times"),
                                       duration(host.ranges[i].self_ns)));
  for (size_t i = 0; i < std::min(kHostFindings, host.functions.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", host.functions[i].name,
                                     counted(host.functions[i].count, "call", "calls"),
                                     duration(host.functions[i].self_ns)));
  if (range != nullptr) {
    f.action = fmt::format(
        "take {} out of the step (a loader's worker, another thread, once before), "
        "or make it cheaper",
        range->name);
  } else if (host.functions.empty()) {
    advise(f, "with_stack=True names the functions");
  } else {
    // The longest may say little by itself; a library among the next ones says what it is about.
    std::string_view remedy;
    for (size_t i = 0; i < std::min(kHostFindings, host.functions.size()) && remedy.empty(); ++i)
      remedy = remedy_of_function(host.functions[i].name);
    // The call of the backward pass holds what autograd's engine does between its nodes.
    const auto own = std::find_if(
        host.functions.begin(), host.functions.end(), [](const HostFunction& function) {
          return function.name.find("_engine_run_backward") == std::string::npos &&
                 !is_of_distributed(function.name) && !function.name.starts_with("<built-in");
        });
    if (remedy.empty() && own != host.functions.end() &&
        own->name.find("torch/optim/") != std::string::npos)
      f.action =
          "make the optimizer's Python cheaper: one parameter group for each setting (with and "
          "without weight decay), not one for each parameter; fused=True; gradients that are None "
          "for what is not trained (zero_grad(set_to_none=True)); torch.compile of its step";
    else if (remedy.empty() && own != host.functions.begin() &&
             host.functions.front().name.find("_engine_run_backward") != std::string::npos)
      f.action =
          "fewer and larger nodes of the backward pass: batches in place of loops, one table or "
          "layer in place of many small ones, torch.compile";
    else {
      const std::string& name =
          own != host.functions.end() ? own->name : host.functions.front().name;
      f.action = remedy.empty()
                     ? fmt::format("make the Python of {} cheaper: {}", name, kVectorise)
                     : fmt::format("take {} out of the step (a loader's worker, once before): {}",
                                   name, remedy);
    }
  }
  f.saving_us = to_us(ns);
  f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kBetweenOpsRule = {
    .id = "between-ops",
    .says =
        "how long a run without a device spends between ops, collectives and compilation left out, "
        "and in which of the program's ranges (record_function) and Python functions",
    .said_if = [] { return "it is " + share_of_wall(); },
    .find = find_between_ops,
    .confidence = Confidence::high,
    .is_general = true};

}  // namespace epilogue::trace
