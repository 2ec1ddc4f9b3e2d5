// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/strided_copy.h"

#include <cstring>

#include "backend/cpu/convert_elements.h"
#include "backend/cpu/strided.h"
#include "base/thread_pool.h"
#include "ops/element_cast.h"

namespace epilogue::cpu {
namespace {

// A block of 32 x 32 elements fills whole cache lines on both sides and fits L1 with room to spare.
constexpr int64_t kSide = 32;

StridedWalk walk_of(const Tensor& to, const Tensor& from) { return make_walk(to, {&from, 1}); }

// The dimension in which the source is contiguous while the target's rows cross it; -1: none.
int crossing_dim(const StridedWalk& walk) {
  const int last = walk.sizes.rank() - 1;
  const Dims& to = walk.operands[0].strides;
  const Dims& from = walk.operands[1].strides;
  if (to[last] != 1 || from[last] <= 1 || walk.sizes[last] < kSide / 4) return -1;
  for (int d = 0; d < last; ++d)
    if (from[d] == 1 && walk.sizes[d] >= kSide / 4) return d;
  return -1;
}

void copy_range(const StridedWalk& walk, int64_t begin, int64_t end) {
  const StridedOperand& to = walk.operands[0];
  const StridedOperand& from = walk.operands[1];
  alignas(64) std::byte gathered[kStridedTile * 8];
  alignas(64) std::byte converted[kStridedTile * 8];
  for (int64_t i = begin; i < end;) {
    const int64_t n = walk.tile_length(i, end, kStridedTile);
    const std::byte* source = read_tile(walk, from, i, n, gathered);
    if (std::byte* target = tile_address(walk, to, i, n)) {
      convert_elements(from.dtype, source, to.dtype, target, static_cast<size_t>(n));
    } else {
      convert_elements(from.dtype, source, to.dtype, converted, static_cast<size_t>(n));
      write_tile(walk, to, i, n, converted);
    }
    i += n;
  }
}

// One block of a transposed copy: element (r, c) lies at from[r + c * from_stride] and goes to
// to[r * to_stride + c]. Strides in elements.
struct Block {
  const StridedOperand& to;
  const StridedOperand& from;
  int64_t to_offset;
  int64_t from_offset;
  int64_t to_stride;
  int64_t from_stride;
  int64_t rows;
  int64_t columns;
};

// to[j][i] = from[i][j] for 4 x 4 elements in vector registers; strides in elements.
template <class Bits>
void transpose_quad(const Bits* from, int64_t from_stride, Bits* to, int64_t to_stride) {
  using Quad [[gnu::vector_size(4 * sizeof(Bits))]] = Bits;
  Quad in[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&in[i], from + i * from_stride, sizeof(Quad));
  const Quad low_a = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Quad high_a = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Quad low_b = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Quad high_b = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  const Quad out[4] = {__builtin_shufflevector(low_a, low_b, 0, 1, 4, 5),
                       __builtin_shufflevector(low_a, low_b, 2, 3, 6, 7),
                       __builtin_shufflevector(high_a, high_b, 0, 1, 4, 5),
                       __builtin_shufflevector(high_a, high_b, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &out[i], sizeof(Quad));
}

template <class Bits>
void transpose_block(const Block& b) {
  alignas(64) Bits turned[kSide][kSide];
  const Bits* from = reinterpret_cast<const Bits*>(b.from.data) + b.from_offset;
  const int64_t rows = b.rows / 4 * 4;
  const int64_t columns = b.columns / 4 * 4;
  for (int64_t c = 0; c < columns; c += 4)
    for (int64_t r = 0; r < rows; r += 4)
      transpose_quad(from + c * b.from_stride + r, b.from_stride, &turned[r][c], kSide);
  for (int64_t c = 0; c < b.columns; ++c)  // the ragged edges
    for (int64_t r = c < columns ? rows : 0; r < b.rows; ++r)
      turned[r][c] = from[c * b.from_stride + r];
  const auto to_bytes = static_cast<int64_t>(b.to.element_bytes);
  for (int64_t r = 0; r < b.rows; ++r)
    convert_elements(b.from.dtype, turned[r], b.to.dtype,
                     b.to.data + (b.to_offset + r * b.to_stride) * to_bytes,
                     static_cast<size_t>(b.columns));
}

void copy_block(const Block& b) {
  switch (b.from.element_bytes) {
    case 1: return transpose_block<uint8_t>(b);
    case 2: return transpose_block<uint16_t>(b);
    case 4: return transpose_block<uint32_t>(b);
    default: return transpose_block<uint64_t>(b);
  }
}

void copy_transposed(const StridedWalk& walk, int crossing) {
  const StridedOperand& to = walk.operands[0];
  const StridedOperand& from = walk.operands[1];
  const int last = walk.sizes.rank() - 1;
  Dims blocks = walk.sizes;  // how many there are per dimension
  for (const int d : {crossing, last}) blocks[d] = (walk.sizes[d] + kSide - 1) / kSide;
  parallel_for(element_count(blocks), kCopyGrain / (kSide * kSide),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   Block b{to, from, 0, 0, to.strides[crossing], from.strides[last], 0, 0};
                   int64_t rest = i;
                   for (int d = last; d >= 0; --d) {
                     const bool blocked = d == crossing || d == last;
                     const int64_t at = rest % blocks[d] * (blocked ? kSide : 1);
                     rest /= blocks[d];
                     b.to_offset += at * to.strides[d];
                     b.from_offset += at * from.strides[d];
                     if (d == crossing) b.rows = std::min(kSide, walk.sizes[d] - at);
                     if (d == last) b.columns = std::min(kSide, walk.sizes[d] - at);
                   }
                   copy_block(b);
                 }
               });
}

void copy_flat(const Tensor& to, const Tensor& from) {
  auto* target = static_cast<std::byte*>(to.data());
  const auto* source = static_cast<const std::byte*>(from.data());
  const auto to_bytes = static_cast<int64_t>(dtype_bytes(to.dtype()));
  const auto from_bytes = static_cast<int64_t>(dtype_bytes(from.dtype()));
  parallel_for(to.numel(), kCopyGrain, [&](int64_t begin, int64_t end) {
    convert_elements(from.dtype(), source + begin * from_bytes, to.dtype(),
                     target + begin * to_bytes, static_cast<size_t>(end - begin));
  });
}

}  // namespace

CopyPath copy_path(const Tensor& to, const Tensor& from) {
  const StridedWalk walk = walk_of(to, from);
  if (crossing_dim(walk) >= 0) return CopyPath::transposed;
  const bool flat =
      walk.operands[0].access == Access::linear && walk.operands[1].access == Access::linear;
  return flat ? CopyPath::flat : CopyPath::rows;
}

void copy_tensor(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (to.is_contiguous() && from.is_contiguous() && to.numel() == from.numel())
    return copy_flat(to, from);
  const StridedWalk walk = walk_of(to, from);
  const int crossing = crossing_dim(walk);
  if (crossing >= 0) return copy_transposed(walk, crossing);
  parallel_for(walk.numel, kCopyGrain,
               [&](int64_t begin, int64_t end) { copy_range(walk, begin, end); });
}

void fill_tensor(const Tensor& to, double value) {
  if (to.numel() == 0) return;
  const StridedWalk walk = make_walk(to, {});
  parallel_for(walk.numel, kCopyGrain, [&](int64_t begin, int64_t end) {
    alignas(64) std::byte tile[kStridedTile * 8];
    dispatch(to.dtype(), [&]<class T>() {
      std::fill_n(reinterpret_cast<T*>(tile), std::min(kStridedTile, end - begin),
                  cast_element<T>(value));
    });
    for (int64_t i = begin; i < end;) {
      const int64_t n = walk.tile_length(i, end, kStridedTile);
      write_tile(walk, walk.operands[0], i, n, tile);
      i += n;
    }
  });
}

}  // namespace epilogue::cpu
