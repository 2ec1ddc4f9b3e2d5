// SPDX-License-Identifier: Apache-2.0
// CPU kernels of cumsum and its gradient: a line is summed in double on one thread, since each sum
// waits for the one before; threads share the lines.
#include <algorithm>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

const char* decline_cumsum(const Call& call) {
  return has_float_type(call.in[0].dtype()) && has_float_type(call.out[0].dtype())
             ? nullptr
             : kNeedsFloatType;
}

Dims line_dim_cumsum(const Call& call) {
  const int rank = call.in[0].dim();
  if (rank == 0) return {};
  return {normalize_dim(call.op, call.attr<int64_t>(0), rank)};
}

struct CumsumBlocks {
  int64_t rows;  // at once
  int64_t count;
  int64_t grain;
};
CumsumBlocks blocks_of_cumsum(const Call& call) {
  const Rows out(call.out[0], line_dim_cumsum(call));
  const int64_t rows = std::max(out.block(), Rows(call.in[0], line_dim_cumsum(call)).block());
  return {rows, (out.count() + rows - 1) / rows, grain_for(rows * out.size())};
}

template <bool kReversed>
void run_cumsum(const Call& call) {
  const Rows x(call.in[0], line_dim_cumsum(call));
  const Rows y(call.out[0], line_dim_cumsum(call));
  const CumsumBlocks blocks = blocks_of_cumsum(call);
  const int64_t n = x.size();
  parallel_for(blocks.count, blocks.grain, [&](int64_t begin, int64_t end) {
    float* x_buffer = scratch(Slot::a, blocks.rows * x.pitch());
    float* y_buffer = scratch(Slot::b, blocks.rows * y.pitch());
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * blocks.rows;
      const int64_t k = std::min(blocks.rows, y.count() - first);
      const auto from = x.read_rows(first, k, x_buffer);
      const auto to = y.target_rows(first, k, y_buffer);
      for (int64_t r = 0; r < k; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = kReversed ? n - 1 - i : i;
          sum += static_cast<double>(from.row(r)[at]);
          to.row(r)[at] = static_cast<float>(sum);
        }
      }
      y.write_rows(first, k, to);
    }
  });
}

void describe_cumsum(const Call& call, KernelInfo& info) {
  const CumsumBlocks blocks = blocks_of_cumsum(call);
  info.name = kernel_name(&call.op == &kCumsum ? "cumsum" : "cumsum_backward", call.out[0].dtype());
  info.grid = {std::max<int64_t>(1, blocks.count), 1, 1};
  info.block = {std::max<int64_t>(1, Rows(call.out[0], line_dim_cumsum(call)).size()), blocks.rows,
                1};
  info.threads = threads_for(blocks.count, blocks.grain);
}

constexpr Kernel kForward[] = {{"lines", decline_cumsum, run_cumsum<false>, describe_cumsum}};
constexpr Kernel kBackward[] = {{"lines", decline_cumsum, run_cumsum<true>, describe_cumsum}};
constexpr KernelList kCumsumLists[] = {{&kCumsum, kForward}, {&kCumsumBackward, kBackward}};

}  // namespace

std::span<const KernelList> cumsum_lists() { return kCumsumLists; }

}  // namespace epilogue::cpu
