// SPDX-License-Identifier: Apache-2.0
// Which compiled copy of the SIMD kernels runs: Highway targets chosen by active_features().
#pragma once

#include <array>
#include <cstddef>

namespace epilogue::simd {

// Every kernel source is compiled once for each of these. `fallback` has one lane and no
// instruction beyond the compiler's baseline; the library never needs more than that to start.
enum class Target { fallback, sse4, avx2, avx3 };
inline constexpr size_t kTargets = 4;

// The target for active_features(): avx3 with avx512, avx2 with avx2, else sse4 (fallback where the
// CPU lacks it). Never a target that this CPU cannot run. A load and a table look-up;
// follows set_active_isa, so a kernel table must be fetched per call, not kept.
Target active_target();

// As it stands in kernel names: "scalar", "sse4", "avx2", "avx512".
const char* target_name(Target target);

// The table for active_target(). A target is null where the build left it out: the compiler's flags
// may start above it (then the next better one takes its place) or end below it (the best there
// is).
template <class Table>
const Table& pick(const std::array<const Table*, kTargets>& tables) {
  auto i = static_cast<size_t>(active_target());
  while (i + 1 < kTargets && tables[i] == nullptr) ++i;
  while (tables[i] == nullptr) --i;
  return *tables[i];
}

// pick() of the tables named `table` in each target's namespace; behind HWY_ONCE.
#define EPILOGUE_PICK(table)                                                                \
  ([]() -> const auto& {                                                                    \
    static constexpr std::array<decltype(HWY_STATIC_DISPATCH(table))*, kTargets> tables = { \
        HWY_CHOOSE_FALLBACK(table), HWY_CHOOSE_SSE4(table), HWY_CHOOSE_AVX2(table),         \
        HWY_CHOOSE_AVX3(table)};                                                            \
    return pick(tables);                                                                    \
  }())

}  // namespace epilogue::simd
