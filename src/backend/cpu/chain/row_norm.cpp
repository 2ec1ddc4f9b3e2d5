// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/row_norm.h"

#include <cstring>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/scratch.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;

thread_local simd::Scratch row_scratch;
thread_local simd::Scratch parameter_scratch;
thread_local simd::Scratch rounded_scratch;

// A parameter as contiguous f32, plus `added`; or null.
const float* as_f32(const Tensor& t, int64_t k, float* buffer, float added = 0) {
  if (!t.defined()) return nullptr;
  const FloatType type = float_type(t.dtype());
  if (type == FloatType::f32 && t.is_contiguous() && added == 0)
    return static_cast<const float*>(t.data());
  const auto* data = static_cast<const char*>(t.data());
  const auto bytes = static_cast<int64_t>(size_of(type));
  if (t.is_contiguous()) {
    simd::to_f32(type, data, buffer, static_cast<size_t>(k));
  } else {
    for (int64_t i = 0; i < k; ++i)
      simd::to_f32(type, data + i * t.strides()[0] * bytes, buffer + i, 1);
  }
  if (added != 0)
    for (int64_t i = 0; i < k; ++i) buffer[i] += added;
  return buffer;
}

// y = round(x / rms(x)) * weight, as Llama's layers have it: rounded to `type` before the product.
void rms_norm_rounded(const simd::RowKernels& kernels, FloatType type, const float* gamma,
                      float eps, float* y, size_t n) {
  kernels.rms_norm(y, nullptr, eps, y, n);
  if (type != FloatType::f32) {
    char* const rounded = reinterpret_cast<char*>(rounded_scratch.get(n));
    simd::from_f32(type, y, rounded, n);
    simd::to_f32(type, rounded, y, n);
  }
  if (gamma == nullptr) return;
  for (size_t i = 0; i < n; ++i) y[i] *= gamma[i];
}

}  // namespace

void normalise_rows(const RowChainSpec::Norm& norm, const SourceRows& x, int64_t m, int64_t k,
                    const TargetRows& y) {
  const auto n = static_cast<size_t>(k);
  float* const row = row_scratch.get(n);
  float* const parameters = parameter_scratch.get(2 * n);
  const float added = norm.weight_is == NormWeight::one_plus ? 1 : 0;
  const float* const gamma = as_f32(norm.weight, k, parameters, added);
  const bool rounds = norm.weight_is == NormWeight::rounded;
  const float* const beta = as_f32(norm.bias, k, parameters + k);
  const simd::RowKernels& kernels = simd::row_kernels();
  const auto eps = static_cast<float>(norm.eps);
  for (int64_t i = 0; i < m; ++i) {
    const auto* from =
        static_cast<const char*>(x.data) + i * x.stride * static_cast<int64_t>(size_of(x.type));
    auto* to = static_cast<char*>(y.data) + i * y.stride * static_cast<int64_t>(size_of(y.type));
    float* const f32 = y.type == FloatType::f32 ? reinterpret_cast<float*>(to) : row;
    simd::to_f32(x.type, from, f32, n);
    if (norm.kind == Norm::rms && rounds) rms_norm_rounded(kernels, x.type, gamma, eps, f32, n);
    if (norm.kind == Norm::rms && !rounds) kernels.rms_norm(f32, gamma, eps, f32, n);
    if (norm.kind == Norm::layer) kernels.layer_norm(f32, gamma, beta, eps, f32, n);
    if (y.type != FloatType::f32) simd::from_f32(y.type, f32, to, n);
    const auto rest = static_cast<size_t>((y.stride - k) * static_cast<int64_t>(size_of(y.type)));
    std::memset(to + n * size_of(y.type), 0, rest);
  }
}

}  // namespace epilogue::cpu
