// SPDX-License-Identifier: Apache-2.0
// The base of layers and models: named parameters, children, state.
//
// Running a module from several threads is safe; changing one (training mode, dtype, parameters)
// needs the caller's own ordering.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {
class WatchedState;
}

namespace epilogue::nn {

using epilogue::NamedTensors;

struct LoadResult {
  std::vector<std::string> missing;     // in the module, not in the dict
  std::vector<std::string> unexpected;  // in the dict, not in the module
};

// A layer, or a model made of layers. A module is an object with an address (neither copied nor
// moved; hold it by value, or by std::shared_ptr where it is shared). To write one: make tensors
// and layers members, register them in the constructor, override forward().
//
//   struct Scale : nn::Module {
//     Scale() : Module("Scale") { register_parameter("factor", factor); }
//     Tensor forward(const Tensor& x) const override { return x * factor; }
//     Tensor factor = ones({1});
//   };
class Module {
 public:
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Throws Error where the class has none: a module of several inputs has a forward() of its own,
  // which its users and compile() call by that name.
  virtual Tensor forward(const Tensor& x) const;
  // forward() inside a range "nn.Module: Linear_0" (class name, then the number of the instance
  // among those of its class, from 0 in order of construction).
  Tensor operator()(const Tensor& x) const;

  const std::string& class_name() const { return class_name_; }
  // Registered children, in order.
  const std::vector<std::pair<std::string, Module*>>& children() const { return children_; }

  // Own parameters first, then each child's, with dotted names ("gate_proj.weight"). A tensor that
  // is registered twice (shared weights) comes once.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  int64_t num_parameters() const;  // elements

  // Training mode, of this module and all below; on at first. Dropout asks for it.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const;

  // Drops the gradients of all parameters, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  // Converts all parameters (and their gradients) to a floating dtype. The tensors stay the same
  // objects and keep requires_grad. Throws Error on other dtypes. Not between forward and backward.
  void to(DType dtype);
  // Moves all parameters (and their gradients). Throws Error where the device is not there.
  void to(Device device);

  // Every parameter by name, outside the graph, sharing memory with the module. Shared weights come
  // under each of their names.
  NamedTensors state_dict() const;
  // Copies `state` into the parameters, converting dtypes. Throws one Error that names all missing,
  // unexpected, repeated and misshapen keys; the module is unchanged then. Not strict: missing and
  // unexpected keys are returned instead.
  LoadResult load_state_dict(const NamedTensors& state, bool strict = true);

 protected:
  // `class_name` is what traces and messages show.
  explicit Module(std::string_view class_name);

  // `parameter` must be a member; it is made to require a gradient. An undefined tensor (a bias
  // that is switched off) gives no key. Throws Error on an empty, dotted or used name.
  void register_parameter(std::string_view name, Tensor& parameter);
  // `child` must live as long as this module: a member, or owned by one.
  template <class M>
  requires std::is_base_of_v<Module, M>
  void register_module(std::string_view name, M& child) {
    register_child(name, child, typeid(child) == typeid(M) ? sizeof(M) : 0);
  }
  // `bytes`: of the whole object, 0 where its type is not known. A compiled function watches it.
  void register_child(std::string_view name, Module& child, size_t bytes);

 private:
  using Visit = std::function<void(const std::string& name, const Tensor& parameter)>;
  void visit_parameters(const std::string& prefix, const Visit& visit) const;
  void require_free_name(std::string_view name) const;
  // Tells a function that is being captured what this module depends on.
  void show_state(WatchedState& watched) const;

  std::string class_name_;
  std::string range_name_;
  std::vector<std::pair<std::string, Tensor*>> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<size_t> child_bytes_;  // by child; 0: not known
  std::shared_ptr<std::atomic<bool>> is_alive_ = std::make_shared<std::atomic<bool>>(true);
  bool training_ = true;
};

}  // namespace epilogue::nn

#pragma GCC visibility pop
