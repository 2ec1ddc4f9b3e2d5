// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/trace/expectations.h"

#include <algorithm>

#include "base/printable.h"
#include "tools/epilogue/nearest.h"

namespace epilogue::tool {
namespace {

constexpr size_t kMaxSuggestions = 3;

std::string unknown(const std::string& name, const std::vector<std::string>& names) {
  return "expected a quantity of epilogue check --list, got '" + printable(name) + "'" +
         did_you_mean(nearest(name, names, kMaxSuggestions));
}

}  // namespace

std::vector<trace::Expectation> parse_expectations(const std::string& argument,
                                                   const std::vector<std::string>& texts) {
  const std::vector<std::string> names = quantity_names();
  std::vector<trace::Expectation> parsed;
  for (const std::string& text : texts) {
    const auto e = trace::parse_expectation(text);
    if (!e) throw Error("[" + argument + "] " + e.failure().message);
    if (std::find(names.begin(), names.end(), e.value().quantity) == names.end())
      throw Error("[" + argument + "] " + unknown(e.value().quantity, names));
    parsed.push_back(e.value());
  }
  return parsed;
}

std::vector<std::string> quantity_names() {
  std::vector<std::string> names;
  for (const trace::Quantity& q : trace::quantities(trace::Trace())) names.push_back(q.name);
  return names;
}

}  // namespace epilogue::tool
