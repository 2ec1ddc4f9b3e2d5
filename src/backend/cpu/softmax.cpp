// SPDX-License-Identifier: Apache-2.0
// CPU kernels of softmax, log_softmax and their backward ops: rows through L1, threads split rows.
#include <algorithm>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/reduce.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

const char* decline_softmax(const Call& call) {
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype())) return kNeedsFloatType;
  return has_float_type(call.out[0].dtype()) ? nullptr : kNeedsFloatType;
}

Dims line_dim(const Call& call) {
  const int rank = call.out[0].dim();
  if (rank == 0) return {};
  return {normalize_dim(call.op, call.attr<int64_t>(0), rank)};
}

// How the rows are split: blocks of `rows` rows.
struct SoftmaxSplit {
  int64_t rows;
  int64_t blocks;
  int64_t grain;
};
SoftmaxSplit softmax_split_of(const Call& call) {
  const Rows out(call.out[0], line_dim(call));
  int64_t rows = out.block();
  for (const Tensor& t : call.in) rows = std::max(rows, Rows(t, line_dim(call)).block());
  return {rows, (out.count() + rows - 1) / rows, grain_for(rows * out.size())};
}

using Forward = void (*)(const float* x, float* y, size_t n);
using Backward = void (*)(const float* dy, const float* y, float* dx, size_t n);

void run_softmax(const Call& call, Forward kernel) {
  const Rows x(call.in[0], line_dim(call));
  const Rows y(call.out[0], line_dim(call));
  const SoftmaxSplit split = softmax_split_of(call);
  const int64_t n = x.size();
  parallel_for(split.blocks, split.grain, [&](int64_t begin, int64_t end) {
    float* x_buffer = scratch(Slot::a, split.rows * y.pitch());
    float* y_buffer = scratch(Slot::b, split.rows * y.pitch());
    for (int64_t first = begin * split.rows; first < std::min(end * split.rows, y.count());
         first += split.rows) {
      const int64_t k = std::min(split.rows, y.count() - first);
      const auto from = x.read_rows(first, k, x_buffer);
      const auto to = y.target_rows(first, k, y_buffer);
      for (int64_t r = 0; r < k; ++r) kernel(from.row(r), to.row(r), static_cast<size_t>(n));
      y.write_rows(first, k, to);
    }
  });
}

void run_softmax_backward(const Call& call, Backward kernel) {
  const Rows dy(call.in[0], line_dim(call));
  const Rows y(call.in[1], line_dim(call));
  const Rows dx(call.out[0], line_dim(call));
  const SoftmaxSplit split = softmax_split_of(call);
  const int64_t n = y.size();
  parallel_for(split.blocks, split.grain, [&](int64_t begin, int64_t end) {
    float* dy_buffer = scratch(Slot::a, split.rows * y.pitch());
    float* y_buffer = scratch(Slot::b, split.rows * y.pitch());
    float* dx_buffer = scratch(Slot::c, split.rows * y.pitch());
    for (int64_t first = begin * split.rows; first < std::min(end * split.rows, y.count());
         first += split.rows) {
      const int64_t k = std::min(split.rows, y.count() - first);
      const auto dy_rows = dy.read_rows(first, k, dy_buffer);
      const auto y_rows = y.read_rows(first, k, y_buffer);
      const auto to = dx.target_rows(first, k, dx_buffer);
      for (int64_t r = 0; r < k; ++r)
        kernel(dy_rows.row(r), y_rows.row(r), to.row(r), static_cast<size_t>(n));
      dx.write_rows(first, k, to);
    }
  });
}

void describe_softmax(const Call& call, KernelInfo& info, const char* what) {
  const SoftmaxSplit split = softmax_split_of(call);
  info.name = kernel_name(what, call.out[0].dtype());
  info.grid = {split.blocks, 1, 1};
  info.block = {Rows(call.out[0], line_dim(call)).size(), split.rows, 1};
  info.threads = threads_for(split.blocks, split.grain);
}

constexpr Kernel kSoftmaxKernels[] = {
    {"softmax", decline_softmax, [](const Call& c) { run_softmax(c, simd::row_kernels().softmax); },
     [](const Call& c, KernelInfo& i) { describe_softmax(c, i, "softmax"); }}};
constexpr Kernel kLogSoftmaxKernels[] = {
    {"log_softmax", decline_softmax,
     [](const Call& c) { run_softmax(c, simd::row_kernels().log_softmax); },
     [](const Call& c, KernelInfo& i) { describe_softmax(c, i, "log_softmax"); }}};
constexpr Kernel kSoftmaxBackwardKernels[] = {
    {"softmax_backward", decline_softmax,
     [](const Call& c) { run_softmax_backward(c, simd::row_kernels().softmax_backward); },
     [](const Call& c, KernelInfo& i) { describe_softmax(c, i, "softmax_backward"); }}};
constexpr Kernel kLogSoftmaxBackwardKernels[] = {
    {"log_softmax_backward", decline_softmax,
     [](const Call& c) { run_softmax_backward(c, simd::row_kernels().log_softmax_backward); },
     [](const Call& c, KernelInfo& i) { describe_softmax(c, i, "log_softmax_backward"); }}};

constexpr KernelList kSoftmaxLists[] = {{&kSoftmaxUnit, kSoftmaxKernels},
                                        {&kLogSoftmaxUnit, kLogSoftmaxKernels},
                                        {&kSoftmaxBackward, kSoftmaxBackwardKernels},
                                        {&kLogSoftmaxBackward, kLogSoftmaxBackwardKernels}};

}  // namespace

std::span<const KernelList> softmax_lists() { return kSoftmaxLists; }

}  // namespace epilogue::cpu
