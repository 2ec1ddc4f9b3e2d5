// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/memory_limit.h"

#include <unistd.h>

#include "base/units.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::tool::memory_limit_test {

TEST(MemoryLimit, IsWhatThisProcessMayUse) {
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  EXPECT_GT(memory_limit_bytes(), 0);
  EXPECT_LE(memory_limit_bytes(), machine);
}

TEST(RequireMemory, CountsBytesOfTheDType) {
  const double limit = memory_limit_bytes();
  require_memory("--size", limit / 4, DType::f32);
  require_memory("--size", limit / 2, DType::bf16);
  EXPECT_THROW(require_memory("--size", limit / 2, DType::f32), Error);
  EXPECT_THROW(require_memory("--size", limit, DType::bf16), Error);
}

TEST(RequireMemory, NamesFlagsAndSizesHoweverLarge) {
  const std::string limit = format_bytes(memory_limit_bytes());
  const std::string message =
      test::message_of([] { require_memory("--batch, --dim", 1e30, DType::f32); });
  EXPECT_EQ(message.find("[--batch, --dim] expected sizes that fit in " + limit + " of memory"), 0U)
      << message;
  EXPECT_THROW(require_memory("--size", std::numeric_limits<double>::infinity(), DType::f32),
               Error);
}

}  // namespace epilogue::tool::memory_limit_test
