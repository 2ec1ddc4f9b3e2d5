// SPDX-License-Identifier: Apache-2.0
// Calls of one op with the same arguments that take far longer than others: not their number or
// sizes are the reason, but what they read, or what interrupted them.
#include <set>

#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

// So many times the fastest call is no noise,
constexpr int64_t kUneven = 8;
// if the fastest takes so long; and a slow one takes as long as this, so that few are kept.
constexpr int64_t kLeastFastNs = 20'000;
constexpr int64_t kLeastSlowNs = 1'000'000;
constexpr int64_t kLeastSlowCalls = 2;
// Of several steps the same calls are slow in this share of them.
constexpr double kSameCalls = 0.75;

struct UnevenCalls : OpVisitor {
  struct LongCall {
    int64_t ns = 0;
    int64_t position = 0;  // among the calls of its step
  };
  struct Calls {
    int64_t count = 0;
    int64_t fastest_ns = INT64_MAX;
    std::vector<LongCall> long_calls;  // of kLeastSlowNs or more
    uint32_t step = kNone;             // of the last call
    int64_t steps = 0;
    int64_t in_step = 0;  // calls so far
    std::span<const OpInput> inputs;
    bool computes = false;
  };

  void visit(const VisitedOp& op) override {
    if (op.inputs.empty() || op.kind == OpClass::view || !op.works_itself()) return;
    // A collective takes as long as the last rank lets it: stragglers say so.
    if (op.name.starts_with("c10d::") || op.name.starts_with("_c10d_functional::")) return;
    Calls& calls = by_call[{op.name, op.trace.op_args(op.event)->inputs}];
    if (calls.count == 0) {
      calls.inputs = op.inputs;
      calls.computes = computes_on_host(op.name) || op.kind == OpClass::gemm;
    }
    if (const uint32_t step = op.links.step[op.index]; step != calls.step || calls.count == 0) {
      calls.step = step;
      calls.in_step = 0;
      ++calls.steps;
    }
    ++calls.count;
    calls.fastest_ns = std::min(calls.fastest_ns, op.self_ns);
    if (op.self_ns >= kLeastSlowNs) calls.long_calls.push_back({op.self_ns, calls.in_step});
    ++calls.in_step;
  }

  std::map<std::pair<std::string_view, uint32_t>, Calls> by_call;
};

struct Uneven {
  std::string_view name;
  const UnevenCalls::Calls* calls = nullptr;
  int64_t slow = 0;
  int64_t slow_ns = 0;

  int64_t excess_ns() const { return slow_ns - slow * calls->fastest_ns; }
};

std::optional<Uneven> uneven(std::string_view name, const UnevenCalls::Calls& calls) {
  if (calls.count < 2 || calls.fastest_ns < kLeastFastNs) return std::nullopt;
  Uneven found{name, &calls};
  std::set<int64_t> positions;
  for (const UnevenCalls::LongCall& call : calls.long_calls) {
    if (call.ns < kUneven * calls.fastest_ns) continue;
    ++found.slow;
    found.slow_ns += call.ns;
    positions.insert(call.position);
  }
  // One call alone may be the first, or meet other work on the machine.
  if (found.slow < kLeastSlowCalls) return std::nullopt;
  // Where the program is the reason, the slow calls are the same ones of each step: the scheduler
  // and other work on the machine choose others.
  if (calls.steps > 1 && static_cast<double>(found.slow) <
                             kSameCalls * static_cast<double>(std::ssize(positions) * calls.steps))
    return std::nullopt;
  return found;
}

// "512 x 512, 512 x 512"
std::string call_sizes(std::span<const OpInput> inputs) {
  std::string text;
  for (const TensorShape& t : tensor_inputs(inputs)) {
    if (t.dims.empty()) continue;
    if (!text.empty()) text += ", ";
    for (size_t i = 0; i < t.dims.size(); ++i)
      text += fmt::format("{}{}", i ? " x " : "", t.dims[i]);
  }
  return text;
}

bool reads_floats(std::span<const OpInput> inputs) {
  return std::ranges::any_of(tensor_inputs(inputs), [](const TensorShape& t) {
    return t.type == "float" || t.type == "double";
  });
}

void find_uneven_calls(const Explanation& e, const UnevenCalls& visited,
                       std::vector<Finding>& out) {
  const HostTime& host = *e.host;
  std::optional<Uneven> worst;
  for (const auto& [key, calls] : visited.by_call) {
    const std::optional<Uneven> found = uneven(key.first, calls);
    if (found && (!worst || found->excess_ns() > worst->excess_ns())) worst = found;
  }
  if (!worst || !is_notable(host, worst->excess_ns())) return;
  const UnevenCalls::Calls& calls = *worst->calls;
  const int64_t mean_ns = worst->slow_ns / worst->slow;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "{} of {} calls of {} with the same sizes take {} times as long as the fastest: {}",
      worst->slow, calls.count, worst->name, mean_ns / calls.fastest_ns,
      share(host, worst->slow_ns));
  f.evidence.push_back(fmt::format("{}: the fastest takes {}, these {} each",
                                   call_sizes(calls.inputs), duration(calls.fastest_ns),
                                   duration(mean_ns)));
  f.confidence = Confidence::low;
  if (calls.computes && reads_floats(calls.inputs)) {
    f.evidence.emplace_back(
        "numbers below 1e-38 (denormal ones: decayed states, gradients that vanish) make a CPU's "
        "arithmetic so much slower; the trace does not show values");
    advise(f,
           "torch.set_flush_denormal(True), once in each process, takes such numbers for 0; if the "
           "calls stay slow, look at what else ran then");
    f.confidence = Confidence::medium;
  } else {
    f.evidence.emplace_back("the trace does not show why: values, new memory, or another process");
    advise(f,
           "call it alone with the same arguments: if that is as slow, the values are the reason; "
           "if not, look for what else ran then (threads, other processes)");
  }
  claim_op(f, worst->name, worst->slow_ns);
  f.cost_us = to_us(worst->slow_ns);
  f.saving_us = to_us(worst->excess_ns());
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kUnevenCallsRule = {
    .id = "uneven-calls",
    .says =
        "that calls of one op of a run without a device take far longer than others with the same "
        "sizes, and that denormal numbers may be the cause",
    .said_if =
        [] {
          return fmt::format(
              "{} calls or more of {} or more each, in several steps the same ones of each, take "
              "{} "
              "times as long as the fastest, which takes {} or more; what they take longer is {}; "
              "collectives, which wait for ranks, do not count",
              kLeastSlowCalls, duration(kLeastSlowNs), kUneven, duration(kLeastFastNs),
              share_of_wall());
        },
    .visits = visits_of<UnevenCalls, find_uneven_calls>()};

}  // namespace epilogue::trace
