// SPDX-License-Identifier: Apache-2.0
// Random bytes against Philox's definition: every size, start and ISA.
#include "backend/cpu/simd/bernoulli.h"

#include "backend/simd/simd_testing.h"
#include "base/philox.h"

namespace epilogue::simd::bernoulli_test {

constexpr uint64_t kSeed = 0x299f31d0a4093822;

uint8_t expected(uint64_t counter, uint32_t limit, size_t i) {
  return (philox4x32(kSeed, counter + i / 4, 0)[i % 4] >> 8) < limit ? 1 : 0;
}

// Counters whose lower half overflows, and that overflow themselves.
TEST(Bernoulli, IsPhiloxBelowALimit) {
  constexpr uint64_t kCounters[] = {0, 7, 0xFFFFFFFD, ~uint64_t{0} - 2};
  constexpr uint32_t kLimits[] = {0, 1, 0x400000, 0xFFFFFF, 0x1000000};
  for_each_isa([&](Isa) {
    for (const uint64_t counter : kCounters)
      for (const uint32_t limit : kLimits)
        for (size_t n = 0; n < 140; ++n) {
          Guarded<uint8_t> out(n, n % 5);
          bernoulli_kernels().bernoulli(kSeed, counter, limit, out.data(), n);
          for (size_t i = 0; i < n; ++i)
            ASSERT_EQ(out[i], expected(counter, limit, i)) << counter << " " << limit << " " << i;
          out.expect_guards_intact();
        }
  });
}

TEST(Bernoulli, BytesBecomeOnesOfADtype) {
  for_each_isa([&](Isa) {
    for (size_t n = 0; n < 70; ++n) {
      std::vector<uint8_t> keep(n);
      for (size_t i = 0; i < n; ++i) keep[i] = i % 3 == 0 ? 1 : 0;
      Guarded<uint32_t> wide(n, n % 3);
      Guarded<uint16_t> narrow(n, n % 3);
      bernoulli_kernels().expand32(keep.data(), 0x3F800000, wide.data(), n);
      bernoulli_kernels().expand16(keep.data(), 0x3F80, narrow.data(), n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(wide[i], i % 3 == 0 ? 0x3F800000U : 0U) << i;
        ASSERT_EQ(narrow[i], i % 3 == 0 ? 0x3F80U : 0U) << i;
      }
      wide.expect_guards_intact();
      narrow.expect_guards_intact();
    }
  });
}

}  // namespace epilogue::simd::bernoulli_test
