// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"
#include "support/test.h"

namespace epilogue::printable_test {

TEST(Printable, KeepsPlainTextAndUtf8) {
  EXPECT_EQ(printable("layer.0/weight \u00e4\u20ac\U0001f600"),
            "layer.0/weight \u00e4\u20ac\U0001f600");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable(std::string_view("a\n\r\t\0\x1b\x7f", 7)), "a\\x0a\\x0d\\x09\\x00\\x1b\\x7f");
}

TEST(Printable, EscapesC1Controls) {
  EXPECT_EQ(printable("\u009b31m\u00a0"), "\\xc2\\x9b31m\u00a0");
}

TEST(Printable, CutsByCharactersNotBytes) {
  EXPECT_EQ(printable("\u20ac\u20ac\u20ac", 2), "\u20ac\u20ac...");
  EXPECT_EQ(printable("\u20ac\u20ac", 2), "\u20ac\u20ac");
  EXPECT_EQ(printable(std::string(81, 'x')), std::string(80, 'x') + "...");
}

TEST(Printable, SurvivesBrokenUtf8) {
  EXPECT_EQ(printable("a\x80\x80\x80\x80\x80"), "a\x80\x80\x80\x80\x80");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

}  // namespace epilogue::printable_test
