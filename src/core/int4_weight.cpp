// SPDX-License-Identifier: Apache-2.0
#include "epilogue/rounded_weight.h"

#include <string>
#include <vector>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {

// Whole rows of `sizes`, on the CPU.
void require_part(const char* what, const char* name, const Tensor& t, const Dims& sizes,
                  bool has_dtype, const char* dtypes) {
  if (t.defined() && t.sizes() == sizes && has_dtype && t.is_contiguous() &&
      t.device().type == DeviceType::cpu)
    return;
  throw Error("[" + std::string(what) + "] expected " + name + " " + dtypes + to_string(sizes) +
              ", contiguous and on the CPU, got " + to_string(t));
}

int64_t groups_of(const Int4Weight& w) { return (w.k + w.group - 1) / w.group; }

float scale_at(const Tensor& scales, int64_t i) {
  if (scales.dtype() == DType::f16) return static_cast<float>(scales.data_as<Half>()[i]);
  return static_cast<float>(scales.data_as<BFloat16>()[i]);
}

template <class T>
void dequantise(const Int8Weight& w, const Tensor& out) {
  T* const to = out.data_as<T>();
  const auto* const steps = static_cast<const int8_t*>(w.steps.data());
  const auto* const scales = w.scales.data_as<float>();
  for (int64_t i = 0; i < w.n; ++i)
    for (int64_t j = 0; j < w.k; ++j)
      to[i * w.k + j] = static_cast<T>(scales[i] * static_cast<float>(steps[i * w.k + j]));
}

template <class T>
void dequantise(const Int4Weight& w, const Tensor& out) {
  T* const to = out.data_as<T>();
  const auto* const steps = w.steps.data_as<uint8_t>();
  const auto* const zeros = w.zeros.defined() ? w.zeros.data_as<uint8_t>() : nullptr;
  const auto* const order = w.order.defined() ? w.order.data_as<int64_t>() : nullptr;
  const int64_t groups = groups_of(w);
  const int64_t row_bytes = (w.k + 1) / 2;
  for (int64_t i = 0; i < w.n; ++i)
    for (int64_t j = 0; j < w.k; ++j) {
      const int64_t g = i * groups + j / w.group;
      const int step = steps[i * row_bytes + j / 2] >> (j % 2 * 4) & 15;
      const int zero = zeros == nullptr ? 8 : zeros[g];
      const int64_t column = order == nullptr ? j : order[j];
      to[i * w.k + column] =
          static_cast<T>(scale_at(w.scales, g) * static_cast<float>(step - zero));
    }
}

template <class Weight>
Tensor values_of(const Weight& w, DType dtype, const char* what) {
  Tensor out = empty({w.n, w.k}, dtype);
  switch (dtype) {
    case DType::f32: dequantise<float>(w, out); break;
    case DType::bf16: dequantise<BFloat16>(w, out); break;
    case DType::f16: dequantise<Half>(w, out); break;
    default:
      throw Error("[" + std::string(what) + "] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(dtype)));
  }
  return out;
}

}  // namespace

void require_int4_weight(const Int4Weight& w, const char* what) {
  if (w.n < 1 || w.k < 1 || w.group < 1 || w.group % 32 != 0)
    throw Error("[" + std::string(what) + "] expected k in groups of a multiple of 32, got n " +
                std::to_string(w.n) + ", k " + std::to_string(w.k) + ", groups of " +
                std::to_string(w.group));
  const auto has = [](const Tensor& t, DType dtype) { return t.defined() && t.dtype() == dtype; };
  const Dims per_group = {w.n, groups_of(w)};
  require_part(what, "steps", w.steps, {w.n, (w.k + 1) / 2}, has(w.steps, DType::u8), "u8");
  require_part(what, "scales", w.scales, per_group,
               has(w.scales, DType::f16) || has(w.scales, DType::bf16), "f16 or bf16");
  if (w.zeros.defined())
    require_part(what, "zeros", w.zeros, per_group, has(w.zeros, DType::u8), "u8");
  if (!w.order.defined()) return;
  require_part(what, "order", w.order, {w.k}, has(w.order, DType::i64), "i64");
  std::vector<bool> seen(static_cast<size_t>(w.k));
  for (int64_t j = 0; j < w.k; ++j) {
    const int64_t column = w.order.data_as<int64_t>()[j];
    if (column < 0 || column >= w.k || seen[static_cast<size_t>(column)])
      throw Error("[" + std::string(what) + "] expected an order of " + std::to_string(w.k) +
                  " inputs, each once, got " + std::to_string(column) + " at " + std::to_string(j));
    seen[static_cast<size_t>(column)] = true;
  }
}

void require_int8_weight(const Int8Weight& w, const char* what) {
  if (w.n < 1 || w.k < 1)
    throw Error("[" + std::string(what) + "] expected n and k of at least 1, got n " +
                std::to_string(w.n) + ", k " + std::to_string(w.k));
  const auto has = [](const Tensor& t, DType dtype) { return t.defined() && t.dtype() == dtype; };
  require_part(what, "steps", w.steps, {w.n, w.k}, has(w.steps, DType::u8), "u8");
  require_part(what, "scales", w.scales, {w.n}, has(w.scales, DType::f32), "f32");
}

Tensor Int4Weight::dequantised(DType dtype) const {
  require_int4_weight(*this, "Int4Weight::dequantised");
  return values_of(*this, dtype, "Int4Weight::dequantised");
}

Tensor Int8Weight::dequantised(DType dtype) const {
  require_int8_weight(*this, "Int8Weight::dequantised");
  return values_of(*this, dtype, "Int8Weight::dequantised");
}

}  // namespace epilogue
