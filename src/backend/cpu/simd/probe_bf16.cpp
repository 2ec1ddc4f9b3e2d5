// SPDX-License-Identifier: Apache-2.0
// Register-only loops of the bf16 dot products: AVX512-BF16's vectors and AMX's tiles.
#include "backend/cpu/simd/probe.h"

#include <bit>

#include "backend/cpu/simd/probe_loop.h"
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstdint>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bf16")

namespace epilogue::simd {
namespace {

// Independent chains for two units of latency 6, and one register for the factors.
constexpr int64_t kChains = 12;
constexpr int64_t kFlopsPerVector = 64;  // 16 sums of two products each

// `rounds` of kChains dot products; the sum only makes them look used.
float vector_dots(int64_t rounds) {
  __m512 chains[kChains];
  // All different, or the compiler would make one of them.
#pragma GCC unroll 12
  for (int64_t i = 0; i < kChains; ++i) chains[i] = _mm512_set1_ps(static_cast<float>(i));
  auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi16(1));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& chain : chains) chain = _mm512_dpbf16_ps(chain, factor, factor);
    // Without this the loop would be moved out of itself.
    __asm__ volatile("" : "+v"(factor));
  }
  __m512 sum = chains[0];
#pragma GCC unroll 12
  for (int64_t i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, chains[i]);
  return _mm512_cvtss_f32(sum);
}

}  // namespace
}  // namespace epilogue::simd
HWY_POP_ATTRIBUTES

namespace epilogue::simd {
namespace {

constexpr int64_t kFlopsPerTile = 2 * 16 * 16 * 32;  // 16 x 32 by 32 x 16
constexpr int64_t kTileChains = 6;                   // accumulators tmm0 to tmm5

// The operand of ldtilecfg: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Assembly, so that no compiler must know AMX and the configuration is an operand in full.
void tile_dots(int64_t rounds) {
  const TileConfig config;
  __asm__ volatile(
      "ldtilecfg %0\n\t"
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7" ::"m"(config));
  for (int64_t round = 0; round < rounds; ++round)
    __asm__ volatile(
        "tdpbf16ps %%tmm7, %%tmm6, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm1\n\t"
        "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm3\n\t"
        "tdpbf16ps %%tmm7, %%tmm6, %%tmm4\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm5" ::);
  __asm__ volatile("tilerelease" ::);
}

}  // namespace

void TileProbe::run(int64_t rounds) const {
  const TileConfig config;
  __asm__ volatile(
      "ldtilecfg %0\n\t"
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::"m"(config));
  constexpr size_t kTile = 512;  // elements
  const uint16_t* const rows = first_;
  const uint16_t* const columns = rows + kTilesEach * kTile;
  for (int64_t round = 0; round < rounds; ++round) {
    const size_t at = static_cast<size_t>(round) * 2 % kTilesEach * kTile;
    __asm__ volatile(
        "tileloadd (%0,%2,1), %%tmm4\n\t"
        "tileloadd (%1,%2,1), %%tmm6\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tileloadd 1024(%1,%2,1), %%tmm7\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tileloadd 1024(%0,%2,1), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(rows + at),
        "r"(columns + at), "r"(int64_t{64})
        : "memory");
  }
  __asm__ volatile("tilerelease" ::);
}

double bf16_gflops(double seconds) {
  const CpuFeatures features = active_features();
  double best = 0.0;
  if (features.has(CpuFeature::avx512_bf16)) {
    constexpr int64_t kRounds = 20'000;
    volatile float sink = 0.0F;
    best = best_gflops(seconds, kRounds * kChains * kFlopsPerVector,
                       [&] { sink = vector_dots(kRounds); });
  }
  if (features.has(CpuFeature::amx_bf16)) {
    constexpr int64_t kRounds = 1'000;
    const double tiles =
        best_gflops(seconds, kRounds * kTileChains * kFlopsPerTile, [] { tile_dots(kRounds); });
    best = std::max(best, tiles);
  }
  return best;
}

}  // namespace epilogue::simd

#else

namespace epilogue::simd {
double bf16_gflops(double) { return 0; }
void TileProbe::run(int64_t) const {}
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {

TileProbe::TileProbe() : values_(2 * kTilesEach * 512 + 32) {
  constexpr uintptr_t kLine = 64;
  const auto at = reinterpret_cast<uintptr_t>(values_.data());
  first_ = values_.data() + (kLine - at % kLine) % kLine / sizeof(uint16_t);
  uint32_t seed = 1;
  for (uint16_t& value : values_) {
    seed = seed * 1664525 + 1013904223;
    // Even between -sqrt(3) and sqrt(3): of variance 1, as activations behind a norm.
    const float x = (static_cast<float>(seed >> 8) / (1 << 23) - 1) * 1.7320508F;
    value = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }
}
bool TileProbe::is_there() { return active_features().has(CpuFeature::amx_bf16); }

}  // namespace epilogue::simd
