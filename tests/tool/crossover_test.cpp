// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/crossover.h"
#include "support/test.h"

namespace epilogue::tool::crossover_test {

// Kernel times beside a dispatch of 1 us.
Crossover crossover_of(const std::vector<std::pair<int64_t, double>>& kernel_us) {
  Crossover c;
  for (const auto& [size, us] : kernel_us) c.rows.push_back({size, 1, us, 0});
  c.crossings = crossings_of(c.rows);
  return c;
}

TEST(Crossover, LiesWhereBothTimesAreEqualOnLogarithmicAxes) {
  // The kernels' time quadruples with the size: 1/2 us at 64, 2 us at 128.
  const Crossover c = crossover_of({{32, 0.125}, {64, 0.5}, {128, 2}, {256, 8}});
  ASSERT_TRUE(c.size().has_value());
  EXPECT_NEAR(*c.size(), 90.5, 0.05);  // 64 x sqrt(2)
  EXPECT_EQ(crossover_sentence(c),
            "Below n = 91 a step is overhead-bound, above it compute-bound.");
}

TEST(Crossover, NeedsASizeOnBothSides) {
  EXPECT_TRUE(crossings_of({}).empty());
  const Crossover slow = crossover_of({{32, 2}, {64, 8}});
  EXPECT_FALSE(slow.size().has_value());
  EXPECT_EQ(crossover_sentence(slow),
            "The kernels take most of a step at every size measured here.");
  EXPECT_EQ(crossover_sentence(crossover_of({{32, 0.1}, {64, 0.2}})),
            "Overhead takes most of a step at every size measured here.");
}

TEST(Crossover, OfSeveralCrossingsNoneIsTheOne) {
  const Crossover c = crossover_of({{16, 0.5}, {32, 2}, {64, 0.5}, {128, 2}});
  EXPECT_EQ(c.crossings.size(), 3U);
  EXPECT_FALSE(c.size().has_value());
  EXPECT_HAS(crossover_sentence(c), "3 times in this run, at n = 23, 45 and 91.");
}

TEST(Crossover, TheTableSaysWhatBoundsEachSize) {
  const std::string table = crossover_table(crossover_of({{64, 0.5}, {128, 2}}));
  EXPECT_HAS(table, "overhead\n");
  EXPECT_HAS(table, "the kernels\n");
  EXPECT_HAS(table, "33.3%");
}

}  // namespace epilogue::tool::crossover_test
