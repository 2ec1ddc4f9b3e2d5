// SPDX-License-Identifier: Apache-2.0
// Kernels whose result has the shape of what they read, line by line along the dimension that
// attribute 0 names.
#pragma once

#include <array>
#include <utility>

#include "backend/cpu/rows.h"
#include "ops/shape.h"

namespace epilogue::cpu {

// The dimension of the lines; empty for a tensor without dimensions, which is one line.
inline Dims line_dims(const Call& call) {
  const int rank = call.out[0].dim();
  if (rank == 0) return {};
  return {named_dim(call, rank)};
}

// As many rows at once as the operand that wants most of them; threads share the blocks.
struct RowBlocks {
  int64_t rows;   // of a block
  int64_t count;  // blocks
  int64_t grain;

  explicit RowBlocks(const Call& call) {
    const Rows out(call.out[0], line_dims(call));
    rows = out.block();
    for (const Tensor& t : call.in) rows = std::max(rows, Rows(t, line_dims(call)).block());
    count = (out.count() + rows - 1) / rows;
    grain = grain_for(rows * out.size());
  }
};

// line(in, to, n) for each line: a pointer per input, in their order, and the result's.
template <size_t kInputs, class Line>
void for_each_line(const Call& call, Line&& line) {
  constexpr std::array kSlots = {Slot::b, Slot::c};
  static_assert(kInputs <= kSlots.size());
  const RowBlocks blocks(call);
  const Dims dims = line_dims(call);
  const Rows out(call.out[0], dims);
  const auto in = [&]<size_t... I>(std::index_sequence<I...>) {
    return std::array<Rows, kInputs>{Rows(call.in[I], dims)...};
  }
  (std::make_index_sequence<kInputs>());
  parallel_for(blocks.count, blocks.grain, [&](int64_t begin, int64_t end) {
    const int64_t floats = blocks.rows * out.pitch();
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * blocks.rows;
      const int64_t k = std::min(blocks.rows, out.count() - first);
      std::array<RowBlock<const float>, kInputs> from;
      for (size_t i = 0; i < kInputs; ++i)
        from[i] = in[i].read_rows(first, k, scratch(kSlots[i], floats));
      const auto to = out.target_rows(first, k, scratch(Slot::a, floats));
      std::array<const float*, kInputs> rows;
      for (int64_t r = 0; r < k; ++r) {
        for (size_t i = 0; i < kInputs; ++i) rows[i] = from[i].row(r);
        line(rows, to.row(r), out.size());
      }
      out.write_rows(first, k, to);
    }
  });
}

inline void describe_lines(const Call& call, KernelInfo& info, const char* what) {
  const RowBlocks blocks(call);
  info.name = kernel_name(what, call.out[0].dtype());
  describe_items(info, blocks.count, blocks.grain, Rows(call.out[0], line_dims(call)).size(),
                 blocks.rows);
}

}  // namespace epilogue::cpu
