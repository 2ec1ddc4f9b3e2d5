// SPDX-License-Identifier: Apache-2.0
#include "explain/index/sparse_column.h"
#include "support/test.h"

namespace epilogue::trace::sparse_column_test {

TEST(SparseColumn, HasAValueWhereOneWasMade) {
  SparseColumn<int> column(4);
  column[2] += 5;
  column[0] = 3;
  column[2] += 1;
  EXPECT_EQ(column.size(), 2u);
  ASSERT_NE(column.find(2), nullptr);
  EXPECT_EQ(*column.find(2), 6);
  EXPECT_EQ(*column.find(0), 3);
  EXPECT_EQ(column.find(1), nullptr);
}

}  // namespace epilogue::trace::sparse_column_test
