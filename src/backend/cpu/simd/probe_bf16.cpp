// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/probe.h"
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace epilogue::simd {
namespace {

// Enough independent chains for two units of latency 6.
constexpr int64_t kChains = 12;
constexpr int64_t kFlopsPerDot = 16 * 2 * 2;  // lanes x products x (multiply, add)

float dots(int64_t rounds) {
  const __m512i ones = _mm512_set1_epi16(0x3F80);  // bf16 1.0
  const auto factor = reinterpret_cast<__m512bh>(ones);
  __m512 chains[kChains];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kChains; ++i)  // equal chains would be one to the compiler
    chains[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int64_t i = 0; i < kChains; ++i) chains[i] = _mm512_dpbf16_ps(chains[i], factor, factor);
  }
  __m512 sum = chains[0];
#pragma GCC unroll 12
  for (int64_t i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, chains[i]);
  return _mm512_cvtss_f32(sum);
}

}  // namespace

double bf16_dot_gflops(double seconds) {
  if (active_isa() != Isa::avx512_bf16) return 0;
  return best_gflops(seconds, kChains * kFlopsPerDot, dots);
}

}  // namespace epilogue::simd

#pragma GCC pop_options

#else

namespace epilogue::simd {

double bf16_dot_gflops(double) { return 0; }

}  // namespace epilogue::simd

#endif
