// SPDX-License-Identifier: Apache-2.0
// A weight as it was when something was made of it. Packed panels, fused MLPs and plans ask it
// whether the weight changed since.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue {

struct KnownWeight {
  Tensor tensor;  // undefined: none
  const void* data = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::f32;
  uint32_t version = 0;

  KnownWeight() = default;
  explicit KnownWeight(const Tensor& t) : tensor(t) {
    if (!t.defined()) return;
    data = t.data();
    sizes = t.sizes();
    strides = t.strides();
    dtype = t.dtype();
    version = t.version();
  }

  // Whether the tensor was given other memory (Module::to()): what was made of the weight serves
  // it no more.
  bool is_moved() const {
    return tensor.data() != data || tensor.dtype() != dtype || !(tensor.sizes() == sizes) ||
           !(tensor.strides() == strides);
  }
  // Whether it was written: what was made of it is made again.
  bool is_written() const { return tensor.version() != version; }
  // Whether `t` is this weight, as it lay then: a view of the same memory is.
  bool is(const Tensor& t) const {
    if (!tensor.defined() || !t.defined()) return tensor.defined() == t.defined();
    return tensor.impl()->storage.get() == t.impl()->storage.get() && data == t.data() &&
           sizes == t.sizes() && strides == t.strides() && dtype == t.dtype();
  }
};

}  // namespace epilogue
