// SPDX-License-Identifier: Apache-2.0
// Mean and standard deviation of values that come in parts.
#pragma once

#include <cmath>

namespace epilogue::train {

// The order of additions decides the last bits. Squares of values at the ends of double's range are
// within that of long double.
class Moments {
 public:
  void add(double value) {
    ++count_;
    const long double off = value - mean_;
    mean_ += off / count_;
    squares_ += off * (value - mean_);
  }
  void add(const Moments& other) {
    if (other.count_ == 0) return;
    const long double both = count_ + other.count_;
    const long double off = other.mean_ - mean_;
    squares_ += other.squares_ + off * off * (count_ * other.count_ / both);
    mean_ += off * (other.count_ / both);
    count_ = both;
  }
  double mean() const { return static_cast<double>(mean_); }
  // The standard deviation of the whole population.
  double std() const { return count_ == 0 ? 0 : static_cast<double>(std::sqrt(squares_ / count_)); }
  // The sum's own rounding must not pass for a spread.
  bool is_constant() const { return !(std() > std::abs(mean()) * 1e-12); }

 private:
  long double count_ = 0;
  long double mean_ = 0;
  long double squares_ = 0;  // of what is off the mean
};

}  // namespace epilogue::train
