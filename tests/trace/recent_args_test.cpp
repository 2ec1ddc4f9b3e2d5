// SPDX-License-Identifier: Apache-2.0
#include "trace/read/recent_args.h"

#include "epilogue/trace/file.h"
#include "support/test.h"

namespace epilogue::trace::recent_args_test {

KernelArgs on_stream(int64_t stream) {
  KernelArgs args;
  args.stream = stream;
  return args;
}

TEST(RecentArgs, StoreEqualArgsOnce) {
  RecentArgs<KernelArgs> recent;
  std::vector<KernelArgs> table;
  EXPECT_EQ(recent.append_once(table, on_stream(7), 1), 0U);
  EXPECT_EQ(recent.append_once(table, on_stream(8), 2), 1U);
  EXPECT_EQ(recent.append_once(table, on_stream(7), 1), 0U);
  EXPECT_EQ(table.size(), 2U);
}

TEST(RecentArgs, KeepDifferentArgsOfOneHashApart) {
  RecentArgs<KernelArgs> recent;
  std::vector<KernelArgs> table;
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(table[recent.append_once(table, on_stream(i % 3), 5)].stream, i % 3);
}

TEST(RecentArgs, HoldWhenTheTableWasCleared) {
  RecentArgs<KernelArgs> recent;
  std::vector<KernelArgs> table;
  recent.append_once(table, on_stream(1), 1);
  recent.append_once(table, on_stream(2), 2);
  table.clear();
  EXPECT_EQ(recent.append_once(table, on_stream(2), 2), 0U);
  EXPECT_EQ(recent.append_once(table, on_stream(1), 1), 1U);
  EXPECT_EQ(table[1].stream, 1);
}

TEST(RecentArgs, HashesFollowWhatTellsKernelsApart) {
  KernelArgs wide;
  wide.grid = {2, 1, 1};
  KernelArgs tall;
  tall.grid = {1, 2, 1};
  EXPECT_NE(hash_args(wide), hash_args(tall));
  EXPECT_EQ(hash_args(wide), hash_args(KernelArgs(wide)));
  EXPECT_NE(hash_args(RuntimeArgs{.cbid = 1}), hash_args(RuntimeArgs{.cbid = 2}));
}

// 5,000 kernels of ten kinds: each keeps its args, whichever window of the text it came from.
TEST(RecentArgs, EventsOfATraceKeepTheirArgs) {
  constexpr int kKernels = 5'000;
  constexpr int kKinds = 10;
  std::string text = "[";
  for (int i = 0; i < kKernels; ++i) {
    const std::string kind = std::to_string(i % kKinds);
    text +=
        (i == 0 ? "" : ",\n") +
        std::string(R"({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1)") +
        ", \"ts\": " + std::to_string(2 * i) + ", \"args\": {\"stream\": " + kind +
        ", \"grid\": [" + kind +
        ", 1, 1], \"block\": [32, 1, 1], \"correlation\": " + std::to_string(i + 1) + "}}";
  }
  const Trace t = read_trace_text(text + "]", "t.json", {}).value();
  ASSERT_EQ(t.events.size(), size_t{kKernels});
  EXPECT_LT(t.kernels.size(), size_t{kKernels / 10});
  for (const Event& e : t.events) {
    const int64_t kind = (e.correlation - 1) % kKinds;
    ASSERT_EQ(t.kernel_args(e)->stream, kind);
    ASSERT_EQ(t.kernel_args(e)->grid[0], kind);
  }
}

}  // namespace epilogue::trace::recent_args_test
