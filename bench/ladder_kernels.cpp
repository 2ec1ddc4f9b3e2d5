// SPDX-License-Identifier: Apache-2.0
#include "bench/ladder_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"

namespace epilogue::bench::ladder {
namespace {

// Sums that one pass keeps: with 4 + 4 loaded values they are what 16 registers hold.
constexpr int64_t kTile = 4;
// Rows of w per block: with k = 768 in f32 192 KiB, a part of L2.
constexpr int64_t kBlockColumns = 64;
constexpr int64_t kPanel = 8;

Sizes sizes_of(const Tensor& x, const Tensor& w, const Tensor& y) {
  if (w.dim() != 2 || !w.is_contiguous())
    throw Error("[ladder] expected row-major w [n, k], got " + to_string(w));
  return product_sizes(x, w.size(0), w.size(1), w.dtype(), y);
}

// The one dtype switch: f32 or bf16.
template <class Body>
void dispatch_dtype(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::bf16) return body.template operator()<BFloat16>();
  throw Error("[ladder] expected f32 or bf16, got " + std::string(dtype_name(dtype)));
}

template <class T>
const T* elements(const Tensor& t) {
  return static_cast<const T*>(t.data());
}

template <class T>
void naive_rows(const T* x, const T* w, T* y, int64_t rows, int64_t n, int64_t k) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += static_cast<float>(x[i * k + p]) * static_cast<float>(w[j * k + p]);
      y[i * n + j] = T(sum);
    }
  }
}

// kRows x kColumns results at once: every value that is loaded serves several products.
template <int64_t kRows, int64_t kColumns, class T>
void tile(const T* x, const T* w, T* y, int64_t n, int64_t k) {
  float sums[kRows][kColumns] = {};
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kRows; ++i) {
      const auto a = static_cast<float>(x[i * k + p]);
      for (int64_t j = 0; j < kColumns; ++j) sums[i][j] += a * static_cast<float>(w[j * k + p]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) y[i * n + j] = T(sums[i][j]);
}

template <class T>
void blocked_rows(const T* x, const T* w, T* y, int64_t rows, int64_t n, int64_t k) {
  for (int64_t block = 0; block < n; block += kBlockColumns) {
    const int64_t end = std::min(n, block + kBlockColumns);
    for (int64_t i = 0; i < rows; i += kTile) {
      for (int64_t j = block; j < end; j += kTile) {
        if (i + kTile <= rows && j + kTile <= end) {
          tile<kTile, kTile>(x + i * k, w + j * k, y + i * n + j, n, k);
          continue;
        }
        for (int64_t r = i; r < std::min(rows, i + kTile); ++r)
          for (int64_t c = j; c < std::min(end, j + kTile); ++c)
            tile<1, 1>(x + r * k, w + c * k, y + r * n + c, n, k);
      }
    }
  }
}

// Four numbers that the compiler keeps in one register of its baseline (SSE2, NEON).
using Float4 = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
constexpr int64_t kPanelVectors = kPanel / kLanes;

Float4 load4(const float* from) {
  Float4 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// kRows rows times one panel: the inner loop runs over neighbours, four at a time.
template <int64_t kRows, class T>
void panel_tile(const T* x, const float* panel, T* y, int64_t n, int64_t k, int64_t columns) {
  Float4 sums[kRows][kPanelVectors] = {};
  for (int64_t p = 0; p < k; ++p, panel += kPanel) {
    for (int64_t i = 0; i < kRows; ++i) {
      const auto a = static_cast<float>(x[i * k + p]);
      for (int64_t v = 0; v < kPanelVectors; ++v) sums[i][v] += a * load4(panel + v * kLanes);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < columns; ++j) y[i * n + j] = T(sums[i][j / kLanes][j % kLanes]);
}

template <class T>
void packed_rows(const T* x, const float* panels, T* y, int64_t rows, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; j += kPanel, panels += k * kPanel) {
    const int64_t columns = std::min(kPanel, n - j);
    int64_t i = 0;
    for (; i + kTile <= rows; i += kTile)
      panel_tile<kTile>(x + i * k, panels, y + i * n + j, n, k, columns);
    for (; i < rows; ++i) panel_tile<1>(x + i * k, panels, y + i * n + j, n, k, columns);
  }
}

template <class T>
void pack(const T* w, int64_t n, int64_t k, float* panels) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t p = 0; p < k; ++p)
      panels[(j / kPanel * k + p) * kPanel + j % kPanel] = static_cast<float>(w[j * k + p]);
}

// y[i] = f(a[i], b[i]) in f32.
template <class F>
void each_element(const Tensor& a, const Tensor& b, const Tensor& y, F&& f) {
  const bool fits = a.numel() == y.numel() && b.numel() == y.numel() && a.dtype() == y.dtype() &&
                    b.dtype() == y.dtype() && a.is_contiguous() && b.is_contiguous() &&
                    y.is_contiguous();
  if (!fits)
    throw Error("[ladder] expected equal sizes, got " + to_string(a) + ", " + to_string(y));
  dispatch_dtype(y.dtype(), [&]<class T>() {
    parallel_for(y.numel(), 1, [&](int64_t begin, int64_t end) {
      T* const out = static_cast<T*>(y.data());
      for (int64_t i = begin; i < end; ++i)
        out[i] = T(f(static_cast<float>(elements<T>(a)[i]), static_cast<float>(elements<T>(b)[i])));
    });
  });
}

}  // namespace

Sizes product_sizes(const Tensor& x, int64_t n, int64_t k, DType dtype, const Tensor& y) {
  const bool fits = x.dim() == 2 && y.dim() == 2 && x.size(1) == k && y.size(0) == x.size(0) &&
                    y.size(1) == n && x.dtype() == dtype && y.dtype() == dtype &&
                    x.is_contiguous() && y.is_contiguous();
  if (!fits)
    throw Error("[ladder] expected row-major x [m, " + std::to_string(k) + "] and y [m, " +
                std::to_string(n) + "], got " + to_string(x) + " and " + to_string(y));
  return {x.size(0), n, k};
}

void naive_product(const Tensor& x, const Tensor& w, const Tensor& y) {
  const Sizes s = sizes_of(x, w, y);
  dispatch_dtype(w.dtype(), [&]<class T>() {
    parallel_for(s.m, 1, [&](int64_t begin, int64_t end) {
      naive_rows(elements<T>(x) + begin * s.k, elements<T>(w),
                 static_cast<T*>(y.data()) + begin * s.n, end - begin, s.n, s.k);
    });
  });
}

void blocked_product(const Tensor& x, const Tensor& w, const Tensor& y) {
  const Sizes s = sizes_of(x, w, y);
  dispatch_dtype(w.dtype(), [&]<class T>() {
    parallel_for(s.m, kTile, [&](int64_t begin, int64_t end) {
      blocked_rows(elements<T>(x) + begin * s.k, elements<T>(w),
                   static_cast<T*>(y.data()) + begin * s.n, end - begin, s.n, s.k);
    });
  });
}

PackedProduct::PackedProduct(const Tensor& w)
    : n_(w.dim() == 2 ? w.size(0) : 0), k_(w.dim() == 2 ? w.size(1) : 0), dtype_(w.dtype()) {
  if (w.dim() != 2 || !w.is_contiguous())
    throw Error("[ladder] expected row-major w [n, k], got " + to_string(w));
  panels_.resize(static_cast<size_t>((n_ + kPanel - 1) / kPanel * kPanel * k_));
  dispatch_dtype(dtype_, [&]<class T>() { pack(elements<T>(w), n_, k_, panels_.data()); });
}

void PackedProduct::run(const Tensor& x, const Tensor& y) const {
  const Sizes s = product_sizes(x, n_, k_, dtype_, y);
  dispatch_dtype(dtype_, [&]<class T>() {
    parallel_for(s.m, kTile, [&](int64_t begin, int64_t end) {
      packed_rows(elements<T>(x) + begin * s.k, panels_.data(),
                  static_cast<T*>(y.data()) + begin * s.n, end - begin, s.n, s.k);
    });
  });
}

void scalar_gelu(const Tensor& gate, const Tensor& y) {
  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  constexpr float kRootTwoOverPi = 0.7978845608F;
  constexpr float kCubic = 0.044715F;
  each_element(gate, gate, y, [](float x, float) {
    return 0.5F * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
  });
}

void scalar_mul(const Tensor& a, const Tensor& b, const Tensor& y) {
  each_element(a, b, y, [](float p, float q) { return p * q; });
}

}  // namespace epilogue::bench::ladder
