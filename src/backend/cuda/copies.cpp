// SPDX-License-Identifier: Apache-2.0
// clone, dtype conversion, copy_, cat, fill_, zero_ and slice_backward. These take every dtype and
// stride: the way to the host stands on them.
#include <cmath>

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/tensor_walk.h"
#include "ops/cat_parts.h"
#include "ops/ops.h"
#include "ops/view_sizes.h"

namespace epilogue::cuda {
namespace {

const char* take_all(const Call&) { return nullptr; }

void copy(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const cudaStream_t stream = Runtime::get().stream();
  if (from.device().type == DeviceType::cpu) {  // a number
    check(launch_fill(from.item(), make_walk(to, {}), stream), "fill");
  } else if (to.dtype() == from.dtype() && to.is_contiguous() && from.is_contiguous() &&
             to.numel() == from.numel()) {
    check(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
  } else {
    check(launch_copy(make_walk(to, {&from, 1}), stream), "copy");
  }
}

void fill(const Tensor& to, double value) {
  if (to.numel() == 0) return;
  const cudaStream_t stream = Runtime::get().stream();
  // Zero is zero bytes in every dtype.
  if (value == 0 && !std::signbit(value) && to.is_contiguous()) {
    check(cudaMemsetAsync(to.data(), 0, to.bytes(), stream), "cudaMemsetAsync");
  } else {
    check(launch_fill(value, make_walk(to, {}), stream), "fill");
  }
}

void run_copy(const Call& call) { copy(call.out[0], call.in.back()); }
void run_cat(const Call& call) { for_each_cat_part(call, copy); }
void run_slice_backward(const Call& call) {
  fill(call.out[0], 0);
  copy(slice_backward_target(call), call.in[0]);
}
void run_fill(const Call& call) { fill(call.out[0], call.attr<double>(0)); }
void run_zero(const Call& call) { fill(call.out[0], 0); }

void describe_copy(const Call& call, KernelInfo& info) {
  const bool casts = call.in.back().dtype() != call.out[0].dtype();
  info.name = kernel_name(casts ? "cast" : "copy", call.out[0].dtype());
}

const Kernel kCopy[] = {{"cuda", take_all, run_copy, describe_copy}};

}  // namespace

std::span<const KernelList> copy_lists() {
  static const KernelList kLists[] = {
      {&kClone, kCopy},
      {&kToCopy, kCopy},
      {&kCopy_, kCopy},
      {&kCat, kOnly<"cat", take_all, run_cat>},
      {&kFill_, kOnly<"fill", take_all, run_fill>},
      {&kZero_, kOnly<"fill", take_all, run_zero>},
      {&kSliceBackward, kOnly<"slice_backward", take_all, run_slice_backward>}};
  return kLists;
}

}  // namespace epilogue::cuda
