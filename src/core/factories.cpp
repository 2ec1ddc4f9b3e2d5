// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/backend.h"
#include "core/element.h"
#include "epilogue/tensor.h"

namespace epilogue {

namespace {

// Copies a tensor made on the host to `device`.
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
  Tensor t = empty(sizes, dtype, device);
  if (t.numel() == 0) return t;
  if (device.type == DeviceType::cpu) {
    std::memset(t.data(), 0, t.bytes());
  } else {
    device_backend(device).memory()->clear(t.data(), t.bytes());
  }
  return t;
}

Tensor ones(Dims sizes, DType dtype, Device device) { return full(sizes, 1, dtype, device); }

Tensor empty_like(const Tensor& like, std::optional<DType> dtype) {
  return empty(like.sizes(), dtype.value_or(like.dtype()), like.device());
}
Tensor full_like(const Tensor& like, double value, std::optional<DType> dtype) {
  return full(like.sizes(), value, dtype.value_or(like.dtype()), like.device());
}
Tensor zeros_like(const Tensor& like, std::optional<DType> dtype) {
  return zeros(like.sizes(), dtype.value_or(like.dtype()), like.device());
}
Tensor ones_like(const Tensor& like, std::optional<DType> dtype) {
  return full_like(like, 1, dtype);
}

Tensor arange(int64_t n, DType dtype) {
  Tensor t = empty({n}, dtype);
  for (int64_t i = 0; i < n; ++i) store_element(dtype, t.data(), i, static_cast<double>(i));
  return t;
}

namespace {

// store(i) writes element i of a tensor's memory.
template <class Store>
Tensor stored(size_t count, const Dims& sizes, DType dtype, Store&& store) {
  Tensor t = empty(sizes, dtype);
  if (static_cast<int64_t>(count) != t.numel())
    throw Error("[from_values] expected " + std::to_string(t.numel()) + " values for sizes " +
                to_string(sizes) + ", got " + std::to_string(count));
  for (size_t i = 0; i < count; ++i) store(t.data(), i);
  return t;
}

}  // namespace

Tensor from_values(std::span<const double> values, Dims sizes, DType dtype) {
  return stored(values.size(), sizes, dtype, [&](void* data, size_t i) {
    store_element(dtype, data, static_cast<int64_t>(i), values[i]);
  });
}

Tensor from_values(std::span<const int64_t> values, Dims sizes, DType dtype) {
  return stored(values.size(), sizes, dtype, [&](void* data, size_t i) {
    if (dtype == DType::i64) {
      static_cast<int64_t*>(data)[i] = values[i];  // not by way of double
    } else {
      store_element(dtype, data, static_cast<int64_t>(i), static_cast<double>(values[i]));
    }
  });
}

Tensor from_values(const std::vector<bool>& values, Dims sizes, DType dtype) {
  return from_values(std::vector<int64_t>(values.begin(), values.end()), sizes, dtype);
}

Tensor from_values(std::initializer_list<double> values, Dims sizes, DType dtype) {
  return from_values(std::span<const double>(values.begin(), values.size()), sizes, dtype);
}

Tensor from_values(std::initializer_list<std::initializer_list<double>> rows, DType dtype) {
  const size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  std::vector<double> values;
  for (const auto& row : rows) {
    if (row.size() != columns)
      throw Error("[from_values] expected rows of one length, got " + std::to_string(columns) +
                  " and " + std::to_string(row.size()) + " values");
    values.insert(values.end(), row.begin(), row.end());
  }
  return from_values(values, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)},
                     dtype);
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

Tensor scalar(bool value) {
  Tensor t = empty({}, DType::boolean);
  *t.data_as<bool>() = value;
  t.impl()->is_wrapped_number = true;
  return t;
}

}  // namespace epilogue
