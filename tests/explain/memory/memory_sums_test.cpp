// SPDX-License-Identifier: Apache-2.0
#include "explain/memory/memory_sums.h"
#include "support/test.h"

namespace epilogue::trace::memory_sums_test {

MemoryEvent record(int64_t ts_ns, int64_t bytes, DeviceType type = DeviceType::cpu) {
  return MemoryEvent{.ts_ns = ts_ns, .device_type = type, .bytes = bytes};
}

TEST(MemorySums, BothEndsBelongToTheInterval) {
  MemorySums sums({record(10, 1), record(20, 2), record(30, 4)});
  EXPECT_EQ(sums.take(10, 20).cpu_bytes, 3);
  EXPECT_EQ(sums.take(10, 10).cpu_bytes, 1);
  EXPECT_EQ(sums.take(11, 19).cpu_bytes, 0);
  EXPECT_EQ(sums.take(0, 100).cpu_bytes, 7);
}

TEST(MemorySums, SortsRecordsAndTellsKindsApart) {
  MemorySums sums({record(30, -4), record(10, 1, DeviceType::cuda),
                   record(20, 2, DeviceType::mkldnn), record(15, 8, DeviceType::hip),
                   record(15, 16, DeviceType::ideep), record(15, 32, DeviceType::private_use1),
                   record(15, 64, DeviceType::xpu)});
  const MemoryUsage all = sums.take(0, 100);
  EXPECT_EQ(all.cpu_bytes, 2 + 16 - 4);
  EXPECT_EQ(all.device_bytes, 1 + 8 + 32);
}

TEST(MemorySums, KnowsWhatNothingCovered) {
  MemoryEvent failed = record(25, 100);
  failed.out_of_memory = true;
  MemorySums sums({record(40, 1), record(20, 2), failed, record(10, 4)});
  EXPECT_EQ(sums.uncovered(), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(sums.take(20, 30).cpu_bytes, 2);  // the failed one is not summed
  EXPECT_EQ(sums.uncovered(), (std::vector<uint32_t>{0, 3}));
  (void)sums.take(50, 60);
  (void)sums.take(0, 100);
  EXPECT_TRUE(sums.uncovered().empty());
}

TEST(MemorySums, NoRecords) {
  MemorySums sums({});
  EXPECT_EQ(sums.take(0, 10).cpu_bytes, 0);
  EXPECT_TRUE(sums.uncovered().empty());
}

TEST(MemorySums, EqualsTheSumOverAllRecords) {
  std::mt19937 random(1);
  const auto number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<MemoryEvent> records;
  for (int i = 0; i < 200; ++i) records.push_back(record(number(0, 50), number(-9, 9)));
  MemorySums sums(records);
  for (int i = 0; i < 500; ++i) {
    const int64_t start = number(-5, 55);
    const int64_t end = start + number(0, 20);
    int64_t expected = 0;
    for (const MemoryEvent& m : records)
      if (m.ts_ns >= start && m.ts_ns <= end) expected += m.bytes;
    ASSERT_EQ(sums.take(start, end).cpu_bytes, expected) << start << ' ' << end;
  }
}

}  // namespace epilogue::trace::memory_sums_test
