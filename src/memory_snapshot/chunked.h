// SPDX-License-Identifier: Apache-2.0
// A vector that never moves its elements: growing it needs no second copy, so that a table takes
// the memory of its rows and no more.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace epilogue::trace {

template <class T>
class Chunked {
 public:
  static constexpr size_t kShift = 14;
  static constexpr size_t kChunk = size_t{1} << kShift;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return chunks_[i >> kShift][i & (kChunk - 1)]; }
  const T& operator[](size_t i) const { return chunks_[i >> kShift][i & (kChunk - 1)]; }
  const T& back() const { return (*this)[size_ - 1]; }

  void push_back(T value) {
    if (size_ == chunks_.size() << kShift) chunks_.push_back(std::make_unique<T[]>(kChunk));
    (*this)[size_++] = std::move(value);
  }
  // New elements are T().
  void grow_to(size_t size) {
    while (chunks_.size() << kShift < size) chunks_.push_back(std::make_unique<T[]>(kChunk));
    if (size > size_) size_ = size;
  }
  size_t bytes() const { return chunks_.size() * kChunk * sizeof(T); }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;
};

}  // namespace epilogue::trace
