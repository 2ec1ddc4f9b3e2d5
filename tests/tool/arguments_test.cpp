// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/arguments.h"

#include "support/test.h"
#include "tool/parse.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool::arguments_test {

// The check's message for a value; "" where it takes it. The value may change.
std::string said(const CLI::Validator& check, std::string& value) { return check(value); }
std::string said(const CLI::Validator& check, const char* value) {
  std::string text = value;
  return check(text);
}

TEST(WholeNumber, TakesDecimalsInItsRange) {
  for (const char* good : {"1", "42", "4096"}) EXPECT_EQ(said(whole_number(1, 4096), good), "");
  for (const char* bad : {"0", "4097", "-1", "", " 1", "1 ", "+1", "1.0", "0x10", "1e3", "many",
                          "99999999999999999999"})
    EXPECT_EQ(said(whole_number(1, 4096), bad),
              std::string("expected a whole number from 1 to 4096, got '") + bad + "'");
  EXPECT_EQ(said(whole_number(-1), "-1"), "");
  EXPECT_EQ(said(whole_number(-1), "-2"), "expected a whole number of -1 or more, got '-2'");
  EXPECT_EQ(said(whole_number(0), "9223372036854775807"), "");
}

TEST(Numbers, AreFiniteAndInTheirRange) {
  for (const char* good : {"1e-300", "0.5", "3"}) EXPECT_EQ(said(number_above(0), good), "");
  for (const char* bad : {"0", "-1", "nan", "inf", "1e999", "", "1x"})
    EXPECT_EQ(said(number_above(0), bad),
              std::string("expected a number above 0, got '") + bad + "'");
  EXPECT_EQ(said(number_from(0), "0"), "");
  EXPECT_EQ(said(number_from(0), "-0.1"), "expected a number of 0 or more, got '-0.1'");
  EXPECT_EQ(said(number_from(0), "nan"), "expected a number of 0 or more, got 'nan'");
}

TEST(DTypes, HaveTheirUsualNames) {
  for (const auto& [text, dtype] :
       {std::pair("f32", "f32"), std::pair("float32", "f32"), std::pair("fp32", "f32"),
        std::pair("float", "f32"), std::pair("bfloat16", "bf16"), std::pair("half", "f16"),
        std::pair("float16", "f16"), std::pair("fp16", "f16")}) {
    std::string value = text;
    EXPECT_EQ(said(dtype_value(), value), "");
    EXPECT_EQ(value, dtype);
  }
  EXPECT_EQ(said(dtype_value(), "int8"),
            "expected f32 (float32, fp32), bf16 (bfloat16) or f16 (float16, fp16, half), got "
            "'int8'");
  EXPECT_EQ(said(amp_value(), "none"), "");
  EXPECT_EQ(said(amp_value(), "f32"),
            "expected none, bf16 (bfloat16) or f16 (float16, fp16, half), got 'f32'");
}

TEST(Names, ArePathsOrFileNames) {
  EXPECT_EQ(said(path_name(), "a/b"), "");
  EXPECT_EQ(said(path_name(), ""), "expected a path, got ''");
  EXPECT_EQ(said(file_name(), "a.json"), "");
  for (const char* bad : {"", "a/b", "/", "../x"})
    EXPECT_EQ(said(file_name(), bad),
              std::string("expected a file name without '/', got '") + bad + "'");
}

TEST(Values, ControlCharactersDoNotReachATerminal) {
  const std::string text = said(whole_number(0), "\x1b[31m1\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_HAS(text, "[31m1");
}

TEST(AddFormat, TakesThreeNames) {
  for (const auto& [text, format] :
       {std::pair("text", Format::text), std::pair("json", Format::json),
        std::pair("markdown", Format::markdown)}) {
    CLI::App app;
    Format value = Format::text;
    add_format(app, value);
    EXPECT_EQ(parse(app, {"--format", text}), "");
    EXPECT_EQ(value, format) << text;
  }
  for (const char* bad : {"xml", "0", "JSON", ""}) {
    CLI::App app;
    Format value = Format::text;
    add_format(app, value);
    EXPECT_EQ(parse(app, {"--format", bad}),
              std::string("--format: expected text, json or markdown, got '") + bad + "'");
  }
}

TEST(AddThreads, TakesWhatTheLibraryTakes) {
  const auto parsed = [](const char* text, int& threads) {
    CLI::App app;
    add_threads(app, threads);
    return parse(app, {"--threads", text});
  };
  int threads = 0;
  EXPECT_EQ(parsed("4096", threads), "");
  EXPECT_EQ(threads, 4096);
  EXPECT_EQ(parsed("4097", threads),
            "--threads: expected a whole number from 0 to 4096, got '4097'");
}

}  // namespace epilogue::tool::arguments_test
