// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/host/host_functions.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMostCalled = 8;
constexpr int64_t kManyWithin = 5;  // a caller of a fifth of the ops is named

void find_dispatch(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const int64_t ns = host.of(HostPart::dispatch);
  if (!is_notable(host, ns) || host.op_calls == 0) return;
  // Those that make most of the calls are named.
  for (const Waste& waste : e.method.wastes)
    if (waste.kind == WasteKind::sibling_modules && 2 * waste.op_calls > host.op_calls) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("calling {} takes {}", counted(host.op_calls, "op", "ops"), share(host, ns));
  std::vector<const HostOp*> most;
  most.reserve(host.ops.size());
  for (const HostOp& op : host.ops) most.push_back(&op);
  std::stable_sort(most.begin(), most.end(),
                   [](const HostOp* a, const HostOp* b) { return a->count > b->count; });
  for (size_t i = 0; i < std::min(kHostFindings, most.size()); ++i)
    f.evidence.push_back(most[i]->name + ": " + calls_text(most[i]->count, most[i]->self_ns));
  if (const std::string place = e.method.calls_place.text(); !place.empty())
    f.evidence.push_back("most of them" + place);
  for (const auto& [caller, count] : e.method.callers)
    if (count * kManyWithin >= host.op_calls)
      f.evidence.push_back(fmt::format("{}: {} within it", caller, counted(count, "op", "ops")));
  // A library that makes calls of its own: printing, saving.
  std::string_view remedy;
  for (size_t i = 0; i < std::min(kHostFindings, host.functions.size()) && remedy.empty(); ++i) {
    remedy = remedy_of_function(host.functions[i].name);
    if (!remedy.empty())
      f.evidence.push_back(fmt::format("between them: {}", host.functions[i].name));
  }
  const bool reads_numbers = std::any_of(
      most.begin(), most.begin() + static_cast<ptrdiff_t>(std::min(kMostCalled, most.size())),
      [](const HostOp* op) { return op->name == "aten::item"; });
  if (!remedy.empty())
    advise(f, "leave the calls of that function out of the step: " + std::string(remedy));
  else if (e.method.calls_place.annotation.starts_with("Optimizer."))
    advise(f,
           "the optimizer makes most of the calls: foreach=True, or fused=True, takes all tensors "
           "of a parameter group in one call; make one group for each setting (with and without "
           "weight decay), not one for each parameter");
  else
    advise(
        f,
        reads_numbers
            ? "aten::item reads one number at a time: .tolist() reads all of a tensor, and sums "
              "and comparisons of whole tensors need no loop"
            : "fewer, larger ops help: if elements, rows or samples are gone through one by one, "
              "one op on the whole tensor (batches instead of loops over elements); if modules "
              "run side by side, one larger layer (or bmm, vmap); if a step has many small "
              "batches, one; if one function makes most of the calls, torch.compile it; "
              "recording is left out");
  f.saving_us = to_us(ns);
  f.claims.push_back({{std::string(kCallingOpsPart)}, to_us(ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kDispatchRule = {
    .id = "dispatch",
    .says = "how long a run without a device spends on calling ops",
    .said_if = [] { return "it is " + share_of_wall(); },
    .find = find_dispatch,
    .is_general = true};

}  // namespace epilogue::trace
