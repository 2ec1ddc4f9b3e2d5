// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/block_lines.h"

#include <cstdint>

#include "backend/cpu/simd/panels/prefetch.h"

namespace epilogue::simd {

void choose_stores(BlockLines& lines, bool is_large, int64_t rows) {
  constexpr uintptr_t kLine = 64;
  const auto is_whole = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kLine == 0; };
  const HiddenElements& e = lines.hidden;
  lines.streams = is_large && lines.columns == kTileBlock && lines.stride % kTileBlock == 0 &&
                  is_whole(lines.out) && is_whole(e.hidden) && is_whole(e.d_gate) &&
                  is_whole(e.d_up);
  lines.ahead = lines.streams || rows < kTileBlock ? 0 : kTileBlock * lines.stride;
}

}  // namespace epilogue::simd

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace epilogue::simd {
namespace {

// gcc 12 warns of the forms without a mask that they read what was never set.
constexpr __mmask16 kAll = 0xFFFF;

// 2^y = p 2^n: a minimax fit of degree 3 for the fraction (8e-5).
__m512 exp2_of(__m512 y) {
  const __m512 n = _mm512_maskz_roundscale_ps(kAll, y, 8);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(0.05517167F), _mm512_set1_ps(0.24261112F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69326099F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.99992807F));
  return _mm512_maskz_scalef_ps(kAll, p, n);
}

// 2^y of y between -bound and bound; of NaN 2^bound.
__m512 exp2_within(__m512 y, float bound) {
  constexpr int kSmallerMagnitude = 2;  // of y and the bound, with y's sign
  return exp2_of(_mm512_maskz_range_ps(kAll, y, _mm512_set1_ps(bound), kSmallerMagnitude));
}

// 1 / (1 + e) by the processor's estimate of the reciprocal (6e-5).
__m512 reciprocal_of_one_and(__m512 e) {
  return _mm512_maskz_rcp14_ps(kAll, _mm512_add_ps(e, _mm512_set1_ps(1.0F)));
}

// 1 / (1 + 2^y). 0 for NaN, which then comes from what it is multiplied with.
__m512 logistic2(__m512 y) {
  constexpr float kBeyond = 130;  // 2^130 is infinite, whatever the fit
  return reciprocal_of_one_and(exp2_within(y, kBeyond));
}

// Of s = 1 / (1 + 2^y): s itself, and 1 - s without cancellation.
struct Logistic {
  __m512 s;
  __m512 rest;
};
Logistic logistic_parts(__m512 y) {
  constexpr float kFinite = 126;
  const __m512 e = exp2_within(y, kFinite);
  const __m512 s = reciprocal_of_one_and(e);
  return {s, _mm512_mul_ps(e, s)};
}

// f(x) and f'(x).
struct Derived {
  __m512 value;
  __m512 slope;
};

struct Identity {
  static __m512 apply(__m512 x) { return x; }
};
struct Relu {
  static __m512 apply(__m512 x) { return _mm512_maskz_max_ps(kAll, _mm512_setzero_ps(), x); }
  // NaN has the slope of what is above 0.
  static Derived derived(__m512 x) {
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LE_OQ);
    const auto rest = static_cast<__mmask16>(~below);
    return {apply(x), _mm512_maskz_mov_ps(rest, _mm512_set1_ps(1.0F))};
  }
};
constexpr float kLog2E = 1.44269504F;
struct Silu {
  static __m512 apply(__m512 x) {
    return _mm512_mul_ps(x, logistic2(_mm512_mul_ps(x, _mm512_set1_ps(-kLog2E))));
  }
  // s + x s (1 - s)
  static Derived derived(__m512 x) {
    const Logistic l = logistic_parts(_mm512_mul_ps(x, _mm512_set1_ps(-kLog2E)));
    const __m512 value = _mm512_mul_ps(x, l.s);
    return {value, _mm512_fmadd_ps(value, l.rest, l.s)};
  }
};
// x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  static __m512 apply(__m512 x) {
    constexpr float k1 = -2 * 0.797884561F * kLog2E;
    const __m512 slope =
        _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(k1 * 0.044715F), _mm512_set1_ps(k1));
    return _mm512_mul_ps(x, logistic2(_mm512_mul_ps(x, slope)));
  }
  // s + x s (1 - s) 2u'
  static Derived derived(__m512 x) {
    constexpr float beta2 = 2 * 0.797884561F;
    constexpr float kappa = 0.044715F;
    const __m512 x2 = _mm512_mul_ps(x, x);
    const __m512 slope = _mm512_fmadd_ps(x2, _mm512_set1_ps(-beta2 * kLog2E * kappa),
                                         _mm512_set1_ps(-beta2 * kLog2E));
    const Logistic l = logistic_parts(_mm512_mul_ps(x, slope));
    const __m512 value = _mm512_mul_ps(x, l.s);
    const __m512 du2 =
        _mm512_fmadd_ps(x2, _mm512_set1_ps(3 * beta2 * kappa), _mm512_set1_ps(beta2));
    return {value, _mm512_fmadd_ps(_mm512_mul_ps(value, l.rest), du2, l.s)};
  }
};

// x Phi(x), Phi the normal distribution: Phi(-a) = e^(-a^2 / 2) t Q(t) with t = 1 / (1 + 0.3 a),
// a = |x|; Q is a fit of degree 3 for a <= 13.5 (2.3e-4).
struct GeluErf {
  struct Normal {
    __m512 phi;
    __m512 bell;  // e^(-x^2 / 2)
  };
  static Normal normal(__m512 x) {
    const __m512 a = _mm512_abs_ps(x);
    const __m512 t =
        _mm512_maskz_rcp14_ps(kAll, _mm512_fmadd_ps(a, _mm512_set1_ps(0.3F), _mm512_set1_ps(1.0F)));
    __m512 q = _mm512_fmadd_ps(t, _mm512_set1_ps(0.20884458F), _mm512_set1_ps(0.03558802F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0.13747804F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0.1182044F));
    const __m512 y = _mm512_mul_ps(_mm512_mul_ps(a, a), _mm512_set1_ps(-0.5F * kLog2E));
    // Of two operands with a NaN the second is given.
    const __m512 bell = exp2_of(_mm512_maskz_max_ps(kAll, _mm512_set1_ps(-150.0F), y));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(q, t), bell);
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return {_mm512_mask_sub_ps(tail, above, _mm512_set1_ps(1.0F), tail), bell};
  }
  static __m512 apply(__m512 x) { return _mm512_mul_ps(x, normal(x).phi); }
  static Derived derived(__m512 x) {
    const Normal n = normal(x);
    const __m512 density = _mm512_mul_ps(n.bell, _mm512_set1_ps(0.398942280F));
    return {_mm512_mul_ps(x, n.phi), _mm512_fmadd_ps(x, density, n.phi)};
  }
};

// 16 sums as f32, whose columns have these scales.
template <bool kIntegers>
[[gnu::always_inline]] inline __m512 scaled(const float* sums, float row_scale, __m512 scale) {
  if (!kIntegers) return _mm512_mul_ps(_mm512_loadu_ps(sums), scale);
  return _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAll, _mm512_loadu_si512(sums)),
                       _mm512_mul_ps(_mm512_set1_ps(row_scale), scale));
}

// 16 sums of a row, the first of them in column `column` of the block's 32.
[[gnu::always_inline]] inline __m512 sums_at(const BlockLines& lines, const float* sums,
                                             int64_t row, int64_t column) {
  if (lines.scales == nullptr) return _mm512_loadu_ps(sums);
  const __m512 scale = _mm512_loadu_ps(lines.scales + column);
  const __m512 value = lines.row_scales == nullptr
                           ? scaled<false>(sums, 0, scale)
                           : scaled<true>(sums, lines.row_scales[row], scale);
  if (lines.totals == nullptr) return value;
  return _mm512_add_ps(_mm512_loadu_ps(lines.totals + (sums - lines.sums)), value);
}

template <int kProducts, bool kIntegers, bool kFirst>
void group_totals(const BlockLines& lines, int64_t row, int64_t rows) {
  constexpr int64_t width = kTileBlock / kProducts;
  constexpr int64_t beside = kProducts == 1 ? kTileColumns : kTileBlock * kTileColumns;
  const __m512 left = _mm512_loadu_ps(lines.scales);
  const __m512 right = _mm512_loadu_ps(lines.scales + kTileColumns);
  const float* sums = lines.sums + row * width;
  float* to = lines.totals + row * width;
  const auto add = [](const float* from, float row_scale, __m512 scale, float* total) {
    const __m512 value = scaled<kIntegers>(from, row_scale, scale);
    _mm512_storeu_ps(total, kFirst ? value : _mm512_add_ps(_mm512_loadu_ps(total), value));
  };
  for (int64_t i = row; i < row + rows; ++i, sums += width, to += width) {
    const float row_scale = kIntegers ? lines.row_scales[i] : 0;
    add(sums, row_scale, left, to);
    add(sums + beside, row_scale, right, to + beside);
  }
}

template <int kProducts>
LineFunction group_function(bool has_integers, bool is_first) {
  if (has_integers)
    return is_first ? group_totals<kProducts, true, true> : group_totals<kProducts, true, false>;
  return is_first ? group_totals<kProducts, false, true> : group_totals<kProducts, false, false>;
}

// A line of 32 columns.
struct Line {
  __m512 low;
  __m512 high;

  Line operator+(const Line& o) const {
    return {_mm512_add_ps(low, o.low), _mm512_add_ps(high, o.high)};
  }
  Line operator*(const Line& o) const {
    return {_mm512_mul_ps(low, o.low), _mm512_mul_ps(high, o.high)};
  }
};

__m512 widened(__mmask16 lanes, const uint16_t* from) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(lanes, from));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, wide, 16));
}
Line widened_line(__mmask32 lanes, const uint16_t* from) {
  return {widened(static_cast<__mmask16>(lanes), from),
          widened(static_cast<__mmask16>(lanes >> 16), from + 16)};
}

// Where lines go.
struct LineStore {
  bool streams;
  __mmask32 stored;
  int64_t ahead;

  explicit LineStore(const BlockLines& lines)
      : streams(lines.streams),
        stored(static_cast<__mmask32>((uint64_t{1} << lines.columns) - 1)),
        ahead(lines.ahead) {}

  [[gnu::always_inline]] void operator()(uint16_t* to, const Line& line) const {
    constexpr int kToWrite = 1;
    const auto bits = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(line.high, line.low));
    if (ahead != 0) __builtin_prefetch(to + ahead, kToWrite, kIntoL2);
    if (streams) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits);
    } else {
      _mm512_mask_storeu_epi16(to, stored, bits);
    }
  }
};

[[gnu::always_inline]] inline Line line_of_sums(const BlockLines& lines, int64_t row) {
  const float* const sums = lines.sums + row * kTileBlock;
  Line line = {sums_at(lines, sums, row, 0), sums_at(lines, sums + 16, row, 16)};
  if (lines.bias != nullptr)
    line = line + Line{_mm512_loadu_ps(lines.bias), _mm512_loadu_ps(lines.bias + 16)};
  return line;
}

template <class F>
void plain(const BlockLines& lines, int64_t row, int64_t rows) {
  const LineStore store(lines);
  for (int64_t i = row; i < row + rows; ++i) {
    Line line = line_of_sums(lines, i);
    if (lines.addend != nullptr) {
      const uint16_t* const addend = lines.addend + i * lines.stride;
      line = line + widened_line(store.stored, addend);
      if (lines.ahead != 0) fetch_line<kIntoL2>(addend + lines.ahead);
    }
    store(lines.out + i * lines.stride, {F::apply(line.low), F::apply(line.high)});
  }
}

// A slope of 0 lets nothing through, not even what is infinite.
__m512 through(__m512 d, __m512 slope) {
  const __mmask16 flat = _mm512_cmp_ps_mask(slope, _mm512_setzero_ps(), _CMP_EQ_OQ);
  return _mm512_maskz_mul_ps(static_cast<__mmask16>(~flat), d, slope);
}

template <class F, HiddenSums kSums>
void hidden_block(const BlockLines& lines, int64_t row, int64_t rows) {
  const LineStore store(lines);
  const HiddenElements& e = lines.hidden;
  // What is read comes from as far as what is written goes to.
  const int64_t ahead = kTileBlock * lines.stride;
  for (int64_t i = row; i < row + rows; ++i) {
    const int64_t at = i * lines.stride;
    const Line sums = line_of_sums(lines, i);
    if constexpr (kSums != HiddenSums::d_hidden) store(lines.out + at, sums);
    if constexpr (kSums == HiddenSums::gate) {
      store(e.hidden + at, {F::apply(sums.low), F::apply(sums.high)});
      continue;
    }
    fetch_line<kIntoL2>(e.gate + at + ahead);
    const Line gate = widened_line(store.stored, e.gate + at);
    if constexpr (kSums == HiddenSums::up) {
      store(e.hidden + at, Line{F::apply(gate.low), F::apply(gate.high)} * sums);
      continue;
    }
    const Derived low = F::derived(gate.low);
    const Derived high = F::derived(gate.high);
    const Line value = {low.value, high.value};
    Line d_value = sums;
    if (e.up != nullptr) {
      fetch_line<kIntoL2>(e.up + at + ahead);
      const Line up = widened_line(store.stored, e.up + at);
      if (e.hidden != nullptr) store(e.hidden + at, value * up);
      if (e.d_up != nullptr) store(e.d_up + at, value * sums);
      d_value = sums * up;
    } else if (e.hidden != nullptr) {
      store(e.hidden + at, value);
    }
    if (e.d_gate != nullptr)
      store(e.d_gate + at, {through(d_value.low, low.slope), through(d_value.high, high.slope)});
  }
}

template <class F>
void gated(const BlockLines& lines, int64_t row, int64_t rows) {
  const float* gate = lines.sums + row * kTileColumns;
  const float* up = gate + kTileBlock * kTileColumns;
  uint16_t* to = lines.out + row * lines.stride;
  const auto stored = static_cast<__mmask16>((uint32_t{1} << lines.columns) - 1);
  for (int64_t i = 0; i < rows; ++i, gate += kTileColumns, up += kTileColumns, to += lines.stride) {
    const __m512 product = _mm512_mul_ps(F::apply(sums_at(lines, gate, row + i, 0)),
                                         sums_at(lines, up, row + i, kTileColumns));
    const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(product));
    if (lines.columns == kTileColumns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
    } else {
      _mm256_mask_storeu_epi16(to, stored, bits);
    }
  }
}

void narrow(__mmask16 lanes, __m512 v, uint16_t* to) {
  _mm256_mask_storeu_epi16(to, lanes, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

template <class F>
void hidden_loop(const HiddenElements& e, int64_t begin, int64_t n) {
  for (int64_t i = begin; i < begin + n; i += 16) {
    const int64_t left = begin + n - i;
    const auto lanes = static_cast<__mmask16>(left >= 16 ? kAll : (1U << left) - 1);
    const Derived f = F::derived(widened(lanes, e.gate + i));
    const __m512 up = e.up != nullptr ? widened(lanes, e.up + i) : _mm512_set1_ps(1.0F);
    if (e.hidden != nullptr) narrow(lanes, _mm512_mul_ps(f.value, up), e.hidden + i);
    if (e.d_hidden == nullptr) continue;
    const __m512 d = widened(lanes, e.d_hidden + i);
    if (e.d_up != nullptr) narrow(lanes, _mm512_mul_ps(d, f.value), e.d_up + i);
    if (e.d_gate == nullptr) continue;
    narrow(lanes, through(_mm512_mul_ps(d, up), f.slope), e.d_gate + i);
  }
}

}  // namespace

HiddenFunction hidden_elements(PointwiseFn f) {
  switch (f) {
    case PointwiseFn::relu: return hidden_loop<Relu>;
    case PointwiseFn::silu: return hidden_loop<Silu>;
    case PointwiseFn::gelu_tanh: return hidden_loop<GeluTanh>;
    case PointwiseFn::gelu_erf: return hidden_loop<GeluErf>;
    default: return nullptr;
  }
}

LineFunction group_lines(int products, bool has_integers, bool is_first) {
  return products == 1 ? group_function<1>(has_integers, is_first)
                       : group_function<2>(has_integers, is_first);
}

LineFunction plain_lines(std::optional<PointwiseFn> f) {
  if (!f) return plain<Identity>;
  switch (*f) {
    case PointwiseFn::relu: return plain<Relu>;
    case PointwiseFn::silu: return plain<Silu>;
    case PointwiseFn::gelu_tanh: return plain<GeluTanh>;
    case PointwiseFn::gelu_erf: return plain<GeluErf>;
    default: return nullptr;
  }
}

LineFunction gated_lines(PointwiseFn f) {
  switch (f) {
    case PointwiseFn::relu: return gated<Relu>;
    case PointwiseFn::silu: return gated<Silu>;
    case PointwiseFn::gelu_tanh: return gated<GeluTanh>;
    case PointwiseFn::gelu_erf: return gated<GeluErf>;
    default: return nullptr;
  }
}

namespace {

template <class F>
LineFunction hidden_block_of(HiddenSums sums) {
  switch (sums) {
    case HiddenSums::gate: return hidden_block<F, HiddenSums::gate>;
    case HiddenSums::up: return hidden_block<F, HiddenSums::up>;
    case HiddenSums::d_hidden: return hidden_block<F, HiddenSums::d_hidden>;
  }
  return nullptr;
}

}  // namespace

LineFunction hidden_lines(PointwiseFn f, HiddenSums sums) {
  switch (f) {
    case PointwiseFn::relu: return hidden_block_of<Relu>(sums);
    case PointwiseFn::silu: return hidden_block_of<Silu>(sums);
    case PointwiseFn::gelu_tanh: return hidden_block_of<GeluTanh>(sums);
    case PointwiseFn::gelu_erf: return hidden_block_of<GeluErf>(sums);
    default: return nullptr;
  }
}

void end_streams() { _mm_sfence(); }

}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {

LineFunction group_lines(int, bool, bool) { return nullptr; }
LineFunction plain_lines(std::optional<PointwiseFn>) { return nullptr; }
LineFunction gated_lines(PointwiseFn) { return nullptr; }
LineFunction hidden_lines(PointwiseFn, HiddenSums) { return nullptr; }
HiddenFunction hidden_elements(PointwiseFn) { return nullptr; }
void end_streams() {}

}  // namespace epilogue::simd

#endif
