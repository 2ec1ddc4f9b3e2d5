// SPDX-License-Identifier: Apache-2.0
#include "io/message.h"
#include "support/test.h"

namespace epilogue::io::message_test {

TEST(IoFailure, IsOneLineWithTheCode) {
  const Failure failure =
      io_failure("dir/a\nb", FailureCode::header_too_small, "expected 8, got 3");
  EXPECT_EQ(failure.code, FailureCode::header_too_small);
  EXPECT_EQ(failure.message, "dir/a\\x0ab: HeaderTooSmall: expected 8, got 3");
}

}  // namespace epilogue::io::message_test
