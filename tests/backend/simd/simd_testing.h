// SPDX-License-Identifier: Apache-2.0
// What every SIMD test needs: all ISA levels of this machine, guarded arrays, awkward sizes.
#pragma once

#include <cstddef>

#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Runs body(isa) at every level that this machine has, then restores the level.
template <class Body>
void for_each_isa(const Body& body) {
  const Isa before = active_isa();
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    SCOPED_TRACE(std::string("isa ") + std::string(isa_name(isa)));
    body(isa);
  }
  set_active_isa(before);
}

// n numbers from low to high, evenly spaced.
inline std::vector<float> sweep(float low, float high, size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(n - 1);
  return x;
}

// n elements at an offset from alignment, between guards that must survive.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t n, size_t offset = 0) : n_(n), offset_(offset), all_(n + offset + kPad) {
    std::memset(all_.data(), kGuard, all_.size() * sizeof(T));
  }
  T* data() { return all_.data() + kBefore + offset_; }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return n_; }
  void expect_guards_intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(all_.data());
    const size_t first = (kBefore + offset_) * sizeof(T);
    const size_t last = first + n_ * sizeof(T);
    for (size_t i = 0; i < all_.size() * sizeof(T); ++i) {
      if (i == first) i = last;
      if (i >= all_.size() * sizeof(T)) break;
      ASSERT_EQ(bytes[i], kGuard) << "byte " << i << " written; the array is [" << first << ", "
                                  << last << ")";
    }
  }

 private:
  static constexpr size_t kBefore = 64;
  static constexpr size_t kPad = 128;
  static constexpr unsigned char kGuard = 0xA5;
  size_t n_;
  size_t offset_;
  std::vector<T> all_;
};

// 0 to 2 * lanes + 3 for the widest vectors, and some larger odd ones.
inline std::vector<size_t> awkward_sizes() {
  std::vector<size_t> sizes;
  for (size_t n = 0; n <= 35; ++n) sizes.push_back(n);
  for (size_t n : {63U, 64U, 65U, 127U, 257U, 1001U}) sizes.push_back(n);
  return sizes;
}

inline std::vector<float> uniform(size_t n, float low, float high, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> values(n);
  for (float& v : values) v = distribution(generator);
  return values;
}

}  // namespace epilogue::simd
