// SPDX-License-Identifier: Apache-2.0
// Ops: names and meaning are PyTorch's. All release the interpreter's lock.
#include "epilogue/ops.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

using TensorClass = nb::class_<Tensor>;

// One operator of two tensors, or of a tensor and a number on either side.
template <auto op>
void bind_operator(TensorClass& t, const char* name, const char* reflected) {
  t.def(
      name, [](const Tensor& a, const Tensor& b) { return op(a, b); }, nb::is_operator(),
      Unlocked());
  t.def(
      name, [](const Tensor& a, double b) { return op(a, scalar(b)); }, nb::is_operator(),
      Unlocked());
  t.def(
      reflected, [](const Tensor& a, double b) { return op(scalar(b), a); }, nb::is_operator(),
      Unlocked());
}

constexpr auto kAdd = [](const Tensor& a, const Tensor& b) { return add(a, b); };
constexpr auto kSub = [](const Tensor& a, const Tensor& b) { return sub(a, b); };
constexpr auto kMul = [](const Tensor& a, const Tensor& b) { return mul(a, b); };
constexpr auto kDiv = [](const Tensor& a, const Tensor& b) { return div(a, b); };

void bind_methods(nb::module_& m) {
  auto t = nb::borrow<TensorClass>(m.attr("Tensor"));
  bind_operator<kAdd>(t, "__add__", "__radd__");
  bind_operator<kSub>(t, "__sub__", "__rsub__");
  bind_operator<kMul>(t, "__mul__", "__rmul__");
  bind_operator<kDiv>(t, "__truediv__", "__rtruediv__");
  t.def("__matmul__", &matmul, nb::is_operator(), Unlocked());
  t.def("__neg__", &neg, Unlocked());
  t.def(
      "add_", [](const Tensor& a, const Tensor& b) { return add_(a, b); }, Unlocked(),
      "Adds in place. Raises Error on memory that is only read.");
  t.def(
      "mul_", [](const Tensor& a, const Tensor& b) { return mul_(a, b); }, Unlocked(),
      "Multiplies in place.");
  t.def("copy_", &copy_, Unlocked(), "Writes another tensor's values in place.");
  t.def("fill_", &fill_, Unlocked(), "Writes one number in place.");
  t.def(
      "to", [](const Tensor& a, const std::string& dtype) { return to(a, parse_dtype(dtype)); },
      "dtype"_a, Unlocked(), "Its values rounded to a dtype; itself if it has that.");
  t.def("transpose", &transpose, "dim0"_a, "dim1"_a, "A view.");
  t.def(
      "reshape", [](const Tensor& a, nb::handle sizes) { return reshape(a, to_dims(sizes)); },
      "sizes"_a, "A view where strides allow, else a copy.");
  t.def_prop_ro(
      "T", [](const Tensor& a) { return epilogue::t(a); }, "The matrix transposed; a view.");
}

Tensor gelu_of(const Tensor& x, const std::string& approximate) {
  if (approximate != "none" && approximate != "tanh")
    throw Error("[gelu] expected approximate 'none' or 'tanh', got '" + approximate + "'");
  return gelu(x, approximate == "tanh" ? Gelu::tanh : Gelu::exact);
}

}  // namespace

void bind_ops(nb::module_& m) {
  bind_methods(m);
  m.def("matmul", &matmul, "a"_a, "b"_a, Unlocked(), "torch.matmul.");
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
        return linear(x, weight, bias.value_or(Tensor()));
      },
      "x"_a, "weight"_a, "bias"_a.none() = nb::none(), Unlocked(),
      "x W^T + b: x [..., in], weight [out, in], bias [out] -> [..., out].");
  m.def("relu", &relu, "x"_a, Unlocked(), "max(x, 0).");
  m.def("gelu", gelu_of, "x"_a, "approximate"_a = "none", Unlocked(),
        "GELU, exact or (``tanh``) approximated.");
  m.def("silu", &silu, "x"_a, Unlocked(), "x sigmoid(x).");
  m.def("sigmoid", &sigmoid, "x"_a, Unlocked(), "1 / (1 + exp(-x)).");
  m.def("tanh", &tanh, "x"_a, Unlocked(), "Hyperbolic tangent.");
  m.def("exp", &exp, "x"_a, Unlocked(), "e to the x.");
  m.def(
      "softmax", [](const Tensor& x, int64_t dim) { return softmax(x, dim); }, "x"_a, "dim"_a = -1,
      Unlocked(), "exp(x) over its sum along a dimension.");
  m.def(
      "sum", [](const Tensor& x) { return sum(x); }, "x"_a, Unlocked(), "Of all elements.");
  m.def(
      "mean", [](const Tensor& x) { return mean(x); }, "x"_a, Unlocked(), "Of all elements.");
}

}  // namespace epilogue::python
