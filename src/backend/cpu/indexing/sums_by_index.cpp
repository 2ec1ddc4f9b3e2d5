// SPDX-License-Identifier: Apache-2.0
// CPU kernels that add by index: index_add, embedding_dense_backward, scatter_add. Threads share
// the results, never one of them: sums have the order of the index whatever the number of threads.
// 16-bit floats are summed in f32 and rounded once.
#include <algorithm>

#include "backend/cpu/indexing/contiguous.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "ops/indexing/indices.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

const char* take_any_sum(const Call&) { return nullptr; }

DType sum_dtype(DType dtype) { return is_low_precision(dtype) ? DType::f32 : dtype; }

// The result as it is summed, which finish() rounds into the result itself.
Tensor begin_sums(const Tensor& out) {
  const DType wide = sum_dtype(out.dtype());
  return wide == out.dtype() ? out : empty(out.sizes(), wide);
}
void finish(const Tensor& sums, const Tensor& out) {
  if (!sums.is_same(out)) copy_tensor(out, sums);
}

template <class T>
void add_scaled(const T* from, double alpha, T* to, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    if (alpha == 1) return simd::row_kernels().accumulate(from, to, static_cast<size_t>(n));
  }
  const T factor = static_cast<T>(alpha);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + factor * from[i]);
}

constexpr int64_t kSliceColumns = 64;  // of a slice, that a thread gets at least

// sums [outer, n, inner] += alpha source [outer, count, inner] by index; threads share columns.
struct SliceSums {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  int64_t count;  // indices

  SliceSums(const Dims& sizes, int dim, int64_t indices) : count(indices) {
    for (int d = 0; d < sizes.rank(); ++d) (d < dim ? outer : d == dim ? n : inner) *= sizes[d];
  }
  int64_t pieces() const { return (inner + kSliceColumns - 1) / kSliceColumns; }
  int64_t grain() const { return grain_for(count * std::min(inner, kSliceColumns)); }

  template <class T>
  void run(const OpDef& op, const int64_t* at, const T* source, double alpha, int64_t skipped,
           T* sums) const {
    parallel_for(outer * pieces(), grain(), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        // Neighbouring pieces of one slice together.
        const int64_t o = begin / pieces();
        const int64_t last = std::min(end, (o + 1) * pieces());
        const int64_t first_column = begin % pieces() * kSliceColumns;
        const int64_t width = std::min(inner, (last - o * pieces()) * kSliceColumns) - first_column;
        for (int64_t j = 0; j < count; ++j) {
          const int64_t k = checked_index(op, at[j], n);
          if (k == skipped) continue;
          add_scaled(source + (o * count + j) * inner + first_column, alpha,
                     sums + (o * n + k) * inner + first_column, width);
        }
        begin = last;
      }
    });
  }
};

void add_slices(const Call& call, const SliceSums& slices, const Tensor& index,
                const Tensor& source, double alpha, int64_t skipped, const Tensor& sums) {
  const Tensor flat = contiguous_of(index);
  const Tensor added = contiguous_as(source, sums.dtype());
  dispatch(sums.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
      slices.run<T>(call.op, static_cast<const int64_t*>(flat.data()),
                    static_cast<const T*>(added.data()), alpha, skipped,
                    static_cast<T*>(sums.data()));
  });
}

SliceSums index_add_slices(const Call& call) {
  return {call.in[0].sizes(), named_dim(call, call.in[0].dim()), call.in[1].numel()};
}
void run_index_add(const Call& call) {
  const Tensor sums = begin_sums(call.out[0]);
  copy_tensor(sums, call.in[0]);
  add_slices(call, index_add_slices(call), call.in[1], call.in[2], call.attr<double>(1), -1, sums);
  finish(sums, call.out[0]);
}

SliceSums embedding_slices(const Call& call) {
  return {call.out[0].sizes(), 0, call.in[1].numel()};
}
void run_embedding_backward(const Call& call) {
  const Tensor sums = begin_sums(call.out[0]);
  fill_tensor(sums, 0);
  add_slices(call, embedding_slices(call), call.in[1], call.in[0], 1, call.attr<int64_t>(1), sums);
  finish(sums, call.out[0]);
}

template <class T>
void add_lines(const Call& call, const IndexedLines& lines, const Tensor& source,
               const Tensor& sums) {
  const Tensor& index = call.in[1];
  const int64_t size = lines.size(sums);
  parallel_for(lines.count, grain_for(lines.n), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      const int64_t* at = static_cast<const int64_t*>(index.data()) + lines.offset(index, l);
      const T* from = static_cast<const T*>(source.data()) + lines.offset(source, l);
      T* to = static_cast<T*>(sums.data()) + lines.offset(sums, l);
      for (int64_t i = 0; i < lines.n; ++i) {
        T& sum = to[checked_index(call.op, at[i * lines.step(index)], size) * lines.step(sums)];
        sum = static_cast<T>(sum + from[i * lines.step(source)]);
      }
    }
  });
}

void run_scatter_add(const Call& call) {
  const Tensor sums = begin_sums(call.out[0]);
  copy_tensor(sums, call.in[0]);
  const Tensor source = contiguous_as(call.in[2], sums.dtype());
  const IndexedLines lines(call);
  dispatch(sums.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
      add_lines<T>(call, lines, source, sums);
  });
  finish(sums, call.out[0]);
}

void describe_slices(const Call& call, KernelInfo& info, const char* what,
                     const SliceSums& slices) {
  info.name = kernel_name(what, call.out[0].dtype());
  describe_items(info, slices.outer * slices.pieces(), slices.grain(),
                 std::min(slices.inner, kSliceColumns), slices.count);
}
void describe_scatter(const Call& call, KernelInfo& info) {
  const IndexedLines lines(call);
  info.name = kernel_name("scatter_add", call.out[0].dtype());
  describe_items(info, lines.count, grain_for(lines.n), lines.n);
}

constexpr Kernel kIndexAddKernels[] = {
    {"slices", take_any_sum, run_index_add, [](const Call& c, KernelInfo& i) {
       describe_slices(c, i, "index_add", index_add_slices(c));
     }}};
constexpr Kernel kEmbeddingBackwardKernels[] = {
    {"slices", take_any_sum, run_embedding_backward, [](const Call& c, KernelInfo& i) {
       describe_slices(c, i, "embedding_dense_backward", embedding_slices(c));
     }}};
constexpr Kernel kScatterAddKernels[] = {
    {"lines", take_any_sum, run_scatter_add, describe_scatter}};
constexpr KernelList kSumsByIndexLists[] = {{&kIndexAdd, kIndexAddKernels},
                                            {&kEmbeddingDenseBackward, kEmbeddingBackwardKernels},
                                            {&kScatterAdd, kScatterAddKernels}};

}  // namespace

std::span<const KernelList> index_sum_lists() { return kSumsByIndexLists; }

}  // namespace epilogue::cpu
