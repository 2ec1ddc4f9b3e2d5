// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the safetensors header: a file in memory, and the failure it must give.
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

inline void expect_failure(std::string_view file, FailureCode code, std::string_view detail) {
  const auto header = parse(file);
  ASSERT_FALSE(header.ok()) << "expected " << failure_code_name(code);
  EXPECT_EQ(header.failure().code, code);
  EXPECT_EQ(header.failure().message,
            "a.safetensors: " + std::string(failure_code_name(code)) + ": " + std::string(detail));
}

inline void expect_json_failure(std::string_view json, FailureCode code, std::string_view detail) {
  expect_failure(safetensors_bytes(json), code, detail);
}

inline constexpr FailureCode kJson = FailureCode::invalid_header_deserialization;

}  // namespace epilogue::io_test
