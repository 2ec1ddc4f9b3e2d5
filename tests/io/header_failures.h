// SPDX-License-Identifier: Apache-2.0
// What the tests of the safetensors header share: a file in memory, and the failure it must give.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "epilogue/io.h"
#include "files.h"

namespace epilogue::io_test {

inline Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "a.safetensors");
}

inline void expect_failure(std::string_view file, std::string_view code, std::string_view detail) {
  const auto header = parse(file);
  ASSERT_FALSE(header.ok()) << "expected " << code;
  EXPECT_EQ(header.failure().code, code);
  EXPECT_EQ(header.failure().message,
            "a.safetensors: " + std::string(code) + ": " + std::string(detail));
}

inline void expect_json_failure(std::string_view json, std::string_view code,
                                std::string_view detail) {
  expect_failure(safetensors_bytes(json), code, detail);
}

inline constexpr std::string_view kJson = "InvalidHeaderDeserialization";

}  // namespace epilogue::io_test
