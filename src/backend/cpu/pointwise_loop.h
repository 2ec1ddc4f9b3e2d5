// SPDX-License-Identifier: Apache-2.0
// Runs a function of contiguous tiles over tensors of any strides and floating dtypes: the loop of
// every pointwise kernel.
#pragma once

#include "backend/cpu/strided.h"
#include "base/thread_pool.h"
#include "core/op.h"

namespace epilogue::cpu {

// n elements at `data`, or, where `data` is null, n times `value`.
template <class T>
struct TileInput {
  const T* data = nullptr;
  T value{};
};

// out[j] = f(in[0][j], in[1][j], ...); `out` may be an input. Without takes_scalars inputs always
// have data.
template <class T>
struct TileFunction {
  FunctionRef<void(const TileInput<T>* in, T* out, size_t n)> run;
  bool takes_scalars;
};

// call.out[0] = f(call.in[0], what else is there), broadcast, computed in T and rounded
// once. T is float (for f32, bf16 and f16) or double (f64); one-element inputs may have any dtype.
// Threads get at least `grain` elements each.
template <class T>
void run_pointwise(const Call& call, int64_t grain, const TileFunction<T>& f);

extern template void run_pointwise<float>(const Call&, int64_t, const TileFunction<float>&);
extern template void run_pointwise<double>(const Call&, int64_t, const TileFunction<double>&);

}  // namespace epilogue::cpu
