// SPDX-License-Identifier: Apache-2.0
// Walking up to four tensors of one shape tile by tile, whatever their strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "epilogue/tensor.h"

namespace epilogue::cpu {

inline constexpr size_t kMostWalkInputs = 3;
// Elements that a tile holds at most: three tiles of f32 take 12 KiB, which leaves room in L1.
inline constexpr int64_t kStridedTile = 1024;
// Rows at least this long are walked one by one; shorter ones are gathered into full tiles.
inline constexpr int64_t kLongRow = 128;

// linear: the elements lie one after the other in the order of the walk. scalar: one element.
// rows: anything else.
enum class Access : uint8_t { linear, scalar, rows };

struct StridedOperand {
  std::byte* data;
  DType dtype;
  size_t element_bytes;
  Access access;
  Dims strides;  // in elements, over StridedWalk::sizes
};

// The common shape with dimensions ordered by the result's strides and merged where all operands
// allow it; always at least one dimension.
struct StridedWalk {
  Dims sizes;
  int64_t numel = 0;
  std::array<StridedOperand, kMostWalkInputs + 1> operands;  // [0]: the result

  int64_t row_length() const { return sizes[sizes.rank() - 1]; }
  // Elements from `i` on that one tile takes: at most `most`, within one row where rows are long.
  int64_t tile_length(int64_t i, int64_t end, int64_t most) const {
    const int64_t n = std::min(most, end - i);
    const int64_t row = row_length();
    return row < kLongRow || sizes.rank() == 1 ? n : std::min(n, row - i % row);
  }
};

// Inputs (at most kMostWalkInputs) are read as if broadcast to out.
StridedWalk make_walk(const Tensor& out, std::span<const Tensor> in);

// The address of elements [i, i + n) where they lie one after the other, else nullptr.
std::byte* tile_address(const StridedWalk& walk, const StridedOperand& operand, int64_t i,
                        int64_t n);

// n elements from i on, contiguous: where they lie, or copied to `scratch` (n elements of room).
const std::byte* read_tile(const StridedWalk& walk, const StridedOperand& operand, int64_t i,
                           int64_t n, std::byte* scratch);
// The reverse: writes n contiguous elements of the operand's dtype.
void write_tile(const StridedWalk& walk, const StridedOperand& operand, int64_t i, int64_t n,
                const std::byte* from);

// True where every element of [i, i + n) is the same one; `address` is then its place.
bool is_one_element(const StridedWalk& walk, const StridedOperand& operand, int64_t i, int64_t n,
                    const std::byte*& address);

}  // namespace epilogue::cpu
