// SPDX-License-Identifier: Apache-2.0
#include "explain/render/utf8.h"
#include "support/test.h"

namespace epilogue::trace::utf8_test {

TEST(Utf8, CountsCharacters) {
  EXPECT_EQ(utf8_length(""), 0U);
  EXPECT_EQ(utf8_length("abc"), 3U);
  EXPECT_EQ(utf8_length("größe"), 5U);
  EXPECT_EQ(utf8_length("模型🙂"), 3U);
}

TEST(Utf8, CutsBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("größe", 3), "grö");
  EXPECT_EQ(utf8_prefix("größe", 0), "");
  EXPECT_EQ(utf8_prefix("größe", 99), "größe");
  EXPECT_EQ(utf8_suffix("größe", 2), "ße");
  EXPECT_EQ(utf8_suffix("größe", 0), "");
  EXPECT_EQ(utf8_suffix("größe", 5), "größe");
}

TEST(Utf8, Pads) {
  EXPECT_EQ(pad_left("ö", 3), "  ö");
  EXPECT_EQ(pad_right("ö", 3), "ö  ");
  EXPECT_EQ(pad_left("abcd", 3), "abcd");
}

}  // namespace epilogue::trace::utf8_test
