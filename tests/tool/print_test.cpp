// SPDX-License-Identifier: Apache-2.0
#include "explain/render/document.h"
#include "support/test.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool::print_test {

std::string printed(const trace::Document& document, Format format) {
  testing::internal::CaptureStdout();
  print(document, format);
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(Print, RendersTheFormThatWasAskedFor) {
  trace::Document document = {trace::Heading{"Title"}};
  document.facts = {{"n", int64_t{1}}};
  EXPECT_EQ(printed(document, Format::text), "Title\n");  // stdout is no terminal here
  EXPECT_EQ(printed(document, Format::markdown), "## Title\n\n");
  EXPECT_EQ(printed(document, Format::json), "{\n  \"schema_version\": 1,\n  \"n\": 1\n}\n");
}

TEST(Print, WhatIsToldOnTheWayIsNotPrintedAsJson) {
  const trace::Document note = {trace::preformatted("on the way\n")};
  EXPECT_EQ(printed(note, Format::json), "");
  EXPECT_EQ(printed(note, Format::text), "on the way\n");
}

}  // namespace epilogue::tool::print_test
