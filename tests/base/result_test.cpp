// SPDX-License-Identifier: Apache-2.0
// Result: both styles of use.
#include "epilogue/base/result.h"
#include "support/test.h"

namespace epilogue::result_test {

Result<int> half(int n) {
  if (n % 2 != 0) return Failure{FailureCode::invalid_offset, std::to_string(n) + " is odd"};
  return n / 2;
}

Result<std::string> quarter(int n) {
  auto once = half(n);
  if (!once) return once.failure();
  auto twice = half(once.value());
  if (!twice) return twice.failure();
  return std::to_string(twice.value());
}

TEST(Result, CheckedUse) {
  EXPECT_EQ(quarter(12).value(), "3");
  EXPECT_EQ(quarter(6).failure().code, FailureCode::invalid_offset);
  EXPECT_EQ(quarter(6).failure().message, "3 is odd");
}

TEST(Result, ThrowingUse) {
  EXPECT_EQ(half(4).value(), 2);
  try {
    (void)half(5).value();
    FAIL() << "no exception";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "5 is odd");
  }
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  *result.value() = 8;
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 8);
}

TEST(Result, StatusHasNoValue) {
  EXPECT_TRUE(ok_status());
  const Status bad = Failure{FailureCode::not_json, "reason"};
  EXPECT_FALSE(bad);
  EXPECT_FALSE(bad.ok());
  EXPECT_THROW((void)bad.value(), Error);
}

}  // namespace epilogue::result_test
