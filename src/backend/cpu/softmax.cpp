// SPDX-License-Identifier: Apache-2.0
// CPU kernels of softmax, log_softmax and their backward ops: rows through L1, threads split rows.
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/lines/row_blocks.h"
#include "backend/cpu/simd/reduce.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

const char* decline_softmax(const Call& call) {
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype())) return kNeedsFloatType;
  return has_float_type(call.out[0].dtype()) ? nullptr : kNeedsFloatType;
}

using Forward = void (*)(const float* x, float* y, size_t n);
using Backward = void (*)(const float* dy, const float* y, float* dx, size_t n);

void run_softmax(const Call& call, Forward kernel) {
  for_each_line<1>(call, [kernel](const auto& in, float* y, int64_t n) {
    kernel(in[0], y, static_cast<size_t>(n));
  });
}

void run_softmax_backward(const Call& call, Backward kernel) {
  for_each_line<2>(call, [kernel](const auto& in, float* dx, int64_t n) {
    kernel(in[0], in[1], dx, static_cast<size_t>(n));
  });
}

constexpr Kernel kSoftmaxKernels[] = {
    {"softmax", decline_softmax, [](const Call& c) { run_softmax(c, simd::row_kernels().softmax); },
     [](const Call& c, KernelInfo& i) { describe_lines(c, i, "softmax"); }}};
constexpr Kernel kLogSoftmaxKernels[] = {
    {"log_softmax", decline_softmax,
     [](const Call& c) { run_softmax(c, simd::row_kernels().log_softmax); },
     [](const Call& c, KernelInfo& i) { describe_lines(c, i, "log_softmax"); }}};
constexpr Kernel kSoftmaxBackwardKernels[] = {
    {"softmax_backward", decline_softmax,
     [](const Call& c) { run_softmax_backward(c, simd::row_kernels().softmax_backward); },
     [](const Call& c, KernelInfo& i) { describe_lines(c, i, "softmax_backward"); }}};
constexpr Kernel kLogSoftmaxBackwardKernels[] = {
    {"log_softmax_backward", decline_softmax,
     [](const Call& c) { run_softmax_backward(c, simd::row_kernels().log_softmax_backward); },
     [](const Call& c, KernelInfo& i) { describe_lines(c, i, "log_softmax_backward"); }}};

constexpr KernelList kSoftmaxLists[] = {{&kSoftmaxUnit, kSoftmaxKernels},
                                        {&kLogSoftmaxUnit, kLogSoftmaxKernels},
                                        {&kSoftmaxBackward, kSoftmaxBackwardKernels},
                                        {&kLogSoftmaxBackward, kLogSoftmaxBackwardKernels}};

}  // namespace

std::span<const KernelList> softmax_lists() { return kSoftmaxLists; }

}  // namespace epilogue::cpu
