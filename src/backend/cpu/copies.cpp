// SPDX-License-Identifier: Apache-2.0
// clone, dtype conversion, copy_, cat, fill_, zero_ and slice_backward on strided copies.
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/strided.h"
#include "backend/cpu/strided_copy.h"
#include "base/thread_pool.h"
#include "ops/cat_parts.h"
#include "ops/ops.h"
#include "ops/view_sizes.h"

namespace epilogue::cpu {
namespace {

const char* take_all(const Call&) { return nullptr; }

void run_copy(const Call& call) { copy_tensor(call.out[0], call.in.back()); }
void run_cat(const Call& call) { for_each_cat_part(call, copy_tensor); }
void run_slice_backward(const Call& call) {
  fill_tensor(call.out[0], 0);
  copy_tensor(slice_backward_target(call), call.in[0]);
}
void run_fill(const Call& call) { fill_tensor(call.out[0], call.attr<double>(0)); }
void run_zero(const Call& call) { fill_tensor(call.out[0], 0); }

void describe_as(std::string_view what, const Call& call, KernelInfo& info) {
  const Tensor& out = call.out[0];
  info.name = kernel_name(what, out.dtype());
  info.grid = {(out.numel() + kStridedTile - 1) / kStridedTile, 1, 1};
  info.block = {kStridedTile, 1, 1};
  info.threads = parallel_pieces(out.numel(), kCopyGrain);
}

// "copy_transposed_bf16", "cast_f32_bf16".
void describe_copy(const Call& call, KernelInfo& info) {
  const Tensor& from = call.in.back();
  std::string what = "copy";
  if (from.dtype() != call.out[0].dtype()) what = "cast_" + std::string(dtype_name(from.dtype()));
  constexpr const char* kPaths[] = {"", "_strided", "_transposed"};
  what += kPaths[static_cast<size_t>(copy_path(call.out[0], from))];
  describe_as(what, call, info);
}

const Kernel kCopy[] = {{"copy", take_all, run_copy, describe_copy}};
const Kernel kCatKernels[] = {{"copy", take_all, run_cat, [](const Call& call, KernelInfo& info) {
                                 describe_as("cat", call, info);
                               }}};
const Kernel kSliceBackwardKernels[] = {
    {"copy", take_all, run_slice_backward,
     [](const Call& call, KernelInfo& info) { describe_as("slice_backward", call, info); }}};
const Kernel kFillKernels[] = {{"fill", take_all, run_fill, [](const Call& call, KernelInfo& info) {
                                  describe_as("fill", call, info);
                                }}};
const Kernel kZeroKernels[] = {{"fill", take_all, run_zero, [](const Call& call, KernelInfo& info) {
                                  describe_as("fill", call, info);
                                }}};

}  // namespace

std::span<const KernelList> copy_lists() {
  static const KernelList kLists[] = {{&kClone, kCopy},
                                      {&kToCopy, kCopy},
                                      {&kCopy_, kCopy},
                                      {&kCat, kCatKernels},
                                      {&kFill_, kFillKernels},
                                      {&kZero_, kZeroKernels},
                                      {&kSliceBackward, kSliceBackwardKernels}};
  return kLists;
}

}  // namespace epilogue::cpu
