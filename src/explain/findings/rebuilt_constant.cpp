// SPDX-License-Identifier: Apache-2.0
// Is it needed? Tensors that depend on no data are made anew in every step.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kRebuiltShare = 0.05;
constexpr size_t kConstantOpsShown = 8;

void find_rebuilt_constants(const Explanation& e, std::vector<Finding>& out) {
  for (const RepeatedWork& work : e.method.repeats) {
    if (work.kind != RepeatedWork::Kind::rebuilt_constant) continue;
    if (to_us(work.again_ns) < kRebuiltShare * to_us(e.method.wall_ns)) continue;
    std::string ops;
    for (size_t i = 0; i < std::min(kConstantOpsShown, work.ops.size()); ++i)
      ops += (i > 0 ? ", " : "") + work.ops[i];
    if (work.ops.size() > kConstantOpsShown) ops += ", ...";
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("a tensor made of numbers alone {} anew {}: {} of {}",
                          work.is_shown ? "is made" : "is most likely computed",
                          counted(work.count, "time", "times"), duration(work.again_ns),
                          duration(e.method.wall_ns));
    f.evidence.push_back(fmt::format("{} ({})", ops, work.what));
    if (const std::string place = work.place.text(); !place.empty())
      f.evidence.push_back("it stands" + place);
    f.evidence.emplace_back(
        work.is_shown ? "that it reads nothing else follows from the sizes alone"
                      : "shapes were not recorded (record_shapes=True): that it reads no data is "
                        "likely by the ops' names, and not shown");
    if (!work.is_shown) f.confidence = Confidence::low;
    advise(f,
           "make it once, outside of the step, and keep it (register_buffer with "
           "persistent=False, functools.cache by size); a causal mask is is_causal=True of "
           "scaled_dot_product_attention");
    f.cost_us = to_us(work.again_ns);
    f.saving_us = to_us(work.again_ns);
    for (const auto& [op, ns] : work.op_ns) claim_op(f, op, ns);
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kRebuiltConstantRule = {
    .id = "rebuilt-constant",
    .says =
        "that a mask, a table of positions or another tensor which depends on no data is made "
        "anew in every step",
    .said_if =
        [] {
          return "ops that begin with `arange`, `ones`, `full`, ... and read, by their sizes, "
                 "nothing but what they made repeat in every step (without shapes: 8 elementwise "
                 "ops or more behind `arange` or a window, low confidence), and take " +
                 percent_text(kRebuiltShare) + " of the time or more";
        },
    .find = find_rebuilt_constants};

}  // namespace epilogue::trace
