// SPDX-License-Identifier: Apache-2.0
// Tensors over memory of NumPy and of whoever speaks DLPack, and the other way round: no copies.
#include "epilogue/tensor.h"

#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>

#include "engine.h"
#include "epilogue/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

using nb::dlpack::dtype_code;

constexpr nb::dlpack::dtype dlpack_of(DType dtype) {
  const auto type = [dtype](dtype_code code) {
    const auto bits = static_cast<uint8_t>(8 * dtype_bytes(dtype));
    return nb::dlpack::dtype{static_cast<uint8_t>(code), bits, 1};
  };
  switch (dtype) {
    case DType::bf16: return type(dtype_code::Bfloat);
    case DType::i64: return type(dtype_code::Int);
    case DType::u8: return type(dtype_code::UInt);
    case DType::boolean: return type(dtype_code::Bool);
    default: return type(dtype_code::Float);
  }
}

DType dtype_of(nb::dlpack::dtype wanted) {
  for (const DType dtype : kDTypes)
    if (dlpack_of(dtype) == wanted) return dtype;
  throw Error(
      "[from_dlpack] expected elements of float32, bfloat16, float16, float64, int64, uint8 "
      "or bool, got DLPack's type " +
      std::to_string(wanted.code) + " of " + std::to_string(wanted.bits) + " bits");
}

// Of any array of nanobind's: the tensor keeps it alive.
template <class Array>
Tensor from_array(const Array& array, bool is_read_only) {
  if (array.ndim() > kMaxRank)
    throw Error("[from_dlpack] expected at most " + std::to_string(kMaxRank) + " dimensions, got " +
                std::to_string(array.ndim()));
  Dims sizes;
  Dims strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    sizes.push_back(static_cast<int64_t>(array.shape(i)));
    strides.push_back(array.stride(i));
  }
  auto owner = held(nb::cast(array));
  Tensor tensor = Tensor::from_blob(
      const_cast<void*>(static_cast<const void*>(array.data())), sizes, dtype_of(array.dtype()),
      [owner](void*) {}, strides);
  if (is_read_only) tensor.impl()->storage->set_read_only();
  return tensor;
}

using Writable = nb::ndarray<nb::device::cpu>;
using ReadOnly = nb::ndarray<nb::ro, nb::device::cpu>;

void require_shareable(const Tensor& t, const char* what) {
  const std::string op = std::string("[") + what + "] ";
  if (t.requires_grad())
    throw Error(op + "expected no gradient, got a tensor that requires one; use detach()");
  if (t.device().type != DeviceType::cpu)
    throw Error(op + "expected a tensor on the cpu, got one on " + to_string(t.device()));
  t.require_readable(what);
}

// The tensor's memory as nanobind's array, which keeps `self` alive.
template <class... Kind>
nb::object array_of(nb::handle self, const char* what) {
  const auto& t = nb::cast<const Tensor&>(self);
  require_shareable(t, what);
  std::vector<size_t> shape(t.sizes().begin(), t.sizes().end());
  const auto make = [&]<class Array>() {
    return nb::cast(Array(t.data(), shape.size(), shape.data(), self, t.strides().begin(),
                          dlpack_of(t.dtype())),
                    nb::rv_policy::reference);
  };
  if (t.is_writable()) return make.template operator()<nb::ndarray<Kind..., nb::device::cpu>>();
  return make.template operator()<nb::ndarray<Kind..., nb::ro, nb::device::cpu>>();
}

nb::object numpy(nb::handle self) {
  if (nb::cast<const Tensor&>(self).dtype() == DType::bf16)
    throw Error("[numpy] expected a dtype that NumPy has, got bf16; use to('f32'), or DLPack");
  return array_of<nb::numpy>(self, "numpy");
}

nb::object dlpack(nb::handle self, const nb::kwargs& options) {
  return array_of<nb::array_api>(self, "__dlpack__").attr("__dlpack__")(**options);
}

nb::tuple shape(const Tensor& t) {
  nb::list sizes;
  for (const int64_t n : t.sizes()) sizes.append(n);
  return nb::tuple(sizes);
}

std::string repr(const Tensor& t) {
  std::ostringstream out;
  {
    const nb::gil_scoped_release free;
    out << t;
  }
  return out.str();
}

Tensor from_list(const std::vector<double>& values, nb::handle sizes, const std::string& dtype) {
  return from_values(std::span<const double>(values), to_dims(sizes), parse_dtype(dtype));
}

template <Tensor (*make)(Dims, DType, Device)>
Tensor filled(nb::handle sizes, const std::string& dtype) {
  return make(to_dims(sizes), parse_dtype(dtype), {});
}

void bind_factories(nb::module_& m) {
  m.def(
      "from_dlpack", [](const Writable& a) { return from_array(a, false); },
      nb::arg("array").noconvert());
  m.def(
      "from_dlpack", [](const ReadOnly& a) { return from_array(a, true); },
      nb::arg("array").noconvert());
  m.def("from_list", from_list);
  m.def("zeros", filled<zeros>, "sizes"_a, "dtype"_a = "f32", "A new tensor of zeros.");
  m.def("ones", filled<ones>, "sizes"_a, "dtype"_a = "f32", "A new tensor of ones.");
  m.def("empty", filled<empty>, "sizes"_a, "dtype"_a = "f32", "A new tensor of any values.");
  m.def(
      "randn",
      [](nb::handle sizes, const std::string& dtype) {
        return randn(to_dims(sizes), parse_dtype(dtype));
      },
      "sizes"_a, "dtype"_a = "f32", "A new tensor drawn from N(0, 1). Thread-safe.");
  m.def("manual_seed", &manual_seed, "seed"_a,
        "Seeds the process's generator. (The numbers are not PyTorch's.)");
}

}  // namespace

Dims to_dims(nb::handle sizes) {
  if (nb::isinstance<nb::int_>(sizes)) return Dims(nb::cast<int64_t>(sizes));
  Dims dims;
  for (const nb::handle n : sizes) dims.push_back(nb::cast<int64_t>(n));
  return dims;
}

void bind_tensors(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor",
                     "A strided view of memory. Handles share data; reading from several threads "
                     "is safe, writing needs the caller's own ordering.")
      .def_prop_ro("shape", shape, "Sizes.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return std::string(dtype_name(t.dtype())); },
          "``f32``, ``bf16``, ``f16``, ``f64``, ``i64``, ``u8`` or ``bool``.")
      .def_prop_ro(
          "device", [](const Tensor& t) { return to_string(t.device()); }, "``cpu`` or ``cuda:0``.")
      .def_prop_ro("ndim", &Tensor::dim, "Number of dimensions.")
      .def_prop_ro("size", &Tensor::numel, "Number of elements.")
      .def_prop_ro("nbytes", &Tensor::bytes, "Bytes of the elements.")
      .def_prop_ro("is_contiguous", &Tensor::is_contiguous, "Row-major without gaps.")
      .def_prop_ro("is_writable", &Tensor::is_writable, "Ops may write in place.")
      .def_prop_rw("requires_grad", &Tensor::requires_grad, &Tensor::set_requires_grad,
                   "Ops on it are recorded for gradients.")
      .def_prop_ro(
          "grad", [](const Tensor& t) { return if_defined(t.grad()); },
          "The gradient that backward() accumulated, or None.")
      .def(
          "backward", [](const Tensor& t) { t.backward(); }, Unlocked(),
          "Gradients of this one-element tensor into the leaves that require them.")
      .def("detach", &Tensor::detach, "Same data, outside the graph.")
      .def("item", &Tensor::item, Unlocked(), "The only element, as a float.")
      .def("tolist", &Tensor::to_vector, Unlocked(), "All elements in row-major order, as floats.")
      .def("numpy", numpy,
           "A NumPy array over the same memory, no copy. Raises Error for bf16, which NumPy does "
           "not have. After writing through it to a tensor that a compiled function or a fused op "
           "holds, call increment_version().")
      .def("increment_version", &Tensor::increment_version,
           "Says that the memory was written without an op.")
      .def("__dlpack__", dlpack, "The memory as a DLPack capsule, no copy.")
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); })
      .def("__repr__", repr);
  bind_factories(m);
}

}  // namespace epilogue::python
