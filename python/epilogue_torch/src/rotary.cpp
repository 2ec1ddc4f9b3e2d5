// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings of queries and keys as one op of torch: one pass, where the models'
// own functions make eleven tensors.
//
//   y = x * cos + rotate_half(x) * sin     of the first columns of each head, as many as cos has
//
// rotate_half(x) is (-x2, x1) of the halves of those columns. Columns behind them are copied.
#include "rotary.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

#include "element.h"

namespace epilogue_torch {
namespace {

using torch::headeronly::ScalarType;

constexpr int64_t kElements = 1 << 15;  // of the rows of a thread, at least

// Of q and k, and how it rounds; by cos and sin of the same dtype, or of f32.
enum class Kind : uint8_t { f32, bf16, bf16_wide, bf16_by_f32 };

struct Call {
  Kind kind;
  std::span<const RotaryHeads> parts;
  const RotaryWaves& waves;
  int64_t rows;
};

// As PyTorch's own ops: each rounds its result to T, or, is_wide, they are f32 and the sum alone is
// rounded. This file is compiled without fused multiply-adds, which would round once less.
template <bool is_wide, class T>
[[gnu::always_inline]] inline float rounded(float value) {
  if constexpr (is_wide) return value;
  T out;
  narrow(value, out);
  return widen(out);
}

template <bool is_wide, class T, class Wave>
[[gnu::always_inline]] inline void rotate_head(const T* x, T* y, const Wave* cos, const Wave* sin,
                                               int64_t half) {
  const auto sum = [](float a, float b) { return rounded<is_wide, T>(a) + rounded<is_wide, T>(b); };
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float first = widen(x[i]), second = widen(x[i + half]);
    narrow(sum(first * widen(cos[i]), -second * widen(sin[i])), y[i]);
    narrow(sum(second * widen(cos[i + half]), first * widen(sin[i + half])), y[i + half]);
  }
}

template <bool is_wide, class T, class Wave>
[[gnu::always_inline]] inline void rotate_all(const Call& call, int64_t begin, int64_t end) {
  const RotaryWaves& w = call.waves;
  for (int64_t at = begin; at < end; ++at) {
    const int64_t batch = at / call.rows, row = at % call.rows;
    const auto* const cos =
        static_cast<const Wave*>(w.cos) + batch * w.cos_strides[0] + row * w.cos_strides[1];
    const auto* const sin =
        static_cast<const Wave*>(w.sin) + batch * w.sin_strides[0] + row * w.sin_strides[1];
    for (const RotaryHeads& h : call.parts) {
      const T* x = static_cast<const T*>(h.x) + batch * h.x_strides[0] + row * h.x_strides[1];
      T* y = static_cast<T*>(h.y) + batch * h.y_strides[0] + row * h.y_strides[1];
      const auto rest = static_cast<size_t>(h.columns - w.columns) * sizeof(T);
      for (int64_t head = 0; head < h.count; ++head, x += h.x_strides[2], y += h.y_strides[2]) {
        rotate_head<is_wide>(x, y, cos, sin, w.columns / 2);
        if (rest != 0 && x != y) std::memcpy(y + w.columns, x + w.columns, rest);
      }
    }
  }
}

// Compiled for AVX-512 and AVX2 too, which the library's baseline lacks; the loader picks one.
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void rotate(const Call& call,
                                                                        int64_t begin,
                                                                        int64_t end) {
  switch (call.kind) {
    case Kind::f32: return rotate_all<true, float, float>(call, begin, end);
    case Kind::bf16: return rotate_all<false, uint16_t, uint16_t>(call, begin, end);
    case Kind::bf16_wide: return rotate_all<true, uint16_t, uint16_t>(call, begin, end);
    case Kind::bf16_by_f32: return rotate_all<true, uint16_t, float>(call, begin, end);
  }
}

bool is_number(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::BFloat16;
}

}  // namespace

std::optional<RotaryWaves> waves_of(const Torch& cos, const Torch& sin, ScalarType type,
                                    bool is_wide, int64_t batch, int64_t rows) {
  const ScalarType wave = cos.scalar_type();
  if (!cos.is_cpu() || !sin.is_cpu() || sin.scalar_type() != wave ||
      !(wave == type || (wave == ScalarType::Float && is_wide)))
    return std::nullopt;
  const Layout c(cos), s(sin);
  if (c.sizes.size() != 3 || s.sizes.size() != 3) return std::nullopt;
  const int64_t columns = c.sizes[2];
  const auto fits = [&](const Layout& w) {
    return (w.sizes[0] == batch || w.sizes[0] == 1) && w.sizes[1] == rows &&
           w.sizes[2] == columns && (w.strides[2] == 1 || columns == 1);
  };
  if (columns % 2 != 0 || !fits(c) || !fits(s)) return std::nullopt;
  return RotaryWaves{c.data,
                     s.data,
                     columns,
                     {c.sizes[0] == 1 ? 0 : c.strides[0], c.strides[1]},
                     {s.sizes[0] == 1 ? 0 : s.strides[0], s.strides[1]},
                     wave == ScalarType::Float};
}

void rotate_heads(std::span<const RotaryHeads> parts, const RotaryWaves& waves, ScalarType type,
                  bool is_wide, int64_t batch, int64_t rows) {
  const Kind kind = type == ScalarType::Float ? Kind::f32
                    : waves.are_f32           ? Kind::bf16_by_f32
                    : is_wide                 ? Kind::bf16_wide
                                              : Kind::bf16;
  const Call call{kind, parts, waves, rows};
  int64_t elements = 0;
  for (const RotaryHeads& h : parts) elements += h.count * h.columns;
  const int64_t grain = std::max<int64_t>(1, kElements / std::max<int64_t>(1, elements));
  if (batch * rows <= grain)
    rotate(call, 0, batch * rows);
  else
    torch::stable::parallel_for(0, batch * rows, grain,
                                [&](int64_t begin, int64_t end) { rotate(call, begin, end); });
}

namespace {

[[noreturn]] void refuse(const Torch& q, const Torch& k, const Torch& cos, const Torch& sin) {
  throw std::runtime_error(
      "rotary: expected q and k [batch, heads, rows, columns] (or rows before heads) of one dtype, "
      "Float or BFloat16, cos and sin [batch or 1, rows, an even number of q's columns, or fewer] "
      "of that dtype or Float, columns that lie one after the other, on the CPU; got " +
      describe(q) + ", " + describe(k) + ", " + describe(cos) + " and " + describe(sin));
}

// Strides of [batch, row, head], of tensors whose heads are dimension `heads`.
void set_strides(int64_t (&to)[3], const Layout& of, int64_t heads) {
  to[0] = of.strides[0];
  to[1] = of.strides[static_cast<size_t>(3 - heads)];
  to[2] = of.strides[static_cast<size_t>(heads)];
}

// Memory for what the op gives for x: laid out as x, or, where columns that do not turn are put
// behind, or x's columns would lie apart, contiguous, as the models' functions have it.
Torch empty_for(const Torch& x, const Layout& layout, int64_t turned) {
  if (layout.sizes[3] == turned) {
    Torch y = torch::stable::empty_like(x);
    if (turned == 1 || y.stride(3) == 1) return y;
  }
  return empty_like_rows(x, epilogue::Dims(layout.sizes));
}

// q and k with their positions' rotations, in memory of their own. heads: the dimension of heads,
// 1 or 2. is_wide: products are f32, and the sum alone is rounded; cos of f32 asks for it.
std::tuple<Torch, Torch> rotary(Torch q, Torch k, Torch cos, Torch sin, int64_t heads,
                                bool is_wide) {
  require_defined(q, "q");
  require_defined(k, "k");
  require_defined(cos, "cos");
  require_defined(sin, "sin");
  if (heads != 1 && heads != 2)
    throw std::runtime_error("rotary: expected heads in dimension 1 or 2, got " +
                             std::to_string(heads));
  const ScalarType type = q.scalar_type();
  if (!q.is_cpu() || !k.is_cpu() || !is_number(type) || k.scalar_type() != type)
    refuse(q, k, cos, sin);
  const Layout lq(q), lk(k);
  if (lq.sizes.size() != 4 || lk.sizes.size() != 4) refuse(q, k, cos, sin);
  const auto at = static_cast<size_t>(heads);
  const int64_t batch = lq.sizes[0], rows = lq.sizes[3 - at];
  const auto waves = waves_of(cos, sin, type, is_wide, batch, rows);
  if (!waves) refuse(q, k, cos, sin);
  const int64_t columns = waves->columns;
  const auto fits = [&](const Layout& x) {
    return x.sizes[0] == batch && x.sizes[3 - at] == rows && x.sizes[3] >= columns &&
           (x.strides[3] == 1 || x.sizes[3] == 1);
  };
  if (!fits(lq) || !fits(lk)) refuse(q, k, cos, sin);

  Torch q_out = empty_for(q, lq, columns), k_out = empty_for(k, lk, columns);
  const Layout* const from[] = {&lq, &lk};
  Torch* const to[] = {&q_out, &k_out};
  RotaryHeads parts[2];
  for (int i = 0; i < 2; ++i) {
    RotaryHeads& h = parts[i];
    h.x = from[i]->data;
    h.count = from[i]->sizes[at];
    h.columns = from[i]->sizes[3];
    set_strides(h.x_strides, *from[i], heads);
    const Layout out(*to[i]);
    h.y = to[i]->mutable_data_ptr();
    set_strides(h.y_strides, out, heads);
  }
  rotate_heads(parts, *waves, type, is_wide, batch, rows);
  return {std::move(q_out), std::move(k_out)};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "rotary(Tensor q, Tensor k, Tensor cos, Tensor sin, int heads, bool is_wide) -> (Tensor, "
      "Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) { m.impl("rotary", TORCH_BOX(&rotary)); }

}  // namespace epilogue_torch
