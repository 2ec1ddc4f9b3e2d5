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

}  // namespace epilogue_torch
