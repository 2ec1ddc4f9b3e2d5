// SPDX-License-Identifier: Apache-2.0
// Reading and writing elements for reference kernels: plain loops that define what an op means.
// Floating elements travel as double and are rounded once; integers travel as int64_t.
#pragma once

#include <array>

#include "core/element.h"
#include "ops/shape.h"

namespace epilogue {

// Row-major access to a strided tensor by linear index or by coordinates.
class Elements {
 public:
  explicit Elements(const Tensor& t) : tensor_(t), sizes_(t.sizes()), strides_(t.strides()) {}
  // Reads as if broadcast to `sizes`.
  Elements(const Tensor& t, const Dims& sizes)
      : tensor_(t), sizes_(sizes), strides_(broadcast_strides(t, sizes)) {}

  double get(int64_t linear) const {
    return load_element(tensor_.dtype(), tensor_.data(), offset(linear));
  }
  int64_t get_int(int64_t linear) const {
    return dispatch(tensor_.dtype(), [&]<class T>() {
      const T value = static_cast<const T*>(tensor_.data())[offset(linear)];
      if constexpr (std::is_integral_v<T>)
        return static_cast<int64_t>(value);
      else
        return static_cast<int64_t>(widen(value));
    });
  }
  void set(int64_t linear, double value) const {
    store_element(tensor_.dtype(), tensor_.data(), offset(linear), value);
  }
  void set_int(int64_t linear, int64_t value) const {
    dispatch(tensor_.dtype(), [&]<class T>() {
      T* data = static_cast<T*>(tensor_.data());
      if constexpr (std::is_integral_v<T>) {
        data[offset(linear)] = static_cast<T>(value);
      } else {
        data[offset(linear)] = round_from_double<T>(static_cast<double>(value));
      }
    });
  }
  // Element i becomes element j of `from`; numbers that are whole in both never pass a double.
  void copy(int64_t i, const Elements& from, int64_t j) const {
    if (is_floating(tensor_.dtype()) || is_floating(from.tensor_.dtype())) {
      set(i, from.get(j));
    } else {
      set_int(i, from.get_int(j));
    }
  }
  // Coordinates: one per dimension.
  double at(std::initializer_list<int64_t> index) const {
    int64_t o = 0;
    int d = 0;
    for (const int64_t i : index) o += i * strides_[d++];
    return load_element(tensor_.dtype(), tensor_.data(), o);
  }

 private:
  int64_t offset(int64_t linear) const {
    int64_t o = 0;
    for (int d = sizes_.rank() - 1; d >= 0; --d) {
      o += linear % sizes_[d] * strides_[d];
      linear /= sizes_[d];
    }
    return o;
  }
  const Tensor& tensor_;
  Dims sizes_;
  Dims strides_;
};

// out[i] = f(in0[i], in1[i], ...) after broadcasting; f takes and returns doubles, or int64_t where
// no floating type takes part.
template <size_t kInputs, class F>
void pointwise_reference(const Call& call, F&& f) {
  const Tensor& out = call.out[0];
  bool floating = is_floating(out.dtype());
  for (size_t k = 0; k < kInputs; ++k) floating = floating || is_floating(call.in[k].dtype());
  const Elements result(out);
  auto run = [&]<class Number, size_t... k>(std::index_sequence<k...>) {
    const std::array<Elements, kInputs> in = {Elements(call.in[k], out.sizes())...};
    for (int64_t i = 0; i < out.numel(); ++i) {
      if constexpr (std::is_same_v<Number, double>) {
        result.set(i, f(in[k].get(i)...));
      } else {
        result.set_int(i, static_cast<int64_t>(f(in[k].get_int(i)...)));
      }
    }
  };
  constexpr auto kIndices = std::make_index_sequence<kInputs>();
  if (floating) {
    run.template operator()<double>(kIndices);
  } else {
    run.template operator()<int64_t>(kIndices);
  }
}

}  // namespace epilogue
