// SPDX-License-Identifier: Apache-2.0
// Sums of several ranks' numbers: f32, in the order of the ranks. A bf16 is a uint16_t (element.h).
#pragma once

#include <cstdint>

namespace epilogue_torch {

// out[i] = sum over ranks of from[r][i], plus bias[(at + i) % columns], plus residual[i].
template <class T, class Out = T>
struct Sum {
  Out* out;
  const T* const* from;
  int64_t ranks;
  int64_t count;
  const Out* bias = nullptr;
  int64_t columns = 1;
  int64_t at = 0;
  const Out* residual = nullptr;
};

void sum_of(const Sum<float>& s);
void sum_of(const Sum<uint16_t>& s);
void sum_of(const Sum<uint16_t, float>& s);
void sum_of(const Sum<float, uint16_t>& s);

// A copy of `rows` rows of `bytes` each. `streams`: past the caches, which saves reading what is
// there before: of more than a cache holds.
void copy_rows(char* to, int64_t to_stride, const char* from, int64_t rows, int64_t bytes,
               bool streams);

}  // namespace epilogue_torch
