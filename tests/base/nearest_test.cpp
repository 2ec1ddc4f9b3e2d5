// SPDX-License-Identifier: Apache-2.0
#include "base/text/nearest.h"
#include "support/test.h"

namespace epilogue::nearest_test {

using List = std::vector<std::string>;

TEST(EditDistance, CountsInsertionsDropsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("table", "table"), 0);
  EXPECT_EQ(edit_distance("tble", "table"), 1);
  EXPECT_EQ(edit_distance("tabble", "table"), 1);
  EXPECT_EQ(edit_distance("tadle", "table"), 1);
  EXPECT_EQ(edit_distance("tabel", "table"), 1);  // a swap is one edit
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3);
}

TEST(Nearest, GivesSlipsBestFirst) {
  const List names = {"table", "explain", "cable", "train"};
  EXPECT_EQ(nearest("tabel", names), List{"table"});
  EXPECT_EQ(nearest("tables", names, 2), (List{"table", "cable"}));
  EXPECT_EQ(nearest("xyz", names), List{});
  EXPECT_EQ(nearest("tabel", {}), List{});
  EXPECT_EQ(nearest("", names), List{});
}

TEST(Nearest, KeepsTheOrderOfEquals) {
  const List names = {"bat", "cat", "hat"};
  EXPECT_EQ(nearest("aat", names, 5), names);
}

TEST(Nearest, TakesBeginningsOfThreeLetters) {
  const List names = {"kernels_per_step", "launches"};
  EXPECT_EQ(nearest("ker", names), List{"kernels_per_step"});
  EXPECT_EQ(nearest("ke", names), List{});
}

TEST(DidYouMean, ListsWhatItWasGiven) {
  EXPECT_EQ(did_you_mean({}), "");
  EXPECT_EQ(did_you_mean(List{"a"}), "; did you mean a?");
  EXPECT_EQ(did_you_mean(List{"a", "b", "c"}), "; did you mean a, b or c?");
}

TEST(OneOfText, JoinsNames) {
  EXPECT_EQ(one_of_text({}), "");
  EXPECT_EQ(one_of_text(List{"a"}), "a");
  EXPECT_EQ(one_of_text(List{"a", "b"}), "a or b");
}

}  // namespace epilogue::nearest_test
