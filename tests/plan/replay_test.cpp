// SPDX-License-Identifier: Apache-2.0
// When a plan's launches are run, recorded and repeated: over a backend that only counts.
#include "plan/replay.h"
#include "support/test.h"

namespace epilogue::plan::replay_test {

class CountingGraph final : public LaunchGraph {
 public:
  explicit CountingGraph(int& launches) : launches_(launches) {}
  void launch() override { ++launches_; }

 private:
  int& launches_;
};

class CountingBackend final : public Backend {
 public:
  std::string_view name() const override { return "counting"; }
  Capabilities capabilities() const override { return {.most_recorded_rows = 128}; }
  const std::span<const Kernel>& kernels(const OpDef&) const override {
    static constexpr std::span<const Kernel> kNone;
    return kNone;
  }
  std::unique_ptr<RowChain> make_row_chain(const RowChainSpec&) const override { return nullptr; }
  std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram&) const override {
    return nullptr;
  }
  std::unique_ptr<LaunchGraph> record(FunctionRef<void()>) const override {
    ++records;
    return refuses ? nullptr : std::make_unique<CountingGraph>(launches);
  }
  bool refuses = false;
  mutable int records = 0;
  mutable int launches = 0;
};

struct Fixture {
  CountingBackend backend;
  Replays replays;
  int runs = 0;
  void run(uintptr_t in, uintptr_t out) {
    replays.run(backend, {reinterpret_cast<void*>(in), reinterpret_cast<void*>(out)},
                [&] { ++runs; });
  }
};

TEST(Replays, TheSecondCallRecordsAndTheFollowingRepeat) {
  Fixture f;
  f.run(1, 2);
  EXPECT_EQ(f.runs, 1);
  EXPECT_EQ(f.backend.records, 0);
  for (int i = 0; i < 3; ++i) f.run(1, 2);
  EXPECT_EQ(f.runs, 1);
  EXPECT_EQ(f.backend.records, 1);
  EXPECT_EQ(f.backend.launches, 3);
}

TEST(Replays, OtherAddressesAreAnotherRecording) {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    f.run(1, 2);
    f.run(1, 3);
  }
  EXPECT_EQ(f.runs, 2);
  EXPECT_EQ(f.backend.records, 2);
  EXPECT_EQ(f.backend.launches, 4);
}

TEST(Replays, WhatCannotBeRecordedRunsEveryTime) {
  Fixture f;
  f.backend.refuses = true;
  for (int i = 0; i < 4; ++i) f.run(1, 2);
  EXPECT_EQ(f.runs, 4);
  EXPECT_EQ(f.backend.records, 1);
}

TEST(Replays, ClearForgetsAll) {
  Fixture f;
  f.run(1, 2);
  f.run(1, 2);
  f.replays.clear();
  f.run(1, 2);
  EXPECT_EQ(f.runs, 2);
}

TEST(Replays, TheLeastUsedRecordingIsDropped) {
  Fixture f;
  for (uintptr_t out = 1; out <= 16; ++out) f.run(100, out);
  f.run(100, 1);   // recorded; now the last used
  f.run(100, 17);  // 2 is dropped
  const int before = f.runs;
  f.run(100, 1);
  EXPECT_EQ(f.runs, before);
  f.run(100, 2);
  EXPECT_EQ(f.runs, before + 1);
}

}  // namespace epilogue::plan::replay_test
