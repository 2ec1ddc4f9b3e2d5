// SPDX-License-Identifier: Apache-2.0
#include "trace/read/json/number_text.h"
#include "support/test.h"

namespace epilogue::trace::number_text_test {

int64_t us(std::string_view text) {
  const ExactNumber number = parse_us(text);
  EXPECT_TRUE(number.ok()) << text;
  return number.value;
}

TEST(NumberText, ReadsMicrosecondsExactly) {
  EXPECT_EQ(us("0"), 0);
  EXPECT_EQ(us("12"), 12'000);
  EXPECT_EQ(us("12.5"), 12'500);
  EXPECT_EQ(us("12.345"), 12'345);
  EXPECT_EQ(us("12."), 12'000);
  EXPECT_EQ(us(".5"), 500);
  EXPECT_EQ(us("-3.25"), -3'250);
  EXPECT_EQ(us("1713200000000123.007"), 1'713'200'000'000'123'007);  // a double gives ...123.000
  EXPECT_EQ(us("9223372036854775.807"), INT64_MAX);
}

TEST(NumberText, RoundsWhatIsFinerThanNanoseconds) {
  EXPECT_EQ(us("1.0004"), 1'000);
  EXPECT_EQ(us("1.0005"), 1'001);
  EXPECT_EQ(us("-1.0005"), -1'001);
  EXPECT_EQ(us("0.0004999999999999999999999999"), 0);
  EXPECT_EQ(us("0.0005"), 1);
  EXPECT_EQ(us("0.00000000000000000000000000001"), 0);
}

TEST(NumberText, TakesExponentsAndQuotes) {
  EXPECT_EQ(us("1e1"), 10'000);
  EXPECT_EQ(us("1.713200000000125e15"), 1'713'200'000'000'125'000);
  EXPECT_EQ(us("125E-2"), 1'250);
  EXPECT_EQ(us("1e-99999999999999999999"), 0);
  EXPECT_EQ(us("\"1713200000000124.5\""), 1'713'200'000'000'124'500);
  EXPECT_EQ(us("0e99999999999999999999"), 0);
}

TEST(NumberText, TellsOutOfRangeFromNoNumber) {
  for (const char* text : {"9223372036854775.808", "1e300", "99999999999999999999999",
                           "1e999999999", "18446744073709551615.5"})
    EXPECT_EQ(parse_us(text).fault, NumberFault::out_of_range) << text;
  for (const char* text : {"", ".", "-", "abc", "1.2.3", "1e", "1e+", "null", "NaN", "0x10", "1 2"})
    EXPECT_EQ(parse_us(text).fault, NumberFault::not_a_number) << text;
}

TEST(NumberText, KeepsTheBitsOfUnsignedIntegers) {
  EXPECT_EQ(parse_integer("18446744073709551615").value, -1);
  EXPECT_EQ(parse_integer("10159970886766084423").value,
            static_cast<int64_t>(10'159'970'886'766'084'423U));
  EXPECT_EQ(parse_integer("-9223372036854775808").value, INT64_MIN);
  EXPECT_EQ(parse_integer("\"0x1f\"").value, 31);
  EXPECT_EQ(parse_integer("3.0").value, 3);
  EXPECT_EQ(parse_integer("18446744073709551616").fault, NumberFault::out_of_range);
  EXPECT_EQ(parse_integer("0x").fault, NumberFault::not_a_number);
}

TEST(NumberText, RealsAreFinite) {
  EXPECT_EQ(parse_real("0.5"), 0.5);
  EXPECT_EQ(parse_real("\"2.25\""), 2.25);
  for (const char* text : {"inf", "-nan", "\"inf\"", "1e999", "", "null"})
    EXPECT_FALSE(parse_real(text).has_value()) << text;
}

}  // namespace epilogue::trace::number_text_test
