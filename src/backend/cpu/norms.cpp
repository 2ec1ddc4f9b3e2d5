// SPDX-License-Identifier: Apache-2.0
// CPU kernels of layer_norm and rms_norm, forward and backward: rows through L1, threads split
// rows.
#include "ops/norms.h"

#include <algorithm>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

// The last dimensions, as many as normalized_shape (attribute 0) has: one row.
Dims row_dims(const Call& call, const Tensor& t) {
  Dims dims;
  for (int d = t.dim() - call.attr<Dims>(0).rank(); d < t.dim(); ++d) dims.push_back(d);
  return dims;
}
Rows rows_of(const Call& call, const Tensor& t) { return {t, row_dims(call, t)}; }

const char* decline_unless_float_types(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && !has_float_type(t.dtype())) return kNeedsFloatType;
  return nullptr;
}
const char* decline_row_norm(const Call& call) { return decline_unless_float_types(call.in); }

// weight or bias as contiguous f32, or null; in this thread's `slot` unless it lies so already.
const float* parameter(const Call& call, const Tensor& t, Slot slot) {
  if (!t.defined()) return nullptr;
  const Rows row = rows_of(call, t);
  return row.read(0, 0, row.size(), scratch(slot, row.size()));
}

int64_t row_grain(const Rows& x) { return grain_for(x.size()); }

// Calls body(row, x, y) for each row; y is written back after it.
template <class Body>
void for_each_row(const Rows& x, const Rows& y, Body&& body) {
  parallel_for(x.count(), row_grain(x), [&](int64_t begin, int64_t end) {
    float* x_buffer = scratch(Slot::a, x.size());
    float* y_buffer = scratch(Slot::b, x.size());
    for (int64_t r = begin; r < end; ++r) {
      float* to = y.target(r, 0, y_buffer);
      body(r, x.read(r, 0, x.size(), x_buffer), to);
      y.write(r, 0, x.size(), to);
    }
  });
}

void run_layer_norm(const Call& call) {
  const float* gamma = parameter(call, call.in[1], Slot::shared_a);
  const float* beta = parameter(call, call.in[2], Slot::shared_b);
  const auto eps = static_cast<float>(call.attr<double>(1));
  auto* mean = call.out[1].data_as<float>();
  auto* rstd = call.out[2].data_as<float>();
  const Rows x = rows_of(call, call.in[0]);
  const auto kernel = simd::row_kernels().layer_norm;
  for_each_row(x, rows_of(call, call.out[0]), [&](int64_t r, const float* from, float* to) {
    const simd::RowMoments m = kernel(from, gamma, beta, eps, to, static_cast<size_t>(x.size()));
    mean[r] = m.mean;
    rstd[r] = m.rstd;
  });
}

void run_rms_norm(const Call& call) {
  const float* gamma = parameter(call, call.in[1], Slot::shared_a);
  const auto eps = static_cast<float>(rms_norm_eps(call));
  auto* rstd = call.out[1].data_as<float>();
  const Rows x = rows_of(call, call.in[0]);
  const auto kernel = simd::row_kernels().rms_norm;
  for_each_row(x, rows_of(call, call.out[0]), [&](int64_t r, const float* from, float* to) {
    rstd[r] = kernel(from, gamma, eps, to, static_cast<size_t>(x.size()));
  });
}

// Backward. Column sums (dgamma, dbeta) are taken per chunk of rows and added in order: the result
// does not depend on the number of threads.
constexpr int64_t kMaxChunkRows = 1024;  // more would lose digits in one f32 sum
constexpr int64_t kChunks = 32;

struct Chunks {
  int64_t rows;  // per chunk
  int64_t count;
};
Chunks chunks_of(const Rows& x) {
  const int64_t rows =
      std::clamp<int64_t>((x.count() + kChunks - 1) / kChunks, row_grain(x) / 4 + 1,
                          std::max(kMaxChunkRows, row_grain(x) / 4 + 1));
  return {rows, std::max<int64_t>(1, (x.count() + rows - 1) / rows)};
}

// Column sums of each chunk, and their total.
class WeightGradientSums {
 public:
  WeightGradientSums(bool wanted, Slot slot, const Chunks& chunks, int64_t n)
      : n_(n), chunks_(chunks.count), sums_(wanted ? scratch(slot, chunks.count * n) : nullptr) {
    if (wanted) std::fill_n(sums_, chunks.count * n, 0.0F);
  }
  float* of_chunk(int64_t chunk) const { return sums_ == nullptr ? nullptr : sums_ + chunk * n_; }
  void store(const Tensor& out) const {
    if (sums_ == nullptr) return;
    for (int64_t c = 1; c < chunks_; ++c)
      simd::row_kernels().accumulate(of_chunk(c), sums_, static_cast<size_t>(n_));
    write_line(float_type(out.dtype()), sums_, out.data(), 1, n_);
  }

 private:
  int64_t n_;
  int64_t chunks_;
  float* sums_;
};

// Calls body(row, chunk, dy, x, dx or null) for each row; dx is written back after it.
template <class Body>
void for_each_gradient_row(const Call& call, const Chunks& chunks, bool wants_dx, Body&& body) {
  const Rows dy = rows_of(call, call.in[0]);
  const Rows x = rows_of(call, call.in[1]);
  const Rows dx = rows_of(call, wants_dx ? call.out[0] : call.in[1]);
  const int64_t n = x.size();
  parallel_for(chunks.count, 1, [&](int64_t begin, int64_t end) {
    float* dy_buffer = scratch(Slot::a, n);
    float* x_buffer = scratch(Slot::b, n);
    float* dx_buffer = scratch(Slot::c, n);
    for (int64_t r = begin * chunks.rows; r < std::min(end * chunks.rows, x.count()); ++r) {
      float* to = wants_dx ? dx.target(r, 0, dx_buffer) : nullptr;
      body(r, r / chunks.rows, dy.read(r, 0, n, dy_buffer), x.read(r, 0, n, x_buffer), to);
      if (wants_dx) dx.write(r, 0, n, to);
    }
  });
}

float statistic(const Tensor& t, int64_t row) {
  return static_cast<float>(load_element(t.dtype(), t.data(), row));
}

// mean and rstd come from the forward pass, row-major.
template <size_t... kStatistics>
const char* decline_backward(const Call& call) {
  for (const size_t i : {kStatistics...})
    if (!call.in[i].is_contiguous()) return "needs contiguous mean and rstd";
  return decline_row_norm(call);
}

void run_layer_norm_backward(const Call& call) {
  const Dims& mask = call.attr<Dims>(1);
  const Rows x = rows_of(call, call.in[1]);
  const Chunks chunks = chunks_of(x);
  const float* gamma = parameter(call, call.in[4], Slot::shared_a);
  const WeightGradientSums dgamma(mask[1] != 0, Slot::shared_b, chunks, x.size());
  const WeightGradientSums dbeta(mask[2] != 0, Slot::shared_c, chunks, x.size());
  const auto kernel = simd::row_kernels().layer_norm_backward;
  for_each_gradient_row(
      call, chunks, mask[0] != 0,
      [&](int64_t r, int64_t c, const float* dy, const float* from, float* to) {
        const simd::RowMoments m{statistic(call.in[2], r), statistic(call.in[3], r)};
        kernel(dy, from, gamma, m, to, dgamma.of_chunk(c), dbeta.of_chunk(c),
               static_cast<size_t>(x.size()));
      });
  dgamma.store(call.out[1]);
  dbeta.store(call.out[2]);
}

void run_rms_norm_backward(const Call& call) {
  const Dims& mask = call.attr<Dims>(1);
  const Rows x = rows_of(call, call.in[1]);
  const Chunks chunks = chunks_of(x);
  const float* gamma = parameter(call, call.in[3], Slot::shared_a);
  const WeightGradientSums dgamma(mask[1] != 0, Slot::shared_b, chunks, x.size());
  const auto kernel = simd::row_kernels().rms_norm_backward;
  for_each_gradient_row(call, chunks, mask[0] != 0,
                        [&](int64_t r, int64_t c, const float* dy, const float* from, float* to) {
                          kernel(dy, from, gamma, statistic(call.in[2], r), to, dgamma.of_chunk(c),
                                 static_cast<size_t>(x.size()));
                        });
  dgamma.store(call.out[1]);
}

void describe_row_norm(const Call& call, KernelInfo& info, const char* what) {
  const Rows x = rows_of(call, call.in[0]);
  info.name = kernel_name(what, call.in[0].dtype());
  describe_items(info, x.count(), row_grain(x), x.size());
}

void describe_backward(const Call& call, KernelInfo& info, const char* what) {
  const Rows x = rows_of(call, call.in[1]);
  const Chunks chunks = chunks_of(x);
  info.name = kernel_name(what, call.in[1].dtype());
  describe_items(info, chunks.count, 1, x.size(), chunks.rows);
}

constexpr KernelList kNormLists[] = {
    {&kNativeLayerNorm, kOnly<"layer_norm", decline_row_norm, run_layer_norm, describe_row_norm>},
    {&kFusedRmsNorm, kOnly<"rms_norm", decline_row_norm, run_rms_norm, describe_row_norm>},
    {&kNativeLayerNormBackward, kOnly<"layer_norm_backward", decline_backward<2, 3>,
                                      run_layer_norm_backward, describe_backward>},
    {&kFusedRmsNormBackward,
     kOnly<"rms_norm_backward", decline_backward<2>, run_rms_norm_backward, describe_backward>}};

}  // namespace

std::span<const KernelList> norm_lists() { return kNormLists; }

}  // namespace epilogue::cpu
