// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/backend.h"
#include "core/element.h"
#include "epilogue/tensor.h"

namespace epilogue {

namespace {

// What was made on the host, on `device`.
Tensor placed(const Tensor& host, Device device) {
  if (device.type == DeviceType::cpu) return host;
  const Tensor t = empty(host.sizes(), host.dtype(), device);
  device_backend(device).memory()->copy_from_host(t.data(), host.data(), host.bytes());
  return t;
}

}  // namespace

Tensor full(Dims sizes, double value, DType dtype, Device device) {
  Tensor t = empty(sizes, dtype);
  dispatch(dtype, [&]<class T>() {
    std::fill_n(static_cast<T*>(t.data()), t.numel(), round_from_double<T>(value));
  });
  return placed(t, device);
}

Tensor zeros(Dims sizes, DType dtype, Device device) {
  Tensor t = empty(sizes, dtype);
  if (t.numel() > 0) std::memset(t.data(), 0, t.bytes());
  return placed(t, device);
}

Tensor ones(Dims sizes, DType dtype, Device device) { return full(sizes, 1, dtype, device); }

Tensor empty_like(const Tensor& like) { return empty(like.sizes(), like.dtype(), like.device()); }

Tensor arange(int64_t n, DType dtype) {
  Tensor t = empty({n}, dtype);
  for (int64_t i = 0; i < n; ++i) store_element(dtype, t.data(), i, static_cast<double>(i));
  return t;
}

Tensor from_values(std::span<const double> values, Dims sizes, DType dtype) {
  Tensor t = empty(sizes, dtype);
  if (static_cast<int64_t>(values.size()) != t.numel())
    throw Error("[from_values] expected " + std::to_string(t.numel()) + " values for sizes " +
                to_string(sizes) + ", got " + std::to_string(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    store_element(dtype, t.data(), static_cast<int64_t>(i), values[i]);
  return t;
}

Tensor from_values(std::initializer_list<double> values, Dims sizes, DType dtype) {
  return from_values(std::span<const double>(values.begin(), values.size()), sizes, dtype);
}

Tensor scalar(double value) {
  Tensor t = empty({}, DType::f64);
  *t.data_as<double>() = value;
  t.impl()->is_wrapped_number = true;
  return t;
}

Tensor scalar(int64_t value) {
  Tensor t = empty({}, DType::i64);
  *t.data_as<int64_t>() = value;
  t.impl()->is_wrapped_number = true;
  return t;
}

}  // namespace epilogue
