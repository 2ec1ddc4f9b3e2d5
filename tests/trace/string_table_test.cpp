// SPDX-License-Identifier: Apache-2.0
#include "trace/read/string_table.h"

#include "support/test.h"
#include "trace/read/same_text.h"

namespace epilogue::trace::string_table_test {

using Texts = std::vector<std::string_view>;

TEST(StringTable, NumbersDistinctTextsOfAnyLength) {
  StringTable table;
  std::string text;
  for (uint32_t n = 0; n < 300; ++n) {
    EXPECT_EQ(table.intern(text), n) << n;
    EXPECT_EQ(table.intern(std::string(text)), n) << n;
    text += static_cast<char>('a' + n % 26);
  }
  // One byte differs, wherever it is.
  const uint32_t whole = table.intern(text);
  for (char& c : text) {
    const char was = c;
    c = '#';
    EXPECT_NE(table.intern(text), whole);
    c = was;
  }
  EXPECT_EQ(table.intern(text), whole);
}

TEST(StringTable, PartsAreTheirJoinedText) {
  StringTable table;
  const Texts parts = {"", "[[2, 3]]", "", "[\"float\"]"};
  const uint32_t id = table.intern(parts);
  EXPECT_EQ(table.take_new().back(), "\n[[2, 3]]\n\n[\"float\"]");
  EXPECT_EQ(table.intern(parts), id);
  // The same bytes in other parts, a part more, a part less.
  EXPECT_NE(table.intern(Texts{"[[2, 3]]", "", "", "[\"float\"]"}), id);
  EXPECT_NE(table.intern(Texts{"", "[[2, 3]]", "", "[\"float\"]", ""}), id);
  EXPECT_NE(table.intern(Texts{"", "[[2, 3]]", ""}), id);
  EXPECT_NE(table.intern(Texts{"", "[[2, 3]]", "", "[\"float\"] "}), id);
  EXPECT_EQ(table.take_new().size(), 4U);
}

TEST(SameText, ComparesEveryByte) {
  for (size_t n = 0; n < 40; ++n) {
    const std::string a(n, 'x');
    EXPECT_TRUE(same_text(a, std::string(n, 'x'))) << n;
    EXPECT_FALSE(same_text(a, std::string(n + 1, 'x'))) << n;
    for (size_t at = 0; at < n; ++at) {
      std::string b = a;
      b[at] = 'y';
      EXPECT_FALSE(same_text(a, b)) << n << " at " << at;
    }
  }
}

}  // namespace epilogue::trace::string_table_test
