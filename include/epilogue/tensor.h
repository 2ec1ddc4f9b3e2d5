// SPDX-License-Identifier: Apache-2.0
// Tensor: a strided view of counted storage, the one value type of the engine.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "epilogue/base/error.h"
#include "epilogue/detail/tensor_impl.h"
#include "epilogue/device.h"
#include "epilogue/dims.h"
#include "epilogue/dtype.h"
#include "epilogue/memory.h"

#pragma GCC visibility push(default)

namespace epilogue {

// A handle: copies share data. Default-constructed (or moved from) it is undefined: an absent
// optional argument. All but defined(), is_same() and impl() then throw Error. Reading from several
// threads is safe; writing needs the caller's own ordering.
class Tensor {
 public:
  Tensor() = default;

  // A view of the caller's memory, no copy. `deleter` (may be empty) is called with `data` when the
  // last tensor over it dies, on that thread. Strides are in elements, empty means row-major.
  // Writes are counted per call (version()): two tensors made of one memory do not hear of each
  // other's.
  // Throws Error on a null pointer with elements, negative sizes or a rank mismatch.
  static Tensor from_blob(void* data, Dims sizes, DType dtype = DType::f32,
                          std::function<void(void*)> deleter = {}, Dims strides = {});

  // The same of memory that is only read: a kernel that would write to the tensor in place throws
  // Error, and so do views of it. `data` must outlive every tensor over it, and data_as() must not
  // be written through. Throws Error unless there is one value per element.
  template <class T>
  static Tensor from_blob(std::span<const T> data, Dims sizes) {
    return from_read_only(data.data(), data.size(), sizes, DTypeOf<T>::value);
  }

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }

  const Dims& sizes() const { return get().sizes; }
  const Dims& strides() const { return get().strides; }
  // Negative dimensions count from the end. Throws Error out of range.
  int64_t size(int dim) const;
  int dim() const { return get().sizes.rank(); }
  int64_t numel() const { return get().numel; }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  size_t bytes() const { return static_cast<size_t>(numel()) * dtype_bytes(dtype()); }
  bool is_contiguous() const { return get().is_contiguous; }

  // The address of the first element, in the device's memory. The typed form throws Error on
  // another dtype, and where a function that is being compiled asks for an input's or a result's:
  // no kernel has written these. Who writes elements without ops calls increment_version().
  void* data() const { return get().data; }
  template <class T>
  T* data_as() const {
    require_elements(DTypeOf<T>::value);
    return reinterpret_cast<T*>(impl_->data);
  }

  // The only element of a one-element tensor, as double. Throws Error otherwise.
  double item() const;
  // All elements in row-major order, converted.
  std::vector<double> to_vector() const;

  // This tensor, or a contiguous copy of its values on `device`, outside the autograd graph. To a
  // device the call may return before the copy is done (work on that device waits for it); to the
  // host it waits. Throws Error where a gradient would be lost (use no_grad) or while a function is
  // compiled.
  Tensor to(Device device) const;
  // This tensor, or its values rounded to `dtype`: the op aten::_to_copy, with gradients
  // (epilogue/ops.h has it as a function too).
  Tensor to(DType dtype) const;

  bool requires_grad() const { return get().requires_grad; }

  // The functions below are autograd's (epilogue/autograd.h says more).
  Tensor& set_requires_grad(bool on);
  // The gradient that backward() accumulated; undefined when there is none.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  // Gradients of this one-element tensor into the leaves that require them.
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const;
  bool is_leaf() const;
  // Same data, outside the graph.
  Tensor detach() const;

  // Whether ops may write to the memory in place; not that of from_blob(span<const T>).
  bool is_writable() const { return !get().storage || !impl_->storage->is_read_only(); }

  // Throws Error "[what] ..." while a function is being compiled: elements mean nothing then.
  void require_readable(const char* what) const;

  // Identity: true when both handles name the same tensor (not equal values).
  bool is_same(const Tensor& other) const { return impl_.get() == other.impl_.get(); }
  // How often the memory was written in place, by ops on any tensor that shares it. Autograd sees
  // by it that a saved tensor changed, compiled plans and fused ops that a weight is to be packed
  // anew.
  uint32_t version() const { return get().storage ? impl_->storage->version() : 0; }
  // After a write to data() without an op. (torch.autograd.graph.increment_version.)
  void increment_version() const;
  // Says which version the memory is at, where another library counts its writes: a number that
  // differs from the last one means that it was written.
  void set_version(uint32_t version) const;

  detail::TensorImpl* impl() const { return impl_.get(); }
  explicit Tensor(detail::Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  // Throws Error where the tensor is undefined.
  const detail::TensorImpl& get() const {
    if (!impl_) [[unlikely]]
      detail::fail_undefined();
    return *impl_.get();
  }
  static Tensor from_read_only(const void* data, size_t count, Dims sizes, DType dtype);
  void require_elements(DType wanted) const;
  detail::Ref<detail::TensorImpl> impl_;
};

// "f32[64, 128]"; "undefined" for an undefined tensor.
std::string to_string(const Tensor& tensor);
// The values as Python's print() shows a tensor of PyTorch's: four digits, three items at each end
// of what has more than 1000 elements, the dtype where it is not plain. Waits for a device. Throws
// Error while a function is being compiled.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// Numbers of C++, beside tensors in arithmetic.
template <class T>
concept Number = std::is_arithmetic_v<T>;

// Factories. The result is contiguous. Sizes must not be negative.
Tensor empty(Dims sizes, DType dtype = DType::f32, Device device = {});
Tensor full(Dims sizes, double value, DType dtype = DType::f32, Device device = {});
Tensor zeros(Dims sizes, DType dtype = DType::f32, Device device = {});
Tensor ones(Dims sizes, DType dtype = DType::f32, Device device = {});
// Like another tensor: its sizes, device and, unless `dtype` is given, its dtype.
Tensor empty_like(const Tensor& like, std::optional<DType> dtype = {});
Tensor full_like(const Tensor& like, double value, std::optional<DType> dtype = {});
Tensor zeros_like(const Tensor& like, std::optional<DType> dtype = {});
Tensor ones_like(const Tensor& like, std::optional<DType> dtype = {});
// 0, 1, ..., n - 1.
Tensor arange(int64_t n, DType dtype = DType::i64);

// A copy of `values`, rounded once to dtype, which is f32 unless said, whatever the numbers are.
// Throws Error unless there is one value per element.
Tensor from_values(std::span<const double> values, Dims sizes, DType dtype = DType::f32);
Tensor from_values(std::span<const int64_t> values, Dims sizes, DType dtype = DType::f32);
Tensor from_values(const std::vector<bool>& values, Dims sizes, DType dtype = DType::f32);
Tensor from_values(std::initializer_list<double> values, Dims sizes, DType dtype = DType::f32);
// Numbers of any type: a vector, an array, a span.
template <std::ranges::contiguous_range Values>
requires Number<std::ranges::range_value_t<Values>> Tensor from_values(const Values& values,
                                                                       Dims sizes,
                                                                       DType dtype = DType::f32) {
  using Wide =
      std::conditional_t<std::is_integral_v<std::ranges::range_value_t<Values>>, int64_t, double>;
  const std::vector<Wide> wide(std::ranges::begin(values), std::ranges::end(values));
  return from_values(std::span<const Wide>(wide), sizes, dtype);
}
// Numbers in braces: from_values({1, 2, 3}, {3}).
template <Number T>
Tensor from_values(std::initializer_list<T> values, Dims sizes, DType dtype = DType::f32) {
  return from_values(std::span<const T>(values.begin(), values.size()), sizes, dtype);
}
// Without sizes: a row of numbers of one type, or rows of one length:
// from_values({{1, 2}, {3, 4}}).
template <Number T>
Tensor from_values(std::initializer_list<T> values, DType dtype = DType::f32) {
  return from_values(values, Dims(static_cast<int64_t>(values.size())), dtype);
}
Tensor from_values(std::initializer_list<std::initializer_list<double>> rows,
                   DType dtype = DType::f32);

// A 0-dim tensor that promotes like a Python number: f64, i64 or bool by category only.
Tensor scalar(double value);
Tensor scalar(int64_t value);
Tensor scalar(bool value);
template <Number T>
Tensor scalar(T value) {
  if constexpr (std::is_integral_v<T>) {
    return scalar(static_cast<int64_t>(value));
  } else {
    return scalar(static_cast<double>(value));
  }
}

// Random factories draw from one seeded counter-based generator (Philox4x32-10): the same seed and
// the same sequence of calls give the same numbers for every number of threads. (Not PyTorch's
// stream.) Thread-safe.
void manual_seed(uint64_t seed);
// The generator's state, to save and restore.
struct RngState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  bool operator==(const RngState&) const = default;
};
RngState rng_state();
void set_rng_state(RngState state);
Tensor rand(Dims sizes, DType dtype = DType::f32);                              // U[0, 1)
Tensor uniform(Dims sizes, double low, double high, DType dtype = DType::f32);  // U[low, high)
Tensor randn(Dims sizes, DType dtype = DType::f32);                             // N(0, 1)
Tensor randint(int64_t low, int64_t high, Dims sizes);  // i64 in [low, high)

// Names with their tensors, in order: what a state is made of and a checkpoint holds.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Says what a tensor's storage is for, to a profiler that records memory. Modules say it of their
// parameters, optimizers of their state, autograd of gradients; inputs are the caller's to name.
void set_memory_category(const Tensor& tensor, MemoryCategory category);

}  // namespace epilogue

#pragma GCC visibility pop
