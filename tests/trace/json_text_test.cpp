// SPDX-License-Identifier: Apache-2.0
#include "trace/json_text.h"
#include "support/test.h"

#include <nlohmann/json.hpp>

namespace epilogue::trace::json_text_test {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonString, EscapesWhatMustBe) {
  EXPECT_EQ(json_string("aten::mm"), "\"aten::mm\"");
  EXPECT_EQ(json_string(R"({"device": "cpu"}(12): run)"), R"("{\"device\": \"cpu\"}(12): run")");
  EXPECT_EQ(json_string("C:\\x\n\t\r"), R"("C:\\x\n\t\r")");
  EXPECT_EQ(json_string(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(json_string("größe 模型 🙂"), "\"größe 模型 🙂\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

TEST(JsonString, RepairsBadUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(json_string("a\xff"
                        "b"),
            "\"a" + bad + "b\"");
  EXPECT_EQ(json_string("\xC3"), "\"" + bad + "\"");                      // cut off
  EXPECT_EQ(json_string("\xC0\xAF"), "\"" + bad + bad + "\"");            // overlong
  EXPECT_EQ(json_string("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // surrogate
  EXPECT_EQ(json_string("\xF4\x90\x80\x80"),
            "\"" + bad + bad + bad + bad + "\"");  // above U+10FFFF
  EXPECT_EQ(json_string("\xE2\x82"), "\"" + bad + bad + "\"");
}

TEST(JsonString, EveryPairOfBytesParsesStrictly) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const auto parsed = nlohmann::json::parse(json_string(text), nullptr, false);
      ASSERT_TRUE(parsed.is_string()) << first << ' ' << second;
      if (first < 128 && second < 128) {
        ASSERT_EQ(parsed.get<std::string>(), text);
      }
    }
  }
}

TEST(Microseconds, HaveExactlyThreeDecimals) {
  const auto us = [](int64_t ns) {
    std::string out;
    append_us(out, ns);
    return out;
  };
  EXPECT_EQ(us(0), "0.000");
  EXPECT_EQ(us(7), "0.007");
  EXPECT_EQ(us(1234567), "1234.567");
  EXPECT_EQ(us(1000), "1.000");
  EXPECT_EQ(us(1419247333430849), "1419247333430.849");
  EXPECT_EQ(us(INT64_MAX), "9223372036854775.807");
  EXPECT_EQ(us(-1), "0.000");
  EXPECT_EQ(us(INT64_MIN), "0.000");
}

TEST(Numbers, AreValidJson) {
  const auto number = [](double value) {
    std::string out;
    append_double(out, value);
    return out;
  };
  EXPECT_EQ(number(0.007576), "0.007576");
  EXPECT_EQ(number(12), "12");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "0");
  EXPECT_EQ(number(std::nan("")), "0");
  EXPECT_EQ(nlohmann::json::parse(number(1e300)).get<double>(), 1e300);
  std::string out;
  append_int(out, INT64_MIN);
  EXPECT_EQ(out, "-9223372036854775808");
}

}  // namespace epilogue::trace::json_text_test
