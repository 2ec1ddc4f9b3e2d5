// SPDX-License-Identifier: Apache-2.0
// A trace of a program: ops one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"

namespace epilogue::trace::testing {

inline OpInput number(int64_t value) { return scalar(std::to_string(value)); }

// Ops one after the other; a step holds those since the one before.
struct OpSequence : GpuTrace {
  int64_t at_us = 0;
  int64_t step_us = 0;
  int64_t steps = 0;

  void add(std::string_view name, int64_t us, std::vector<OpInput> of = {}, int64_t sequence = -1) {
    op(name, at_us * kUs, (at_us + us) * kUs);
    if (!of.empty()) inputs(std::move(of));
    if (sequence >= 0) last_args().sequence_number = sequence;
    at_us += us;
  }
  // An op that calls another, which takes all but the last microsecond.
  void add_around(std::string_view name, std::string_view inner, int64_t us,
                  std::vector<OpInput> of = {}, int64_t sequence = -1) {
    op(name, at_us * kUs, (at_us + us) * kUs);
    if (!of.empty()) inputs(of);
    if (sequence >= 0) last_args().sequence_number = sequence;
    op(inner, at_us * kUs, (at_us + us - 1) * kUs);
    if (!of.empty()) inputs(std::move(of));
    at_us += us;
  }
  void node(const std::string& name, int64_t us, int64_t sequence,
            std::string_view inner = "aten::convolution_backward") {
    add_around("autograd::engine::evaluate_function: " + name, inner, us, {}, sequence);
  }
  void end_step() {
    annotation("ProfilerStep#" + std::to_string(steps++), step_us * kUs, at_us * kUs);
    step_us = at_us;
  }
};

// What explain() says of a program that adds its ops `count` times. `add` may ask for the number of
// the round.
template <class Add>
Explanation explain_rounds(int64_t count, const Add& add) {
  OpSequence b;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_invocable_v<Add, OpSequence&, int64_t>)
      add(b, i);
    else
      add(b);
  }
  return explain(b);
}

// The same, and each round is a step.
template <class Add>
Explanation explain_steps(int64_t count, const Add& add) {
  return explain_rounds(count, [&](OpSequence& b, int64_t i) {
    if constexpr (std::is_invocable_v<Add, OpSequence&, int64_t>)
      add(b, i);
    else
      add(b);
    b.end_step();
  });
}

}  // namespace epilogue::trace::testing
