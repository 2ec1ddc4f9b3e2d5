// SPDX-License-Identifier: Apache-2.0
// Conversions, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/convert.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cstring>

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

template <FloatType kFrom, FloatType kTo>
void convert(const Storage<kFrom>* HWY_RESTRICT in, Storage<kTo>* HWY_RESTRICT out, size_t n) {
  const Df d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store_from_f32<kTo>(d, load_as_f32<kFrom>(d, in + i), out + i);
  if (i < n) store_tail<kTo>(d, load_tail<kFrom>(d, in + i, n - i), out + i, n - i);
}

// One call for many short rows: a call and a table look-up per row would cost as much as the row.
template <FloatType kFrom, FloatType kTo>
void convert_rows(const Storage<kFrom>* HWY_RESTRICT in, int64_t in_stride,
                  Storage<kTo>* HWY_RESTRICT out, int64_t out_stride, size_t rows, size_t n) {
  for (size_t i = 0; i < rows; ++i, in += in_stride, out += out_stride)
    convert<kFrom, kTo>(in, out, n);
}

}  // namespace

constexpr ConvertKernels table = {
    .target = kTargetName,
    .bf16_to_f32 = convert<FloatType::bf16, FloatType::f32>,
    .f32_to_bf16 = convert<FloatType::f32, FloatType::bf16>,
    .f16_to_f32 = convert<FloatType::f16, FloatType::f32>,
    .f32_to_f16 = convert<FloatType::f32, FloatType::f16>,
    .f32_rows = convert_rows<FloatType::f32, FloatType::f32>,
    .bf16_to_f32_rows = convert_rows<FloatType::bf16, FloatType::f32>,
    .f32_to_bf16_rows = convert_rows<FloatType::f32, FloatType::bf16>,
    .f16_to_f32_rows = convert_rows<FloatType::f16, FloatType::f32>,
    .f32_to_f16_rows = convert_rows<FloatType::f32, FloatType::f16>,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const ConvertKernels& convert_kernels() { return EPILOGUE_PICK(table); }

void to_f32(FloatType type, const void* in, float* out, size_t n) {
  if (n == 0) return;
  switch (type) {
    case FloatType::f32: std::memcpy(out, in, n * sizeof(float)); return;
    case FloatType::bf16:
      convert_kernels().bf16_to_f32(static_cast<const uint16_t*>(in), out, n);
      return;
    case FloatType::f16:
      convert_kernels().f16_to_f32(static_cast<const uint16_t*>(in), out, n);
      return;
  }
}

void from_f32(FloatType type, const float* in, void* out, size_t n) {
  if (n == 0) return;
  switch (type) {
    case FloatType::f32: std::memcpy(out, in, n * sizeof(float)); return;
    case FloatType::bf16: convert_kernels().f32_to_bf16(in, static_cast<uint16_t*>(out), n); return;
    case FloatType::f16: convert_kernels().f32_to_f16(in, static_cast<uint16_t*>(out), n); return;
  }
}

void to_f32_rows(FloatType type, const void* in, int64_t in_stride, float* out, int64_t out_stride,
                 size_t rows, size_t n) {
  const ConvertKernels& kernels = convert_kernels();
  const auto* const half = static_cast<const uint16_t*>(in);
  switch (type) {
    case FloatType::f32:
      return kernels.f32_rows(static_cast<const float*>(in), in_stride, out, out_stride, rows, n);
    case FloatType::bf16:
      return kernels.bf16_to_f32_rows(half, in_stride, out, out_stride, rows, n);
    case FloatType::f16: return kernels.f16_to_f32_rows(half, in_stride, out, out_stride, rows, n);
  }
}

void from_f32_rows(FloatType type, const float* in, int64_t in_stride, void* out,
                   int64_t out_stride, size_t rows, size_t n) {
  const ConvertKernels& kernels = convert_kernels();
  auto* const half = static_cast<uint16_t*>(out);
  switch (type) {
    case FloatType::f32:
      return kernels.f32_rows(in, in_stride, static_cast<float*>(out), out_stride, rows, n);
    case FloatType::bf16: return kernels.f32_to_bf16_rows(in, in_stride, half, out_stride, rows, n);
    case FloatType::f16: return kernels.f32_to_f16_rows(in, in_stride, half, out_stride, rows, n);
  }
}

}  // namespace epilogue::simd
#endif  // HWY_ONCE
