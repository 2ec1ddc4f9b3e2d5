// SPDX-License-Identifier: Apache-2.0
// Rows: a strided f32, bf16 or f16 tensor seen as rows of f32, for kernels that work row by row.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/convert.h"
#include "base/thread_pool.h"
#include "core/op.h"

namespace epilogue::cpu {

inline constexpr int64_t kRowPiece = 4096;   // floats of one piece of work: half of an L1
inline constexpr int64_t kGrain = 32768;     // elements that are worth a thread
inline constexpr int64_t kStridedRows = 32;  // rows taken at once where neighbours are not adjacent

// A buffer of this thread, kept between calls; each slot is one buffer, undefined content.
enum class Slot : size_t { a, b, c, d, raw, shared_a, shared_b, shared_c };
float* scratch(Slot slot, int64_t floats);

// Items per thread so that each gets kGrain elements.
inline int64_t grain_for(int64_t elements_per_item) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements_per_item));
}

// Threads that work on `items`, as the trace shows them.
inline int threads_for(int64_t items, int64_t grain) {
  return std::max(1, parallel_pieces(items, grain));
}

// Work as the trace shows it: a grid of `items`, each of width x height elements.
inline void describe_items(KernelInfo& info, int64_t items, int64_t grain, int64_t width,
                           int64_t height = 1) {
  info.grid = {std::max<int64_t>(1, items), 1, 1};
  info.block = {std::max<int64_t>(1, width), std::max<int64_t>(1, height), 1};
  info.threads = threads_for(items, grain);
}

// One dimension: how many, and how far apart in elements.
struct Axis {
  int64_t size;
  int64_t stride;
};
// Dimensions without those of size 1, neighbours joined where one stride serves both.
struct Axes {
  std::array<Axis, kMaxRank> axis;
  int rank = 0;
  void push_back(Axis next);
  int64_t count() const;
  // Where the i-th combination (row-major) lies.
  int64_t offset(int64_t i) const;
};

// n elements of `type`, `step` apart, as f32: where they lie if possible, else in `buffer`.
const float* read_line(simd::FloatType type, const void* data, int64_t step, int64_t n,
                       float* buffer);
void write_line(simd::FloatType type, const float* values, void* data, int64_t step, int64_t n);

// Rows in a buffer or in place; `pitch` floats from one to the next.
template <class T>
struct RowBlock {
  T* data;
  int64_t pitch;
  T* row(int64_t r) const { return data + r * pitch; }
};

class Rows {
 public:
  // A row runs over the dimensions `inner` (ascending); the others, in order, count the rows.
  Rows(const Tensor& t, const Dims& inner);

  int64_t count() const { return count_; }
  int64_t size() const { return size_; }
  // How many rows to take at once: kStridedRows where a row alone would waste cache lines.
  int64_t block() const { return inner_.rank <= 1 && step_ != 1 ? kStridedRows : 1; }

  // Elements [begin, begin + n) of one row, in place or in `buffer` (n floats).
  const float* read(int64_t row, int64_t begin, int64_t n, float* buffer) const;
  // Rows [first, first + k), in place or in `buffer` (k * pitch() floats).
  RowBlock<const float> read_rows(int64_t first, int64_t k, float* buffer) const;
  // Rows in a buffer begin one cache line later than they need: at sizes of powers of two they
  // would all compete for the same lines.
  int64_t pitch() const { return size_ + 16; }

  // The same for writing: compute into what target() returns, then call write() with it.
  float* target(int64_t row, int64_t begin, float* buffer) const;
  void write(int64_t row, int64_t begin, int64_t n, const float* values) const;
  RowBlock<float> target_rows(int64_t first, int64_t k, float* buffer) const;
  void write_rows(int64_t first, int64_t k, const RowBlock<float>& values) const;

 private:
  std::byte* at(int64_t row, int64_t begin) const {
    return data_ + (outer_.offset(row) + begin * step_) * static_cast<int64_t>(element_);
  }
  bool lies_in_rows(int64_t k) const {
    return type_ == simd::FloatType::f32 && step_ == 1 && (k == 1 || is_packed_);
  }
  template <bool kRead, class Raw>
  void move_rows(int64_t first, int64_t k, Raw* raw) const;
  template <bool kRead>
  void move_scattered(int64_t row, int64_t begin, int64_t n, float* values) const;

  std::byte* data_;
  simd::FloatType type_;
  DType dtype_;
  size_t element_;  // bytes
  int64_t count_;
  int64_t size_;
  int64_t step_;    // between neighbours in a row; 0 in broadcast rows and in scattered ones
  bool is_packed_;  // row r begins at r * size()
  Axes inner_;      // rank > 1: no single step, "scattered"
  Axes outer_;
};

// piece(0) + ... + piece(n - 1), added in this order whatever the number of threads.
double ordered_sum(int64_t n, int64_t grain, FunctionRef<double(int64_t)> piece);

}  // namespace epilogue::cpu
