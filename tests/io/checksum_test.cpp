// SPDX-License-Identifier: Apache-2.0
#include "io/checksum.h"
#include "support/test.h"

namespace epilogue::io::checksum_test {

TEST(Checksum, IsCrc32AsOfGzip) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);  // the check value of CRC-32/ISO-HDLC
  EXPECT_EQ(crc32(""), 0U);
}

TEST(Checksum, GoesOnWhereItWasLeft) {
  EXPECT_EQ(crc32("56789", crc32("", crc32("1234"))), crc32("123456789"));
}

}  // namespace epilogue::io::checksum_test
