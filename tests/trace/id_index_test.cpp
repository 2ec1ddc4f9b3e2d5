// SPDX-License-Identifier: Apache-2.0
#include "trace/id_index.h"
#include "support/test.h"

namespace epilogue::trace::id_index_test {

IdIndex index_of(const std::vector<std::pair<int64_t, uint32_t>>& entries) {
  IdIndex index;
  for (const auto& [id, event] : entries) index.announce(id);
  for (const auto& [id, event] : entries) index.add(id, event);
  index.finish();
  return index;
}

TEST(IdIndex, FindsTheFirstEventOfAnId) {
  const int64_t far = int64_t{1} << 62;  // as a table it would not fit in memory
  for (const int64_t last : {int64_t{9}, far}) {
    const IdIndex index = index_of({{last, 4}, {7, 3}, {7, 1}, {8, 2}});
    EXPECT_EQ(index.find(7), 1u);
    EXPECT_EQ(index.find(8), 2u);
    EXPECT_EQ(index.find(last), 4u);
    for (const int64_t other : {int64_t{0}, int64_t{6}, last + 1, INT64_MIN, INT64_MAX})
      EXPECT_EQ(index.find(other), kNone) << other;
  }
}

TEST(IdIndex, TakesIdsOfTheWholeRange) {
  const IdIndex index = index_of({{INT64_MAX, 0}, {INT64_MIN, 1}, {0, 2}});
  EXPECT_EQ(index.find(INT64_MAX), 0u);
  EXPECT_EQ(index.find(INT64_MIN), 1u);
  EXPECT_EQ(index.find(0), 2u);
  EXPECT_EQ(index.find(1), kNone);
}

TEST(IdIndex, WithoutIdsFindsNothing) { EXPECT_EQ(index_of({}).find(1), kNone); }

}  // namespace epilogue::trace::id_index_test
