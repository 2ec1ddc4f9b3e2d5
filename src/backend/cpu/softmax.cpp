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

template <Forward simd::RowKernels::*kKernel>
void run_softmax(const Call& call) {
  for_each_line<1>(call,
                   [kernel = simd::row_kernels().*kKernel](const auto& in, float* y, int64_t n) {
                     kernel(in[0], y, static_cast<size_t>(n));
                   });
}

template <Backward simd::RowKernels::*kKernel>
void run_softmax_backward(const Call& call) {
  for_each_line<2>(call,
                   [kernel = simd::row_kernels().*kKernel](const auto& in, float* dx, int64_t n) {
                     kernel(in[0], in[1], dx, static_cast<size_t>(n));
                   });
}

using simd::RowKernels;
constexpr KernelList kSoftmaxLists[] = {
    {&kSoftmaxUnit,
     kOnly<"softmax", decline_softmax, run_softmax<&RowKernels::softmax>, describe_lines>},
    {&kLogSoftmaxUnit,
     kOnly<"log_softmax", decline_softmax, run_softmax<&RowKernels::log_softmax>, describe_lines>},
    {&kSoftmaxBackward, kOnly<"softmax_backward", decline_softmax,
                              run_softmax_backward<&RowKernels::softmax_backward>, describe_lines>},
    {&kLogSoftmaxBackward,
     kOnly<"log_softmax_backward", decline_softmax,
           run_softmax_backward<&RowKernels::log_softmax_backward>, describe_lines>}};

}  // namespace

std::span<const KernelList> softmax_lists() { return kSoftmaxLists; }

}  // namespace epilogue::cpu
