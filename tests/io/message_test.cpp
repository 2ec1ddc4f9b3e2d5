// SPDX-License-Identifier: Apache-2.0
#include "io/message.h"

#include <gtest/gtest.h>

#include <string>

namespace epilogue::io::message_test {
namespace {

TEST(IoFailure, IsOneLineWithTheCode) {
  const Failure failure =
      io_failure("dir/a\nb", FailureCode::header_too_small, "expected 8, got 3");
  EXPECT_EQ(failure.code, FailureCode::header_too_small);
  EXPECT_EQ(failure.message, "dir/a\\x0ab: HeaderTooSmall: expected 8, got 3");
}

}  // namespace
}  // namespace epilogue::io::message_test
