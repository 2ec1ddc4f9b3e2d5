// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/expectations.h"

#include <algorithm>

#include "base/printable.h"
#include "base/text/nearest.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMaxSuggestions = 3;

std::string unknown(const std::string& name, const std::vector<std::string>& names) {
  return "expected a quantity of epilogue check --list, got '" + printable(name) + "'" +
         did_you_mean(nearest(name, names, kMaxSuggestions));
}

}  // namespace

std::vector<Expectation> parse_expectations(const std::string& argument,
                                            const std::vector<std::string>& texts) {
  const std::vector<std::string> names = quantity_names();
  std::vector<Expectation> parsed;
  for (const std::string& text : texts) {
    const auto e = parse_expectation(text);
    if (!e) throw Error("[" + argument + "] " + e.failure().message);
    if (std::find(names.begin(), names.end(), e.value().quantity) == names.end())
      throw Error("[" + argument + "] " + unknown(e.value().quantity, names));
    parsed.push_back(e.value());
  }
  return parsed;
}

std::vector<std::string> quantity_names() {
  std::vector<std::string> names;
  for (const Quantity& q : quantities(Trace())) names.push_back(q.name);
  return names;
}

}  // namespace epilogue::trace
