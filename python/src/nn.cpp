// SPDX-License-Identifier: Apache-2.0
// Layers, compile(), and the fused MLP.
#include "epilogue/nn.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "engine.h"
#include "epilogue/compile.h"
#include "epilogue/fused.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

void bind_layers(nb::module_& m) {
  nb::class_<nn::Module>(m, "Module", "A layer, or a model of layers. Calls are thread-safe.")
      .def("__call__", &nn::Module::operator(), "x"_a, Unlocked(), "[..., in] -> [..., out].")
      .def("named_parameters", &nn::Module::named_parameters, "Names with their tensors, in order.")
      .def("parameters", &nn::Module::parameters, "The tensors of named_parameters().")
      .def(
          "state_dict",
          [](const nn::Module& self) {
            nb::dict state;
            for (const auto& [name, tensor] : self.state_dict()) state[name.c_str()] = tensor;
            return state;
          },
          "Every parameter by name, outside the graph, sharing memory with the module.")
      .def(
          "load_state_dict",
          [](nn::Module& self, const nb::dict& state) {
            NamedTensors named;
            for (const auto [name, tensor] : state)
              named.emplace_back(nb::cast<std::string>(name), nb::cast<Tensor>(tensor));
            self.load_state_dict(named);
          },
          "state"_a, "Copies tensors into the parameters. Raises Error on names that do not fit.")
      .def("train", &nn::Module::train, "on"_a = true, "Training mode, of all below too.")
      .def("eval", &nn::Module::eval, "Ends training mode.")
      .def(
          "zero_grad", [](nn::Module& self) { self.zero_grad(); }, "Drops all gradients.")
      .def(
          "to", [](nn::Module& self, const std::string& dtype) { self.to(parse_dtype(dtype)); },
          "dtype"_a, "Converts all parameters.")
      .def("__repr__", [](const nn::Module& self) {
        return "<epilogue." + self.class_name() + " of " + std::to_string(self.num_parameters()) +
               " parameters>";
      });
  nb::class_<nn::Linear, nn::Module>(m, "Linear", "y = x W^T + b, initialised as torch.nn.Linear.")
      .def(nb::init<int64_t, int64_t, bool>(), "in_features"_a, "out_features"_a, "bias"_a = true)
      .def_prop_rw(
          "weight", [](const nn::Linear& l) { return l.weight; },
          [](nn::Linear& l, const Tensor& w) { l.weight = w; }, "[out, in].")
      .def_prop_ro(
          "bias", [](const nn::Linear& l) { return if_defined(l.bias); }, "[out], or None.");
  nb::class_<nn::GatedMLP, nn::Module>(
      m, "GatedMLP",
      "down_proj(act(gate_proj(x)) * up_proj(x)): geglu, swiglu, reglu or geglu_erf.")
      .def(
          "__init__",
          [](nn::GatedMLP* self, int64_t dim, int64_t hidden, const std::string& act, bool bias) {
            new (self) nn::GatedMLP(dim, hidden, nn::parse_activation(act), bias);
          },
          "dim"_a, "hidden"_a, "activation"_a = "geglu", "bias"_a = false)
      .def_ro("gate_proj", &nn::GatedMLP::gate_proj, "Linear, weight [hidden, dim].")
      .def_ro("up_proj", &nn::GatedMLP::up_proj, "Linear, weight [hidden, dim].")
      .def_ro("down_proj", &nn::GatedMLP::down_proj, "Linear, weight [dim, hidden].");
  nb::class_<nn::MLP, nn::Module>(m, "MLP",
                                  "fc1, act, ..., projection: gelu, relu, silu, gelu_tanh.")
      .def(
          "__init__",
          [](nn::MLP* self, int64_t dim, int64_t hidden, int64_t layers, const std::string& act,
             bool bias) {
            new (self) nn::MLP(dim, hidden, layers, nn::parse_activation(act), bias);
          },
          "dim"_a, "hidden"_a, "layers"_a = 1, "activation"_a = "gelu", "bias"_a = true);
}

}  // namespace

Quantisation bits_of(const BitsChoice& c) {
  const auto refuse = [](const char* name, const char* expected, const std::string& got) {
    throw Error("[" + std::string(name) + "] expected " + expected + ", got " + got);
  };
  Quantisation bits;
  bits.group = c.group;
  bits.zero_points = c.zero_points;
  const std::string weights = c.weights.value_or(c.int8_weights ? "int8" : "");
  if (weights == "int8") {
    bits.weights = WeightBits::int8;
  } else if (weights == "int4") {
    bits.weights = WeightBits::int4;
  } else if (c.weights) {
    refuse("weights", "None, 'int8' or 'int4'", "'" + weights + "'");
  }
  if (c.int8_weights && weights != "int8")
    refuse("weights", "'int8' or None beside int8_weights=True", "'" + weights + "'");
  if (c.activations && *c.activations != "int8")
    refuse("activations", "None or 'int8'", "'" + *c.activations + "'");
  if (c.activations && bits.weights == WeightBits::same)
    refuse("activations", "None unless weights are 'int8' or 'int4'", "'int8'");
  if (c.activations) bits.activations = ActivationBits::int8;
  if (bits.weights != WeightBits::int4 && (c.group != 128 || c.zero_points))
    refuse("group and zero_points", "none unless weights are 'int4'",
           std::to_string(c.group) + (c.zero_points ? " with zero points" : ""));
  if (c.group != 32 && c.group != 128) refuse("group", "32 or 128", std::to_string(c.group));
  return bits;
}

namespace {

CompileOptions options_of(bool dynamic_rows, const Quantisation& bits, const std::string& tune) {
  if (tune != "model" && tune != "measure")
    throw Error("[compile] expected tune 'model' or 'measure', got '" + tune + "'");
  return {.dynamic_rows = dynamic_rows,
          .bits = bits,
          .tune = tune == "measure" ? Tune::measure : Tune::model};
}

// What a Python function gives: a tensor, or several in a sequence.
std::vector<Tensor> results_of(const nb::object& result) {
  if (nb::isinstance<Tensor>(result)) return {nb::cast<Tensor>(result)};
  return nb::cast<std::vector<Tensor>>(result);
}

Compiled compile_function(nb::object function, CompileOptions options) {
  if (!nb::bool_(PyCallable_Check(function.ptr()) != 0))
    throw Error(
        "[compile] expected a module or a function of tensors, got something that cannot be "
        "called");
  return compile(Compiled::Function([f = held(std::move(function))](std::span<const Tensor> in) {
                   const nb::gil_scoped_acquire locked;
                   nb::list inputs;
                   for (const Tensor& t : in) inputs.append(t);
                   return results_of((*f)(*nb::tuple(inputs)));
                 }),
                 std::move(options));
}

Compiled compile_any(nb::object f, bool dynamic_rows, bool int8_weights, const std::string& tune,
                     const std::optional<std::string>& weights,
                     const std::optional<std::string>& activations, int group, bool zero_points) {
  const BitsChoice choice = {weights, activations, group, zero_points, int8_weights};
  CompileOptions options = options_of(dynamic_rows, bits_of(choice), tune);
  const auto as = [&]<class Layer>() { return compile(nb::cast<const Layer&>(f), options); };
  if (nb::isinstance<nn::GatedMLP>(f)) return as.template operator()<nn::GatedMLP>();
  if (nb::isinstance<nn::MLP>(f)) return as.template operator()<nn::MLP>();
  if (nb::isinstance<nn::Linear>(f)) return as.template operator()<nn::Linear>();
  return compile_function(std::move(f), std::move(options));
}

nb::object call(const Compiled& self, const nb::args& args) {
  std::vector<Tensor> inputs;
  for (const nb::handle t : args) inputs.push_back(nb::cast<Tensor>(t));
  std::vector<Tensor> results;
  {
    const nb::gil_scoped_release free;
    results = self(inputs);
  }
  if (results.size() == 1) return nb::cast(results[0]);
  return nb::tuple(nb::cast(results));
}

nb::dict stats(const Compiled& self) {
  const CompileStats s = self.stats();
  nb::dict out;
  out["calls"] = s.calls;
  out["misses"] = s.misses;
  out["plans"] = s.plans;
  out["compile_ms"] = s.compile_ms;
  out["kernels"] = s.kernels;
  out["eager_kernels"] = s.eager_kernels;
  out["intermediate_bytes"] = s.intermediate_bytes;
  out["moved_bytes"] = s.moved_bytes;
  out["eager_moved_bytes"] = s.eager_moved_bytes;
  return out;
}

void bind_compile(nb::module_& m) {
  nb::class_<Compiled>(m, "Compiled", "A compiled function. Any number of threads may call it.")
      .def("__call__", call)
      .def("explain", &Compiled::explain, Unlocked(),
           "What the plan that ran last does, and why. Empty before the first call.")
      .def("stats", stats, "Calls, plans, and of the plan that ran last its kernels and bytes.")
      .def("reset", &Compiled::reset, "Forgets all plans.")
      .def("__repr__", [](const Compiled& self) {
        return "<epilogue.Compiled: " + std::to_string(self.stats().plans) + " plans>";
      });
  m.def(
      "compile", compile_any, "f"_a, nb::kw_only(), "dynamic_rows"_a = true,
      "int8_weights"_a = false, "tune"_a = "model", "weights"_a.none() = nb::none(),
      "activations"_a.none() = nb::none(), "group"_a = 128, "zero_points"_a = false,
      nb::keep_alive<0, 1>(),
      "A module or a function of tensors as a few fused kernels. The first call captures, fuses "
      "and plans.\n\nThe function must be pure: its results depend on its inputs and on tensors "
      "that it holds, by way of ops alone. ``tune='measure'`` times the plans on the first "
      "call's inputs. ``weights``: 'int8' or 'int4' for the packed copies of weights (of 4 bits "
      "with a scale for ``group`` inputs, 32 or 128, and a zero point each with "
      "``zero_points``); ``activations``: 'int8' makes rows integers too before each product. Both "
      "change results. ``int8_weights`` is the same as ``weights='int8'``. Raises Error where it "
      "writes elsewhere in place or reads elements.");
}

Tensor fused(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down,
             const std::string& activation, const std::string& norm,
             const std::optional<Tensor>& norm_weight, bool residual, bool int8_weights,
             const std::optional<std::string>& weights,
             const std::optional<std::string>& activations, int group, bool zero_points) {
  return fused_gated_mlp(
      x, gate, up, down, nn::parse_activation(activation),
      {.norm = nn::parse_norm(norm),
       .norm_weight = norm_weight.value_or(Tensor()),
       .residual = residual,
       .bits = bits_of({weights, activations, group, zero_points, int8_weights})});
}

}  // namespace

void bind_modules(nb::module_& m) {
  bind_layers(m);
  bind_compile(m);
  m.def("fused_gated_mlp", fused, "x"_a, "gate"_a, "up"_a, "down"_a, nb::kw_only(),
        "activation"_a = "geglu", "norm"_a = "none", "norm_weight"_a.none() = nb::none(),
        "residual"_a = false, "int8_weights"_a = false, "weights"_a.none() = nb::none(),
        "activations"_a.none() = nb::none(), "group"_a = 128, "zero_points"_a = false, Unlocked(),
        "down (act(gate norm(x)) * (up norm(x))) (+ x) as one kernel: x [..., k]; gate and up "
        "[h, k], down [n, h]; f32, bf16 or f16, all of one dtype.\n\nInference only. Weights are "
        "packed at the first call and kept: pass the same tensors call after call. Fewer bits as "
        "compile()'s. Thread-safe.");
}

}  // namespace epilogue::python
