// SPDX-License-Identifier: Apache-2.0
// CPU kernels of cumsum and its gradient: a line is summed in double on one thread, since each sum
// waits for the one before; threads share the lines.
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/lines/row_blocks.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

const char* decline_cumsum(const Call& call) {
  return has_float_type(call.in[0].dtype()) && has_float_type(call.out[0].dtype())
             ? nullptr
             : kNeedsFloatType;
}

template <bool kReversed>
void run_cumsum(const Call& call) {
  for_each_line<1>(call, [](const auto& in, float* to, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = kReversed ? n - 1 - i : i;
      sum += static_cast<double>(in[0][at]);
      to[at] = static_cast<float>(sum);
    }
  });
}

void describe_cumsum(const Call& call, KernelInfo& info) {
  describe_lines(call, info, &call.op == &kCumsum ? "cumsum" : "cumsum_backward");
}

constexpr Kernel kForward[] = {{"lines", decline_cumsum, run_cumsum<false>, describe_cumsum}};
constexpr Kernel kBackward[] = {{"lines", decline_cumsum, run_cumsum<true>, describe_cumsum}};
constexpr KernelList kCumsumLists[] = {{&kCumsum, kForward}, {&kCumsumBackward, kBackward}};

}  // namespace

std::span<const KernelList> cumsum_lists() { return kCumsumLists; }

}  // namespace epilogue::cpu
