// SPDX-License-Identifier: Apache-2.0
// Module: registration, walks over the parameters, training mode, dtype.
#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>

#include "core/observer.h"
#include "core/watched_state.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "nn/parameter.h"

namespace epilogue::nn {
namespace {

// How many modules of this class were made before.
int64_t next_instance(std::string_view class_name) {
  static std::mutex mutex;
  static std::map<std::string, int64_t, std::less<>> counts;
  const std::lock_guard<std::mutex> lock(mutex);
  return counts.try_emplace(std::string(class_name), 0).first->second++;
}

}  // namespace

Module::Module(std::string_view class_name)
    : class_name_(class_name),
      range_name_("nn.Module: " + class_name_ + "_" + std::to_string(next_instance(class_name))) {}

Module::~Module() { is_alive_->store(false, std::memory_order_relaxed); }

Tensor Module::forward(const Tensor& /*x*/) const {
  throw Error("[" + class_name_ + "] expected a class with a forward() of one tensor");
}

void Module::show_state(WatchedState& watched) const {
  if (!watched.watch_life(is_alive_)) return;
  watched.watch(this, sizeof(Module));
  for (const auto& [name, parameter] : parameters_) watched.watch(parameter, sizeof(Tensor));
  for (size_t i = 0; i < children_.size(); ++i) {
    const Module* const child = children_[i].second;
    if (child_bytes_[i] > 0) watched.watch(dynamic_cast<const void*>(child), child_bytes_[i]);
    child->show_state(watched);
  }
}

bool Module::is_training() const {
  if (thread_state().watched != nullptr) [[unlikely]]
    show_state(*thread_state().watched);
  return training_;
}

Tensor Module::operator()(const Tensor& x) const {
  if (thread_state().watched != nullptr) [[unlikely]]
    show_state(*thread_state().watched);
  const ScopedRange range(range_name_, RangeKind::module);
  return forward(x);
}

void Module::require_free_name(std::string_view name) const {
  const auto is_name = [&](const auto& entry) { return entry.first == name; };
  const bool used = std::any_of(parameters_.begin(), parameters_.end(), is_name) ||
                    std::any_of(children_.begin(), children_.end(), is_name);
  if (name.empty() || name.find('.') != std::string_view::npos || used)
    throw Error("[register] expected a new name without dots for " + class_name_ + ", got \"" +
                std::string(name) + "\"");
}

void Module::register_parameter(std::string_view name, Tensor& parameter) {
  require_free_name(name);
  if (parameter.defined()) {
    parameter.set_requires_grad(true);
    set_memory_category(parameter, MemoryCategory::parameter);
  }
  parameters_.emplace_back(name, &parameter);
}

void Module::register_child(std::string_view name, Module& child, size_t bytes) {
  require_free_name(name);
  children_.emplace_back(name, &child);
  child_bytes_.push_back(bytes);
}

void Module::visit_parameters(const std::string& prefix, const Visit& visit) const {
  for (const auto& [name, parameter] : parameters_)
    if (parameter->defined()) visit(prefix + name, *parameter);
  for (const auto& [name, child] : children_) child->visit_parameters(prefix + name + ".", visit);
}

NamedTensors Module::named_parameters() const {
  NamedTensors result;
  std::unordered_set<const void*> seen;
  visit_parameters("", [&](const std::string& name, const Tensor& parameter) {
    if (seen.insert(parameter.impl()).second) result.emplace_back(name, parameter);
  });
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, parameter] : named_parameters()) result.push_back(std::move(parameter));
  return result;
}

int64_t Module::num_parameters() const {
  int64_t elements = 0;
  for (const Tensor& parameter : parameters()) elements += parameter.numel();
  return elements;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::zero_grad(bool set_to_none) {
  const NoGrad no_grad;
  for (const Tensor& parameter : parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      parameter.set_grad({});
    } else {
      // A gradient made with create_graph is part of a graph; the zeros must not be.
      parameter.set_grad(zero_(grad.detach()));
    }
  }
}

void Module::to(DType dtype) {
  if (!is_floating(dtype))
    throw Error("[to] expected a floating dtype for " + class_name_ + ", got " +
                std::string(dtype_name(dtype)));
  const NoGrad no_grad;
  for (const Tensor& parameter : parameters()) {
    if (parameter.dtype() == dtype) continue;
    const Tensor grad = parameter.grad();
    set_parameter_data(parameter, epilogue::to(parameter.detach(), dtype));
    if (grad.defined()) parameter.set_grad(epilogue::to(grad.detach(), dtype));
  }
}

void Module::to(Device device) {
  const NoGrad no_grad;
  for (const Tensor& parameter : parameters()) {
    if (parameter.device() == device) continue;
    const Tensor grad = parameter.grad();
    set_parameter_data(parameter, parameter.detach().to(device));
    if (grad.defined()) parameter.set_grad(grad.detach().to(device));
  }
}

}  // namespace epilogue::nn
