// SPDX-License-Identifier: Apache-2.0
// CPU kernels that copy elements by index: embedding, index_select, gather, tril and triu. Every
// dtype; what is contiguous is copied as bytes.
#include <algorithm>
#include <cstring>

#include "backend/cpu/indexing/contiguous.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "core/element.h"
#include "ops/indexing/indices.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

const char* take_any_copy(const Call&) { return nullptr; }

// Slices of a contiguous tensor [outer, n, inner].
struct Slices {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner_bytes;

  Slices(const Tensor& t, int dim) : inner_bytes(static_cast<int64_t>(dtype_bytes(t.dtype()))) {
    for (int d = 0; d < t.dim(); ++d)
      (d < dim ? outer : d == dim ? n : inner_bytes) *= t.sizes()[d];
  }
};

// Bytes that are worth a thread.
constexpr int64_t kGrainBytes = 4 * kGrain;
int64_t copy_grain(int64_t bytes) {
  return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, bytes));
}

int slice_dim(const Call& call) {
  return &call.op == &kEmbedding ? 0 : named_dim(call, call.in[0].dim());
}

void run_select(const Call& call) {
  const Tensor self = contiguous_of(call.in[0]);
  const Tensor index = contiguous_of(call.in[1]);
  const Slices slices(self, slice_dim(call));
  const auto* const at = static_cast<const int64_t*>(index.data());
  const auto* const from = static_cast<const std::byte*>(self.data());
  auto* const to = static_cast<std::byte*>(call.out[0].data());
  const int64_t count = index.numel();
  const int64_t bytes = slices.inner_bytes;
  parallel_for(slices.outer * count, copy_grain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = checked_index(call.op, at[i % count], slices.n);
      std::memcpy(to + i * bytes, from + (i / count * slices.n + k) * bytes,
                  static_cast<size_t>(bytes));
    }
  });
}

template <class T>
void gather_lines(const Call& call, const IndexedLines& lines, int64_t begin, int64_t end) {
  const Tensor& self = call.in[0];
  const Tensor& index = call.in[1];
  const Tensor& out = call.out[0];
  const int64_t size = lines.size(self);
  const int64_t step = lines.step(self);
  const int64_t index_step = lines.step(index);
  const int64_t out_step = lines.step(out);
  for (int64_t l = begin; l < end; ++l) {
    const T* from = static_cast<const T*>(self.data()) + lines.offset(self, l);
    const int64_t* at = static_cast<const int64_t*>(index.data()) + lines.offset(index, l);
    T* to = static_cast<T*>(out.data()) + lines.offset(out, l);
    for (int64_t i = 0; i < lines.n; ++i)
      to[i * out_step] = from[checked_index(call.op, at[i * index_step], size) * step];
  }
}

void run_gather(const Call& call) {
  const IndexedLines lines(call);
  dispatch(call.in[0].dtype(), [&]<class T>() {
    parallel_for(lines.count, grain_for(lines.n),
                 [&](int64_t begin, int64_t end) { gather_lines<T>(call, lines, begin, end); });
  });
}

// Rows are copied up to the diagonal (tril) or from it on (triu); the rest are zeros.
void run_triangle(const Call& call) {
  const bool is_lower = &call.op == &kTril;
  const Tensor self = contiguous_of(call.in[0]);
  const int64_t rows = self.size(-2);
  const int64_t columns = self.size(-1);
  const int64_t diagonal = std::clamp(call.attr<int64_t>(0), -rows, columns);
  const auto bytes = static_cast<int64_t>(dtype_bytes(self.dtype()));
  const auto* const from = static_cast<const std::byte*>(self.data());
  auto* const to = static_cast<std::byte*>(call.out[0].data());
  parallel_for(self.numel() / columns, grain_for(columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t edge = r % rows + diagonal + (is_lower ? 1 : 0);
      const int64_t left = std::clamp<int64_t>(edge, 0, columns) * bytes;
      const int64_t row = r * columns * bytes;
      const int64_t right = columns * bytes - left;
      const auto copy = [&](int64_t at, int64_t n) {
        std::memcpy(to + row + at, from + row + at, static_cast<size_t>(n));
      };
      const auto clear = [&](int64_t at, int64_t n) {
        std::memset(to + row + at, 0, static_cast<size_t>(n));
      };
      if (is_lower) {
        copy(0, left);
        clear(left, right);
      } else {
        clear(0, left);
        copy(left, right);
      }
    }
  });
}

void describe_select(const Call& call, KernelInfo& info) {
  info.name =
      kernel_name(&call.op == &kEmbedding ? "embedding" : "index_select", call.in[0].dtype());
  const Slices slices(call.in[0], slice_dim(call));
  const auto bytes = static_cast<int64_t>(dtype_bytes(call.in[0].dtype()));
  describe_items(info, slices.outer * call.in[1].numel(), copy_grain(slices.inner_bytes),
                 slices.inner_bytes / bytes);
}
void describe_gather(const Call& call, KernelInfo& info) {
  info.name = kernel_name("gather", call.in[0].dtype());
  const IndexedLines lines(call);
  describe_items(info, lines.count, grain_for(lines.n), lines.n);
}
void describe_triangle(const Call& call, KernelInfo& info) {
  info.name = kernel_name(&call.op == &kTril ? "tril" : "triu", call.in[0].dtype());
  const int64_t columns = std::max<int64_t>(1, call.in[0].size(-1));
  describe_items(info, call.in[0].numel() / columns, grain_for(columns), columns);
}

constexpr Kernel kSelectKernels[] = {{"copy", take_any_copy, run_select, describe_select}};
constexpr Kernel kGatherKernels[] = {{"copy", take_any_copy, run_gather, describe_gather}};
constexpr Kernel kTriangleKernels[] = {{"copy", take_any_copy, run_triangle, describe_triangle}};
constexpr KernelList kLists[] = {{&kEmbedding, kSelectKernels},
                                 {&kIndexSelect, kSelectKernels},
                                 {&kGather, kGatherKernels},
                                 {&kTril, kTriangleKernels},
                                 {&kTriu, kTriangleKernels}};

}  // namespace

std::span<const KernelList> index_copy_lists() { return kLists; }

}  // namespace epilogue::cpu
