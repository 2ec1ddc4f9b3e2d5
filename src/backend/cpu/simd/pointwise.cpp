// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels: one loop for each function and each way that its operands lie, compiled once
// per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/pointwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "backend/cpu/simd/formulas-inl.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// An operand that is an array, or one value for all elements.
struct Array {
  const float* data;
  explicit Array(const TileOperand& operand) : data(operand.data) {}
  HWY_INLINE Vf at(size_t i) const { return load(data + i); }
  HWY_INLINE Vf tail(size_t i, size_t n) const { return load_tail(data + i, n); }
};
struct Scalar {
  float value;
  explicit Scalar(const TileOperand& operand) : value(operand.value) {}
  HWY_INLINE Vf at(size_t) const { return set(value); }
  HWY_INLINE Vf tail(size_t, size_t) const { return set(value); }
};

// The formula of every value of the parameters.
template <PointwiseFn kFn>
struct Formula {
  template <class... Vs>
  static HWY_INLINE Vf apply(Vs... vs) {
    return formula(Of<kFn>(), vs...);
  }
};

// Functors, not lambdas: a lambda does not take part in Highway's target region. A formula with its
// parameters as vectors, made before its loop.
template <class F, class Indices>
struct Applied;
template <class F, size_t... kIndex>
struct Applied<F, std::index_sequence<kIndex...>> {
  Vf parameters[kMostPointwiseParameters];
  HWY_INLINE explicit Applied(const float* values) {
    ((parameters[kIndex] = set(values[kIndex])), ...);
  }
  template <class... Vs>
  HWY_INLINE Vf operator()(Vs... operands) const {
    return F::apply(operands..., parameters[kIndex]...);
  }
};

template <class F, class... Operands>
HWY_INLINE void loop(const F& f, float* out, size_t n, Operands... operands) {
  size_t i = 0;
  // Two at a time: the chains are longer than the out-of-order window can overlap by itself.
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vf first = f(operands.at(i)...);
    const Vf second = f(operands.at(i + kLanes)...);
    store(first, out + i);
    store(second, out + i + kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) store(f(operands.at(i)...), out + i);
  if (i < n) store_tail(f(operands.tail(i, n - i)...), out + i, n - i);
}

// Bit k of kScalars: operand k is one value.
template <PointwiseFn kFn, class F, size_t kScalars, size_t... kOperand>
void run_form(const TileOperand* operands, float* out, size_t n, const float* parameters,
              std::index_sequence<kOperand...>) {
  using Parameters = std::make_index_sequence<parameter_count(pointwise_row(kFn))>;
  loop(Applied<F, Parameters>(parameters), out, n,
       std::conditional_t<(kScalars >> kOperand & 1) != 0, Scalar, Array>(operands[kOperand])...);
}

template <PointwiseFn kFn, class F, size_t... kScalars>
void choose_form(size_t scalars, const TileOperand* operands, float* out, size_t n,
                 const float* parameters, std::index_sequence<kScalars...>) {
  constexpr auto kOperands = std::make_index_sequence<operand_count(kFn)>();
  (void)((scalars == kScalars &&
          (run_form<kFn, F, kScalars>(operands, out, n, parameters, kOperands), true)) ||
         ...);
}

void fill(float value, float* out, size_t n) {
  const Vf v = set(value);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(v, out + i);
  if (i < n) store_tail(v, out + i, n - i);
}

template <PointwiseFn kFn, class F>
void run_formula(const TileOperand* operands, float* out, size_t n, const float* parameters) {
  constexpr size_t kOperands = operand_count(kFn);
  constexpr size_t kForms = (size_t{1} << kOperands) - 1;  // but all of them scalars
  constexpr auto kEachForm = std::make_index_sequence<kForms>();
  size_t scalars = 0;
  for (size_t k = 0; k < kOperands; ++k) scalars |= size_t{operands[k].data == nullptr} << k;
  if (scalars != kForms)
    return choose_form<kFn, F>(scalars, operands, out, n, parameters, kEachForm);
  TileOperand spread[kOperands];
  std::copy_n(operands, kOperands, spread);
  fill(operands[0].value, out, n);
  spread[0].data = out;
  choose_form<kFn, F>(scalars & ~size_t{1}, spread, out, n, parameters, kEachForm);
}

// The formula for these parameters.
template <PointwiseFn kFn, class... Cases>
bool run_case(const TileOperand* operands, float* out, size_t n, const float* parameters,
              std::tuple<Cases...>) {
  return (
      (Cases::holds(parameters) && (run_formula<kFn, Cases>(operands, out, n, parameters), true)) ||
      ...);
}

template <PointwiseFn kFn>
void run_function(const TileOperand* operands, float* out, size_t n, const float* parameters) {
  if constexpr (requires { typename CasesOf<kFn>::Type; })
    if (run_case<kFn>(operands, out, n, parameters, typename CasesOf<kFn>::Type())) return;
  run_formula<kFn, Formula<kFn>>(operands, out, n, parameters);
}

template <PointwiseFn kFn>
void run_each(const TileOperand* operands, float* out, size_t n, const float*) {
  const TileOperand x = operands[0];
  for (size_t i = 0; i < n; ++i)
    out[i] = formula(Of<kFn>(), x.data != nullptr ? x.data[i] : x.value);
}

template <size_t kIndex>
constexpr FunctionTile tile_of() {
  constexpr PointwiseRow row = kPointwiseTable[kIndex];
  if constexpr (row.kind != PointwiseKind::elementwise) {
    return nullptr;
  } else if constexpr (row.one_at_a_time) {
    return run_each<row.fn>;
  } else {
    return run_function<row.fn>;
  }
}

template <size_t... kIndex>
constexpr std::array<FunctionTile, kPointwiseFns> tiles(std::index_sequence<kIndex...>) {
  return {tile_of<kIndex>()...};
}

// The mask's bytes have a quarter of a lane's width; the compiler vectorises the plain loop.
void mask_scale(const float* x, const uint8_t* keep, float scale, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = keep[i] != 0 ? x[i] * scale : 0.0F;
}

void scale(const float* x, float s, float* out, size_t n) {
  const TileOperand operands[] = {x, s};
  run_function<PointwiseFn::mul>(operands, out, n, nullptr);
}
void axpy(float s, const float* x, float* out, size_t n) {
  const TileOperand operands[] = {out, x};
  run_function<PointwiseFn::add>(operands, out, n, &s);
}

}  // namespace

constexpr PointwiseKernels table = {
    .target = kTargetName,
    .functions = tiles(PointwiseFnSequence()),
    .mask_scale = mask_scale,
    .scale = scale,
    .axpy = axpy,
    .fill = fill,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const PointwiseKernels& pointwise_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
