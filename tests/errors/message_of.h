// SPDX-License-Identifier: Apache-2.0
// The text of the Error that a call throws.
#pragma once

#include <string>
#include <utility>

#include "epilogue/base/error.h"

namespace epilogue::test {

// "" when nothing is thrown; other exceptions pass through and fail the test.
template <class Call>
std::string error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The same, "(no error)" when nothing is thrown.
template <class Call>
std::string message_of(Call&& call) {
  const std::string text = error_of(std::forward<Call>(call));
  return text.empty() ? "(no error)" : text;
}

}  // namespace epilogue::test

// The Error that `call` throws says `message`.
#define EXPECT_ERROR(call, message) EXPECT_EQ(::epilogue::test::message_of([&] { call; }), message)
