// SPDX-License-Identifier: Apache-2.0
// Module's state: out as named tensors, in with every disagreement reported at once.
#include <map>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"

namespace epilogue::nn {
namespace {

// `"a", "b"`.
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

}  // namespace

NamedTensors Module::state_dict() const {
  NamedTensors result;
  visit_parameters("", [&](const std::string& name, const Tensor& parameter) {
    result.emplace_back(name, parameter.detach());
  });
  return result;
}

LoadResult Module::load_state_dict(const NamedTensors& state, bool strict) {
  std::map<std::string_view, Tensor> rest;
  std::vector<std::string> repeated;
  for (const auto& [name, value] : state)
    if (value.defined() && !rest.emplace(name, value).second) repeated.push_back(name);

  LoadResult result;
  std::string shapes;
  std::vector<std::pair<Tensor, Tensor>> copies;  // from, to
  const std::map<std::string_view, Tensor> given = rest;
  visit_parameters("", [&](const std::string& name, const Tensor& parameter) {
    const auto found = given.find(name);
    if (found == given.end()) {
      result.missing.push_back(name);
      return;
    }
    rest.erase(name);
    const Tensor& value = found->second;
    if (value.sizes() == parameter.sizes()) {
      copies.emplace_back(value, parameter);
    } else {
      shapes += "; size mismatch for " + name + ": " + to_string(value.sizes()) +
                " in the state, " + to_string(parameter.sizes()) + " in the module";
    }
  });
  for (const auto& [name, value] : state)
    if (rest.erase(name) != 0) result.unexpected.push_back(name);

  std::string problems;
  if (strict && !result.missing.empty()) problems += "; missing key(s): " + listed(result.missing);
  if (strict && !result.unexpected.empty())
    problems += "; unexpected key(s): " + listed(result.unexpected);
  if (!repeated.empty()) problems += "; repeated key(s): " + listed(repeated);
  problems += shapes;
  if (!problems.empty())
    throw Error("[load_state_dict] expected the keys and shapes of " + class_name_ + ", got " +
                problems.substr(2));

  const NoGrad no_grad;
  for (const auto& [from, to] : copies) copy_(to, from.to(to.device()));
  return result;
}

}  // namespace epilogue::nn
