// SPDX-License-Identifier: Apache-2.0
// Dims: sizes, strides, lists of dimensions.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#pragma GCC visibility push(default)

namespace epilogue {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank numbers without a heap allocation: sizes, strides or a list of dimensions.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}
  // One number stands for a list of one: zeros(3), sum(x, -1).
  template <std::signed_integral Number>
  Dims(Number value) : rank_(1) {  // NOLINT(google-explicit-constructor): on purpose
    values_[0] = value;
  }
  explicit Dims(std::span<const int64_t> values) : Dims(values.data(), values.size()) {}
  static Dims filled(int rank, int64_t value) {
    Dims d;
    for (int i = 0; i < rank; ++i) d.push_back(value);
    return d;
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + rank_; }
  // Throws Error beyond kMaxRank.
  void push_back(int64_t value);
  bool operator==(const Dims& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }

 private:
  Dims(const int64_t* values, size_t n) {
    for (size_t i = 0; i < n; ++i) push_back(values[i]);
  }
  std::array<int64_t, kMaxRank> values_;  // those beyond rank_ are never read
  uint8_t rank_ = 0;
};

// The product; 1 for rank 0. Throws Error when it does not fit int64_t.
int64_t element_count(const Dims& sizes);
// "[64, 128]".
std::string to_string(const Dims& dims);

}  // namespace epilogue

#pragma GCC visibility pop
