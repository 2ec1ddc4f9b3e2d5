// SPDX-License-Identifier: Apache-2.0
// Is it needed? Ops of the forward pass run again within the backward pass.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kRecomputedShare = 0.05;

void find_recomputed_forward(const Explanation& e, std::vector<Finding>& out) {
  for (const RepeatedWork& work : e.method.repeats) {
    if (work.kind != RepeatedWork::Kind::recomputed_forward) continue;
    if (to_us(work.again_ns) < kRecomputedShare * to_us(e.method.wall_ns)) continue;
    Finding f;
    f.severity = Severity::info;
    f.title = fmt::format("the forward pass runs again within the backward pass: {} of {}",
                          duration(work.again_ns), duration(e.method.wall_ns));
    f.evidence.push_back(fmt::format("{}, {} in each step: {}{}", counted(work.count, "op", "ops"),
                                     work.per_step, work.ops.front(),
                                     work.ops.size() > 1 ? ", " + work.ops[1] : ""));
    if (const std::string place = work.place.text(); !place.empty())
      f.evidence.push_back("most of it" + place);
    advise(f,
           "activation checkpointing (torch.utils.checkpoint, gradient_checkpointing) buys memory "
           "with this time: leave it out if memory suffices, or checkpoint fewer layers; a "
           "selective policy keeps the results of products");
    f.cost_us = to_us(work.again_ns);
    f.saving_us = to_us(work.again_ns);
    f.confidence = Confidence::high;
    for (const auto& [op, ns] : work.op_ns) claim_op(f, op, ns);
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kRecomputedForwardRule = {
    .id = "recomputed-forward",
    .says =
        "that ops of the forward pass run again within the backward pass: activation "
        "checkpointing",
    .said_if =
        [] {
          return "layers that ran forward (`linear`, `conv2d`, norms, activations, attention) run "
                 "within autograd nodes on the same shapes, " +
                 percent_text(kRecomputedShare) + " of the time or more";
        },
    .find = find_recomputed_forward};

}  // namespace epilogue::trace
