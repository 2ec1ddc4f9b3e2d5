// SPDX-License-Identifier: Apache-2.0
// Sums into results; compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/panels/write_back.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>

#include "backend/cpu/simd/panels/widen-inl.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

template <FloatType kType>
void write_row(const float* sums, const float* addend, int64_t n, const WriteBack& to,
               Storage<kType>* out) {
  const Df d;
  const Vf alpha = set(to.alpha);
  const Vf scale = set(to.scale);
  int64_t j = 0;
  for (; j + static_cast<int64_t>(kLanes) <= n; j += kLanes) {
    Vf v = hn::Mul(load(sums + j), alpha);
    if (addend != nullptr) v = hn::MulAdd(load(addend + j), scale, v);
    store_from_f32<kType>(d, v, out + j);
  }
  if (j == n) return;
  const auto rest = static_cast<size_t>(n - j);
  Vf v = hn::Mul(load_tail(sums + j, rest), alpha);
  if (addend != nullptr) v = hn::MulAdd(load_tail(addend + j, rest), scale, v);
  store_tail<kType>(d, v, out + j, rest);
}

// In strips of kStrip columns, so that the addend's buffer is small.
template <FloatType kType>
void write_rows_typed(const float* sums, int64_t sums_stride, int64_t m, int64_t n,
                      const WriteBack& to) {
  constexpr int64_t kStrip = 512;
  HWY_ALIGN float buffer[kStrip];
  auto* out = static_cast<Storage<kType>*>(to.out);
  for (int64_t j = 0; j < n; j += kStrip) {
    const int64_t width = std::min(kStrip, n - j);
    const float* addend = nullptr;
    for (int64_t i = 0; i < m; ++i) {
      if (to.addend != nullptr && (addend == nullptr || to.addend_row_stride != 0)) {
        const int64_t offset = i * to.addend_row_stride + j * to.addend_col_stride;
        addend = widened_row(advance(to.addend, to.addend_type, offset), to.addend_type,
                             to.addend_col_stride, width, buffer);
      }
      write_row<kType>(sums + i * sums_stride + j, addend, width, to,
                       out + i * to.out_row_stride + j);
    }
  }
}

void write_rows(const float* sums, int64_t sums_stride, int64_t m, int64_t n, const WriteBack& to) {
  switch (to.out_type) {
    case FloatType::f32: return write_rows_typed<FloatType::f32>(sums, sums_stride, m, n, to);
    case FloatType::bf16: return write_rows_typed<FloatType::bf16>(sums, sums_stride, m, n, to);
    case FloatType::f16: return write_rows_typed<FloatType::f16>(sums, sums_stride, m, n, to);
  }
}

}  // namespace

constexpr WriteBackKernels table = {.target = kTargetName, .rows = write_rows};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const WriteBackKernels& write_back_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
