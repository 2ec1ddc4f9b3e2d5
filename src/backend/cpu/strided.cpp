// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/strided.h"

#include <cstring>

#include "core/tensor_impl.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

StridedOperand operand_of(const Tensor& t) {
  return {static_cast<std::byte*>(t.data()), t.dtype(), dtype_bytes(t.dtype()), Access::linear, {}};
}

// Most calls: contiguous tensors of one shape, and scalars. No strides are looked at.
bool try_linear_walk(const Tensor& out, std::span<const Tensor> in, StridedWalk& walk) {
  if (!out.is_contiguous()) return false;
  for (const Tensor& t : in)
    if (t.numel() != 1 && (t.numel() != walk.numel || !t.is_contiguous())) return false;
  walk.sizes.push_back(walk.numel);
  walk.operands[0].strides.push_back(1);
  for (size_t k = 0; k < in.size(); ++k) {
    const bool scalar = in[k].numel() == 1 && walk.numel != 1;
    walk.operands[k + 1].access = scalar ? Access::scalar : Access::linear;
    walk.operands[k + 1].strides.push_back(scalar ? 0 : 1);
  }
  return true;
}

// Dimensions of more than one element, from the result's largest stride to its smallest.
Dims walk_order(const Tensor& out) {
  Dims order;
  for (int d = 0; d < out.dim(); ++d) {
    if (out.sizes()[d] == 1) continue;
    order.push_back(d);
    for (int p = order.rank() - 1; p > 0; --p) {
      const auto before = static_cast<int>(order[p - 1]);
      const auto here = static_cast<int>(order[p]);
      if (out.strides()[before] >= out.strides()[here]) break;
      std::swap(order[p - 1], order[p]);
    }
  }
  return order;
}

Access access_of(const Dims& sizes, const Dims& strides) {
  bool all_zero = true;
  for (const int64_t s : strides) all_zero = all_zero && s == 0;
  if (all_zero) return Access::scalar;
  return detail::strides_are_contiguous(sizes, strides) ? Access::linear : Access::rows;
}

}  // namespace

StridedWalk make_walk(const Tensor& out, std::span<const Tensor> in) {
  StridedWalk walk;
  walk.numel = out.numel();
  walk.operands[0] = operand_of(out);
  for (size_t k = 0; k < in.size(); ++k) walk.operands[k + 1] = operand_of(in[k]);
  if (try_linear_walk(out, in, walk)) return walk;

  std::array<Dims, kMostWalkInputs + 1> strides = {out.strides()};
  for (size_t k = 0; k < in.size(); ++k) strides[k + 1] = broadcast_strides(in[k], out.sizes());
  const size_t operands = in.size() + 1;
  for (const int64_t ordered : walk_order(out)) {
    const auto d = static_cast<int>(ordered);
    const int64_t size = out.sizes()[d];
    const int last = walk.sizes.rank() - 1;
    bool merges = last >= 0;
    for (size_t k = 0; k < operands && merges; ++k)
      merges = walk.operands[k].strides[last] == strides[k][d] * size;
    if (merges) {
      walk.sizes[last] *= size;
    } else {
      walk.sizes.push_back(size);
    }
    for (size_t k = 0; k < operands; ++k) {
      Dims& merged = walk.operands[k].strides;
      if (merges) {
        merged[last] = strides[k][d];
      } else {
        merged.push_back(strides[k][d]);
      }
    }
  }
  for (size_t k = 0; k < operands; ++k)
    walk.operands[k].access = access_of(walk.sizes, walk.operands[k].strides);
  return walk;
}

namespace {

// Splits [i, i + n) at row ends: segment(offset in elements, position in the tile, length).
template <class Segment>
void for_each_segment(const StridedWalk& walk, const Dims& strides, int64_t i, int64_t n,
                      Segment&& segment) {
  const int last = walk.sizes.rank() - 1;
  Dims index = walk.sizes;
  int64_t offset = 0;
  for (int d = last; d >= 0; --d) {
    index[d] = i % walk.sizes[d];
    i /= walk.sizes[d];
    offset += index[d] * strides[d];
  }
  for (int64_t done = 0; done < n;) {
    const int64_t length = std::min(n - done, walk.sizes[last] - index[last]);
    segment(offset, done, length);
    done += length;
    offset += length * strides[last];
    index[last] += length;
    for (int d = last; d > 0 && index[d] == walk.sizes[d]; --d) {
      offset += strides[d - 1] - walk.sizes[d] * strides[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

int64_t offset_of(const StridedWalk& walk, const Dims& strides, int64_t i) {
  int64_t offset = 0;
  for (int d = walk.sizes.rank() - 1; d >= 0; --d) {
    offset += i % walk.sizes[d] * strides[d];
    i /= walk.sizes[d];
  }
  return offset;
}

// Calls body with an unsigned integer of the element's width: moving bits needs no more.
template <class Body>
void with_bits(size_t element_bytes, Body&& body) {
  switch (element_bytes) {
    case 1: return body(uint8_t{});
    case 2: return body(uint16_t{});
    case 4: return body(uint32_t{});
    default: return body(uint64_t{});
  }
}

bool within_one_row(const StridedWalk& walk, int64_t i, int64_t n) {
  return walk.sizes.rank() == 1 || i % walk.row_length() + n <= walk.row_length();
}

}  // namespace

std::byte* tile_address(const StridedWalk& walk, const StridedOperand& operand, int64_t i,
                        int64_t n) {
  const auto bytes = static_cast<int64_t>(operand.element_bytes);
  if (operand.access == Access::linear) return operand.data + i * bytes;
  const int last = walk.sizes.rank() - 1;
  if (operand.access == Access::scalar || operand.strides[last] != 1 || !within_one_row(walk, i, n))
    return nullptr;
  return operand.data + offset_of(walk, operand.strides, i) * bytes;
}

bool is_one_element(const StridedWalk& walk, const StridedOperand& operand, int64_t i, int64_t n,
                    const std::byte*& address) {
  address = operand.data;
  if (operand.access != Access::rows) return operand.access == Access::scalar;
  if (operand.strides[walk.sizes.rank() - 1] != 0 || !within_one_row(walk, i, n)) return false;
  address += offset_of(walk, operand.strides, i) * static_cast<int64_t>(operand.element_bytes);
  return true;
}

const std::byte* read_tile(const StridedWalk& walk, const StridedOperand& operand, int64_t i,
                           int64_t n, std::byte* scratch) {
  if (const std::byte* in_place = tile_address(walk, operand, i, n)) return in_place;
  const int64_t stride = operand.strides[walk.sizes.rank() - 1];
  with_bits(operand.element_bytes, [&]<class Bits>(Bits) {
    const auto* from = reinterpret_cast<const Bits*>(operand.data);
    auto* to = reinterpret_cast<Bits*>(scratch);
    for_each_segment(walk, operand.strides, i, n, [&](int64_t offset, int64_t at, int64_t length) {
      for (int64_t j = 0; j < length; ++j) to[at + j] = from[offset + j * stride];
    });
  });
  return scratch;
}

void write_tile(const StridedWalk& walk, const StridedOperand& operand, int64_t i, int64_t n,
                const std::byte* from) {
  if (std::byte* in_place = tile_address(walk, operand, i, n)) {
    std::memmove(in_place, from, static_cast<size_t>(n) * operand.element_bytes);
    return;
  }
  const int64_t stride = operand.strides[walk.sizes.rank() - 1];
  with_bits(operand.element_bytes, [&]<class Bits>(Bits) {
    const auto* source = reinterpret_cast<const Bits*>(from);
    auto* to = reinterpret_cast<Bits*>(operand.data);
    for_each_segment(walk, operand.strides, i, n, [&](int64_t offset, int64_t at, int64_t length) {
      for (int64_t j = 0; j < length; ++j) to[offset + j * stride] = source[at + j];
    });
  });
}

}  // namespace epilogue::cpu
