// SPDX-License-Identifier: Apache-2.0
// Families of CPUs and the products that belong to them: data. cpu_peaks.cpp reads it.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace epilogue::trace {

// No instructions of its own; and: has them, at a rate that no row here is sure of.
inline constexpr double kNoInstructions = 0;
inline constexpr double kRateUnknown = -1;

// Operations (a multiply-add is two) of one core in one cycle. f64 is half of f32 in all of them.
struct CpuFamily {
  std::string_view name;
  double f32;
  double bf16;
  double f16;
  double i8;
  double ghz;  // assumed where a product's name gives no clock: what servers of the family sustain
  int l2_kib;  // of a core; 0: not known
};

// A product belongs to the first row all of whose words are words of its name. In a word '#' is a
// digit, '?' a digit or a letter, and '*' at its end whatever follows, but no further digit of a
// number.
struct CpuProduct {
  std::array<std::string_view, 4> words;  // "" is none
  std::string_view family;                // "": no estimate is made
  std::string_view reason = {};           // why not
  double ghz = 0;                         // 0: the family's
};

std::span<const CpuFamily> cpu_family_table();
std::span<const CpuProduct> cpu_product_table();

}  // namespace epilogue::trace
