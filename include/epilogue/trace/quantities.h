// SPDX-License-Identifier: Apache-2.0
// Named numbers of a trace, and expectations about them: "kernels_per_step <= 5".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

// A number that a trace may or may not give. Names carry their unit (_us, _pct, _bytes).
struct Quantity {
  std::string name;
  std::string doc;              // one line
  std::optional<double> value;  // empty: this trace cannot give it
};

// All quantities, always the same names in the same order. "Per step" divides by the number of
// ProfilerStep annotations (whole steps only); kernels belong to the step that launched them.
std::vector<Quantity> quantities(const Trace& trace);

// NAME OP NUMBER with OP one of == != < <= > >=.
struct Expectation {
  std::string text;
  std::string quantity;
  std::string op;
  double expected = 0;
};
// Fails with one line on a bad form; the name is not looked up.
Result<Expectation> parse_expectation(std::string_view text);

struct Judgement {
  Expectation expectation;
  std::optional<double> found;
  bool known = true;   // false: there is no quantity of that name
  bool holds = false;  // never true without a found value
};
Judgement judge(const Expectation& expectation, const std::vector<Quantity>& quantities);

}  // namespace epilogue::trace
