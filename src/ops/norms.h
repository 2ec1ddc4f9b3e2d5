// SPDX-License-Identifier: Apache-2.0
// Shared by layer_norm and rms_norm: shapes, dtypes and checks. A row is one normalised slice.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>

#include "ops/shape.h"

namespace epilogue {

struct NormRows {
  int64_t rows;
  int64_t n;  // elements per row
};

inline NormRows norm_rows(const Tensor& input, const Dims& normalized_shape) {
  const int64_t n = element_count(normalized_shape);
  int64_t rows = 1;
  for (int d = 0; d < input.dim() - normalized_shape.rank(); ++d) rows *= input.sizes()[d];
  return {rows, n};
}

// mean and rstd are kept in the dtype of the computation.
inline DType stat_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The input's sizes with 1 for each normalised dimension: the shape of mean and rstd.
inline Dims stat_sizes(const Tensor& input, const Dims& normalized_shape) {
  Dims sizes = input.sizes();
  for (int d = 1; d <= normalized_shape.rank(); ++d) sizes[sizes.rank() - d] = 1;
  return sizes;
}

// Attribute 1 of rms_norm, or the machine epsilon of the dtype it is computed in (rms_norm.cpp).
double rms_norm_eps(const Call& call);

// Fails unless normalized_shape is the end of the input's shape and every defined parameter has
// that shape and the input's dtype (or f32 beside a 16-bit input).
inline void require_norm_arguments(const OpDef& op, const Tensor& input,
                                   const Dims& normalized_shape,
                                   std::initializer_list<const Tensor*> parameters) {
  require_floating(op, input);
  const int shift = input.dim() - normalized_shape.rank();
  bool matches = !normalized_shape.empty() && shift >= 0;
  for (int d = 0; matches && d < normalized_shape.rank(); ++d)
    matches = input.sizes()[d + shift] == normalized_shape[d];
  if (!matches)
    fail(op, "an input whose shape ends with the normalized_shape " + to_string(normalized_shape),
         to_string(input));
  for (const Tensor* p : parameters) {
    if (!p->defined()) continue;
    const bool dtype_fits = p->dtype() == input.dtype() ||
                            (is_low_precision(input.dtype()) && p->dtype() == DType::f32);
    if (!(p->sizes() == normalized_shape) || !dtype_fits)
      fail(op,
           "a weight or bias of shape " + to_string(normalized_shape) + " for " + to_string(input),
           to_string(*p));
  }
}

inline bool is_norm_eps(double eps) { return std::isfinite(eps) && eps >= 0; }

inline void require_norm_eps(const OpDef& op, double eps) {
  if (!is_norm_eps(eps)) fail(op, "a finite eps >= 0", std::to_string(eps));
}

// Fails unless `stat` can be the mean or rstd that the forward pass over `input` gave.
inline void require_norm_statistic(const OpDef& op, const Tensor& input,
                                   const Dims& normalized_shape, const Tensor& stat) {
  if (!(stat.sizes() == stat_sizes(input, normalized_shape)) || !is_floating(stat.dtype()))
    fail(op, "mean and rstd of the forward pass over " + to_string(input), to_string(stat));
}

// A result that the output mask of a backward op leaves out: no elements.
inline OutMeta masked_out(bool wanted, const Dims& sizes, DType dtype) {
  return {wanted ? sizes : Dims{0}, dtype};
}
inline DType parameter_dtype(const Tensor& parameter, const Tensor& input) {
  return parameter.defined() ? parameter.dtype() : input.dtype();
}

}  // namespace epilogue
