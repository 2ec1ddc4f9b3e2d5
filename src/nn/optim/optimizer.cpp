// SPDX-License-Identifier: Apache-2.0
// The part that all optimizers share: groups, participation, low-precision copies, state in and
// out.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/observer.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "nn/optim/options_text.h"
#include "ops/autocast.h"

namespace epilogue::optim {
namespace {

std::string group_key(size_t group, const std::string& option) {
  return "param_groups." + std::to_string(group) + "." + option;
}
std::string tensor_key(size_t i, std::string_view name) {
  return "state." + std::to_string(i) + "." + std::string(name);
}

void require_params(std::string_view class_name, const std::vector<std::vector<Tensor>>& groups) {
  const std::string prefix = "[" + std::string(class_name) + "] expected ";
  std::unordered_set<const void*> seen;
  for (const auto& group : groups) {
    if (group.empty()) throw Error(prefix + "at least one parameter in a group, got none");
    for (const Tensor& p : group) {
      if (!p.defined()) throw Error(prefix + "parameters, got an undefined tensor");
      if (!p.is_leaf() || !is_floating(p.dtype()))
        throw Error(prefix + "floating leaf tensors, got " + to_string(p) +
                    (p.is_leaf() ? "" : ", the result of an op"));
      if (!seen.insert(p.impl()).second)
        throw Error(prefix + "every parameter once, got " + to_string(p) + " twice");
    }
  }
  if (groups.empty()) throw Error(prefix + "at least one group of parameters, got none");
}

// The 0-dim count; every other state is like its parameter.
bool is_step(std::string_view name) { return name == "step"; }

[[noreturn]] void fail_to_load(const std::string& expected, const std::string& got) {
  throw Error("[load_state_dict] expected " + expected + ", got " + got);
}

// The options of each group, after checking that class and groups are the same.
std::vector<Text> texts_of_groups(const Text& metadata, const std::string& class_name,
                                  const std::vector<std::vector<Tensor>>& groups) {
  const auto name = metadata.find("optimizer");
  if (name == metadata.end() || name->second != class_name)
    fail_to_load("the state of " + class_name,
                 "that of " + (name == metadata.end() ? "no optimizer" : name->second));
  std::vector<Text> texts(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t count = integer_of(metadata, group_key(g, "params"));
    if (count != static_cast<int64_t>(groups[g].size()))
      fail_to_load(std::to_string(groups[g].size()) + " parameters in group " + std::to_string(g),
                   std::to_string(count));
    const std::string prefix = group_key(g, "");
    for (const auto& [key, value] : metadata)
      if (key.starts_with(prefix)) texts[g][key.substr(prefix.size())] = value;
  }
  if (metadata.contains(group_key(groups.size(), "params")))
    fail_to_load(std::to_string(groups.size()) + " parameter groups", "more");
  return texts;
}

void require_count(const std::string& key, const Tensor& step) {
  const double count = step.item();
  if (!(count >= 0) || count != std::floor(count) || std::isinf(count))
    fail_to_load("a whole number >= 0 for \"" + key + "\"", number_text(count));
}

using States = std::vector<std::map<std::string, Tensor, std::less<>>>;

// Copies of the tensors, by parameter.
States states_of(const NamedTensors& tensors, const std::string& class_name,
                 const std::vector<Tensor>& params, const std::vector<std::string_view>& names) {
  const NoGrad no_grad;
  States states(params.size());
  std::map<std::string_view, Tensor> rest;
  for (const auto& [key, tensor] : tensors)
    if (!rest.emplace(key, tensor).second)
      fail_to_load("every state once", "\"" + key + "\" twice");
  for (size_t i = 0; i < params.size(); ++i) {
    for (const std::string_view name : names) {
      const std::string key = tensor_key(i, name);
      const auto found = rest.find(key);
      if (found == rest.end()) continue;
      const Dims sizes = is_step(name) ? Dims{} : params[i].sizes();
      if (!found->second.defined() || !(found->second.sizes() == sizes))
        fail_to_load("sizes " + to_string(sizes) + " for \"" + key + "\"",
                     to_string(found->second));
      if (is_step(name)) require_count(key, found->second);
      const Tensor own =
          empty(sizes, is_step(name) ? DType::f32 : params[i].dtype(), params[i].device());
      states[i].emplace(name, copy_(own, found->second.to(own.device())));
      set_memory_category(own, MemoryCategory::optimizer_state);
      rest.erase(found);
    }
  }
  if (!rest.empty())
    fail_to_load("states of " + class_name, "\"" + std::string(rest.begin()->first) + "\"");
  return states;
}

}  // namespace

Optimizer::Optimizer(std::string_view class_name, std::vector<std::vector<Tensor>> groups)
    : class_name_(class_name), groups_(std::move(groups)) {
  require_params(class_name_, groups_);
  state_.resize(parameters().size());
}

Optimizer::~Optimizer() {
  if (copies_.empty()) return;
  for (const Tensor& p : parameters()) forget_low_precision_copy(p);
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const auto& group : groups_) all.insert(all.end(), group.begin(), group.end());
  return all;
}

size_t Optimizer::checked_group(size_t i) const {
  if (i >= groups_.size())
    throw Error("[" + class_name_ + "] expected a group below " + std::to_string(groups_.size()) +
                ", got " + std::to_string(i));
  return i;
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < groups_.size(); ++g) set_lr(g, lr);
}

Optimizer::Participants Optimizer::participants(size_t group, size_t first_index) const {
  Participants with;
  for (size_t i = 0; i < groups_[group].size(); ++i) {
    const Tensor& param = groups_[group][i];
    const Tensor grad = param.grad();
    if (!grad.defined()) continue;
    with.index.push_back(first_index + i);
    with.params.push_back(param);
    with.grads.push_back(grad.detach());
    with.copies.push_back(copies_.empty() ? Tensor() : copies_[first_index + i]);
  }
  return with;
}

void Optimizer::step(const StepOptions& options) {
  const ScopedRange range("Optimizer.step#" + class_name_ + ".step");
  const NoGrad no_grad;
  for (size_t g = 0; g < groups_.size(); ++g) check_options(g);
  require_states_fit();
  size_t first = 0;
  for (size_t g = 0; g < groups_.size(); first += groups_[g++].size()) {
    const Participants with = participants(g, first);
    if (with.params.empty()) continue;
    // A step that found_inf skips leaves the copies as they are, which must then be those of the
    // weights: they are not after somebody else wrote them (a loaded checkpoint).
    for (size_t i = 0; options.found_inf.defined() && i < with.params.size(); ++i)
      if (with.copies[i].defined() && !has_low_precision_copy(with.params[i]))
        copy_(with.copies[i], with.params[i]);
    step_group(g, with, options);
    for (size_t i = 0; i < with.params.size(); ++i)
      if (with.copies[i].defined()) note_low_precision_copy(with.params[i], with.copies[i]);
  }
}

void Optimizer::require_states_fit() const {
  size_t i = 0;
  for (const auto& group : groups_) {
    for (const Tensor& param : group) {
      for (const auto& [name, tensor] : state_[i])
        if (tensor.defined() && !is_step(name) && tensor.dtype() != param.dtype())
          throw Error("[" + class_name_ + "] expected parameter " + std::to_string(i) +
                      " to have the dtype of its state, got " + to_string(param) + " with \"" +
                      tensor_key(i, name) + "\" " + to_string(tensor) +
                      "; make the optimizer after Module::to()");
      ++i;
    }
  }
}

bool Optimizer::needs_state(std::string_view /*name*/, const Text& /*options*/) const {
  return true;
}

void Optimizer::require_whole(const std::vector<StateOfOne>& states,
                              const std::vector<Text>& options) const {
  size_t i = 0;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t last = i + groups_[g].size(); i < last; ++i)
      for (const std::string_view name : state_names())
        if (!states[i].empty() && !states[i].contains(name) && needs_state(name, options[g]))
          fail_to_load("\"" + tensor_key(i, name) + "\"", "no such key");
}

void Optimizer::zero_grad(bool set_to_none) {
  const ScopedRange range("Optimizer.zero_grad#" + class_name_ + ".zero_grad");
  const NoGrad no_grad;
  for (const Tensor& p : parameters()) {
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    // A gradient made with create_graph is part of a graph; the zeros must not be.
    p.set_grad(set_to_none ? Tensor() : zero_(grad.detach()));
  }
}

void Optimizer::keep_low_precision_copies(DType dtype) {
  if (!is_low_precision(dtype))
    throw Error("[keep_low_precision_copies] expected bf16 or f16, got " +
                std::string(dtype_name(dtype)));
  if (!copies_.empty())
    throw Error("[keep_low_precision_copies] expected to be called once, got another call");
  const NoGrad no_grad;
  for (const Tensor& p : parameters()) {
    copies_.push_back(p.dtype() == DType::f32 ? contiguous(to(p.detach(), dtype)) : Tensor());
    if (!copies_.back().defined()) continue;
    set_memory_category(copies_.back(), MemoryCategory::parameter);
    note_low_precision_copy(p, copies_.back());
  }
}

Tensor Optimizer::low_precision_copy(const Tensor& parameter) const {
  const std::vector<Tensor> all = parameters();
  for (size_t i = 0; i < copies_.size(); ++i)
    if (all[i].is_same(parameter)) return copies_[i];
  return {};
}

Tensor& Optimizer::state(size_t i, std::string_view name) {
  auto& of = state_[i];
  const auto found = of.find(name);
  return found != of.end() ? found->second : of[std::string(name)];
}

Tensor& Optimizer::state_or_zeros(size_t i, std::string_view name, const Tensor& param) {
  Tensor& t = state(i, name);
  if (!t.defined()) {
    t = is_step(name) ? zeros({}, DType::f32, param.device())
                      : zeros(param.sizes(), param.dtype(), param.device());
    set_memory_category(t, MemoryCategory::optimizer_state);
  }
  return t;
}

StateDict Optimizer::state_dict() const {
  StateDict dict;
  dict.metadata["optimizer"] = class_name_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    dict.metadata[group_key(g, "params")] = number_text(static_cast<int64_t>(groups_[g].size()));
    for (const auto& [option, value] : group_options(g))
      dict.metadata[group_key(g, option)] = value;
  }
  for (size_t i = 0; i < state_.size(); ++i)
    for (const auto& [name, tensor] : state_[i])
      if (tensor.defined()) dict.tensors.emplace_back(tensor_key(i, name), tensor);
  return dict;
}

void Optimizer::load_state_dict(const StateDict& dict) {
  const std::vector<Text> options = texts_of_groups(dict.metadata, class_name_, groups_);
  std::vector<StateOfOne> states =
      states_of(dict.tensors, class_name_, parameters(), state_names());
  require_whole(states, options);
  std::vector<Text> before;
  before.reserve(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) before.push_back(group_options(g));
  size_t g = 0;
  try {
    for (; g < groups_.size(); ++g) set_group_options(g, options[g]);
  } catch (...) {  // a bad option of a later group must not leave the earlier ones changed
    while (g-- > 0) set_group_options(g, before[g]);
    throw;
  }
  state_ = std::move(states);
}

}  // namespace epilogue::optim
