// SPDX-License-Identifier: Apache-2.0
// RMS norms of rows as one op of torch: one pass over a row that stays in the nearest cache, where
// a module's forward makes five to seven tensors.
#include "norms.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "element.h"

namespace epilogue_torch {
namespace {

using torch::headeronly::ScalarType;

// Where the weight comes in: as epilogue::NormWeight.
enum class Form : uint8_t { product, rounded, one_plus };

constexpr int64_t kLanes = 64;
constexpr int64_t kElements = 1 << 15;  // of the rows of a thread, at least

template <class T>
[[gnu::always_inline]] inline float mean_square(const T* x, int64_t n) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = widen(x[i + lane]);
      sums[lane] += value * value;
    }
  for (int64_t lane = 0; i < n; ++i, ++lane) sums[lane] += widen(x[i]) * widen(x[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0] / static_cast<float>(n);
}

// is_number: the scale is one above 0. Then all of x are numbers, and so is what they become before
// the weight comes in: a NaN is a weight's, or of 0 times infinity.
template <Form form, bool is_number, class T>
[[gnu::always_inline]] inline void scale_row(const T* x, const T* weight, float scale, T* y,
                                             int64_t n) {
  const auto put = [](float value, T& out) {
    if constexpr (is_number)
      narrow_number(value, out);
    else
      narrow(value, out);
  };
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float value = widen(x[i]) * scale;
    if constexpr (form == Form::rounded) {
      T rounded;
      put(value, rounded);
      value = widen(rounded) * widen(weight[i]);
    } else {
      value *= form == Form::one_plus ? 1.0f + widen(weight[i]) : widen(weight[i]);
    }
    put(value, y[i]);
  }
}

template <class T>
struct Rows {
  const T* x;
  const T* weight;
  T* y;
  int64_t columns;
  Form form;
  float eps;
};

template <bool is_number, class T>
[[gnu::always_inline]] inline void norm_row(const Rows<T>& rows, const T* x, float scale, T* y) {
  const int64_t n = rows.columns;
  switch (rows.form) {
    case Form::product: return scale_row<Form::product, is_number>(x, rows.weight, scale, y, n);
    case Form::rounded: return scale_row<Form::rounded, is_number>(x, rows.weight, scale, y, n);
    case Form::one_plus: return scale_row<Form::one_plus, is_number>(x, rows.weight, scale, y, n);
  }
}

template <class T>
[[gnu::always_inline]] inline void norm_all(const Rows<T>& rows, int64_t begin, int64_t end) {
  const int64_t n = rows.columns;
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = rows.x + row * n;
    T* const y = rows.y + row * n;
    const float scale = 1.0f / std::sqrt(mean_square(x, n) + rows.eps);
    if (scale > 0 && std::isfinite(scale))
      norm_row<true>(rows, x, scale, y);
    else
      norm_row<false>(rows, x, scale, y);
  }
}

// Compiled for AVX-512 and AVX2 too, which the library's baseline lacks; the loader picks one.
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void norm_rows(const Rows<float>& rows,
                                                                           int64_t begin,
                                                                           int64_t end) {
  norm_all(rows, begin, end);
}
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void norm_rows(
    const Rows<uint16_t>& rows, int64_t begin, int64_t end) {
  norm_all(rows, begin, end);
}

template <class T>
void norm_threaded(const void* x, const Torch& weight, void* y, int64_t count, Form form,
                   float eps) {
  const int64_t columns = weight.size(0);
  const Rows<T> rows{static_cast<const T*>(x),
                     static_cast<const T*>(weight.const_data_ptr()),
                     static_cast<T*>(y),
                     columns,
                     form,
                     eps};
  torch::stable::parallel_for(0, count, std::max<int64_t>(1, kElements / columns),
                              [&](int64_t begin, int64_t end) { norm_rows(rows, begin, end); });
}

}  // namespace

bool is_norm_weight(const Torch& weight, ScalarType type) {
  return weight.is_cpu() && weight.is_contiguous() && weight.dim() == 1 && weight.size(0) != 0 &&
         weight.scalar_type() == type &&
         (type == ScalarType::Float || type == ScalarType::BFloat16);
}

void norm_rows_into(const void* x, const Torch& weight, void* y, int64_t rows, int64_t form,
                    double eps) {
  if (form < 0 || form > 2)
    throw std::runtime_error("rms_norm: expected a form of 0 to 2, got " + std::to_string(form));
  if (weight.scalar_type() == ScalarType::Float)
    norm_threaded<float>(x, weight, y, rows, static_cast<Form>(form), static_cast<float>(eps));
  else
    norm_threaded<uint16_t>(x, weight, y, rows, static_cast<Form>(form), static_cast<float>(eps));
}

namespace {

// y = x / sqrt(mean(x^2) + eps) over the last dimension, times the weight. Everything is f32 but
// for what `form` rounds.
Torch rms_norm(Torch x, Torch weight, int64_t form, double eps) {
  require_defined(x, "x");
  require_defined(weight, "weight");
  if (!x.is_cpu() || !x.is_contiguous() || !is_norm_weight(weight, x.scalar_type()) ||
      x.dim() == 0 || x.size(x.dim() - 1) != weight.size(0))
    throw std::runtime_error(
        "rms_norm: expected contiguous rows and a weight of as many columns, both Float or both "
        "BFloat16, got " +
        describe(x) + " and " + describe(weight));
  epilogue::Dims sizes;
  for (int64_t d = 0; d < x.dim(); ++d) sizes.push_back(x.size(d));
  Torch y = empty_like_rows(x, sizes);
  norm_rows_into(x.const_data_ptr(), weight, y.mutable_data_ptr(), x.numel() / weight.size(0), form,
                 eps);
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def("rms_norm(Tensor x, Tensor weight, int form, float eps) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) { m.impl("rms_norm", TORCH_BOX(&rms_norm)); }

}  // namespace epilogue_torch
