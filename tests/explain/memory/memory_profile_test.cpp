// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/memory.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::memory_profile_test {

using testing::GpuTrace;

MemoryEvent& allocate(GpuTrace& b, int64_t ts_ns, uint64_t addr, int64_t bytes, int64_t total) {
  MemoryEvent& m = b.memory(ts_ns, bytes, DeviceType::cuda);
  m.device_id = 0;
  m.addr = addr;
  m.total_allocated = total;
  return m;
}

TEST(MemoryProfile, PeakAndWhoHoldsIt) {
  GpuTrace b;
  b.op("aten::linear", 0, 100);
  b.op("aten::addmm", 10, 50);
  b.op("aten::gelu", 200, 300);
  allocate(b, 20, 0x10, 100, 1100);   // addmm; 1000 were there before
  allocate(b, 210, 0x20, 200, 1300);  // gelu: the peak
  allocate(b, 250, 0x10, -100, 1200);
  allocate(b, 60, 0x30, 50, 1150);  // linear itself, freed before the peak
  allocate(b, 70, 0x30, -50, 1100);
  const std::vector<DeviceMemory> list = memory_profile(b.trace, link(b.trace));
  ASSERT_EQ(list.size(), 1u);
  const DeviceMemory& m = list[0];
  EXPECT_EQ(m.type, DeviceType::cuda);
  EXPECT_EQ(m.device, 0);
  EXPECT_EQ(m.allocations, 3);
  EXPECT_EQ(m.frees, 2);
  EXPECT_EQ(m.peak_bytes, 1300);
  EXPECT_EQ(m.peak_ns, 210);
  EXPECT_FALSE(m.is_relative);
  ASSERT_EQ(m.totals.size(), 5u);
  EXPECT_EQ(m.totals[1].ts_ns, 60);
  EXPECT_EQ(m.totals[1].allocated_bytes, 1150);
  ASSERT_EQ(m.at_peak.size(), 2u);
  EXPECT_EQ(m.at_peak[0].op, "aten::gelu");
  EXPECT_EQ(m.at_peak[0].bytes, 200);
  EXPECT_EQ(m.at_peak[1].op, "aten::addmm");
  EXPECT_EQ(m.at_peak[1].allocations, 1);
  EXPECT_EQ(m.before_window_bytes, 1000);
}

// A module's forward calls F.linear; a function of the user's own makes a mask; torch's own loader
// makes the rest.
TEST(MemoryProfile, SaysWhichModuleAndFunctionHoldThePeak) {
  GpuTrace b;
  const auto frame = [&](std::string_view name, int64_t start_ns, int64_t end_ns) {
    b.event(Category::python_function, name, start_ns, end_ns);
  };
  frame("train.py(10): step", 0, 100);
  frame("nn.Module: Linear_3", 5, 50);
  frame("torch/nn/modules/linear.py(110): forward", 10, 45);
  frame("<built-in function linear>", 15, 40);
  frame("model.py(7): make_mask", 60, 90);
  frame("torch/utils/data.py(3): fetch", 110, 130);
  allocate(b, 20, 0x10, 300, 300);
  allocate(b, 70, 0x20, 200, 500);
  allocate(b, 75, 0x30, 200, 700);
  allocate(b, 120, 0x40, 50, 750);
  const DeviceMemory m = memory_profile(b.trace, link(b.trace)).at(0);
  ASSERT_EQ(m.at_peak_by_python.size(), 3u);
  EXPECT_EQ(m.at_peak_by_python[0].function, "model.py(7): make_mask");
  EXPECT_EQ(m.at_peak_by_python[0].module, "");
  EXPECT_EQ(m.at_peak_by_python[0].bytes, 400);
  EXPECT_EQ(m.at_peak_by_python[0].allocations, 2);
  EXPECT_EQ(m.at_peak_by_python[1].module, "Linear_3");
  EXPECT_EQ(m.at_peak_by_python[1].function, "train.py(10): step");
  EXPECT_EQ(m.at_peak_by_python[2].function, "torch/utils/data.py(3): fetch");
}

TEST(MemoryProfile, WithoutTotalsItCountsFromTheStartOfTheWindow) {
  GpuTrace b;
  allocate(b, 10, 0x10, 100, 0);
  allocate(b, 20, 0x20, 50, 0);
  allocate(b, 30, 0x10, -100, 0);
  const DeviceMemory m = memory_profile(b.trace, link(b.trace)).at(0);
  EXPECT_TRUE(m.is_relative);
  EXPECT_EQ(m.peak_bytes, 150);
  EXPECT_EQ(m.peak_ns, 20);
  EXPECT_EQ(m.at_peak.at(0).op, "");
}

TEST(MemoryProfile, DevicesAreKeptApartAndFailuresCounted) {
  GpuTrace b;
  allocate(b, 10, 0x10, 100, 100);
  allocate(b, 20, 0x10, 1 << 30, 100).out_of_memory = true;
  b.memory(15, 500);
  const std::vector<DeviceMemory> list = memory_profile(b.trace, link(b.trace));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].type, DeviceType::cpu);
  EXPECT_EQ(list[1].out_of_memory, 1);
  EXPECT_EQ(list[1].allocations, 1);
  EXPECT_EQ(list[1].peak_bytes, 100);
  EXPECT_TRUE(memory_profile(Trace(), Links()).empty());
}

// 1000 bytes of parameters and 200 unknown ones were there before; a gradient and an activation
// come, then the activation and some of the parameters go.
TEST(MemoryProfile, CategoriesAddUpToTheTotalAtEveryPoint) {
  GpuTrace b;
  b.trace.metadata.emplace_back(kMemoryAtStartKey, R"({"PARAMETER": 1000})");
  const auto event = [&](int64_t ts_ns, uint64_t addr, int64_t bytes, int64_t total,
                         MemoryCategory category) {
    MemoryEvent& m = b.memory(ts_ns, bytes);
    m.addr = addr;
    m.total_allocated = total;
    m.category = category;
  };
  event(10, 0x10, 300, 1500, MemoryCategory::activation);
  event(20, 0x20, 50, 1550, MemoryCategory::gradient);
  event(30, 0x10, -300, 1250, MemoryCategory::activation);
  event(40, 0x30, -400, 850, MemoryCategory::parameter);
  const DeviceMemory m = memory_profile(b.trace, link(b.trace)).at(0);
  ASSERT_EQ(m.category_totals.size(), m.totals.size());
  for (size_t i = 0; i < m.totals.size(); ++i) {
    int64_t sum = 0;
    for (const int64_t bytes : m.category_totals[i]) sum += bytes;
    EXPECT_EQ(sum, m.totals[i].allocated_bytes);
  }
  EXPECT_EQ(m.category_at_peak, (CategoryBytes{1000, 0, 0, 0, 300, 50, 0, 200}));
  EXPECT_EQ(m.category_totals.back(), (CategoryBytes{600, 0, 0, 0, 0, 50, 0, 200}));
  EXPECT_EQ(m.category_peak, (CategoryBytes{1000, 0, 0, 0, 300, 50, 0, 200}));
}

TEST(MemoryProfile, TracesWithoutCategoriesHaveNone) {
  GpuTrace b;
  b.memory(10, 100);
  EXPECT_TRUE(memory_profile(b.trace, link(b.trace)).at(0).category_totals.empty());
}

TEST(MemoryProfile, AStepsPeakIsAboveItsStart) {
  GpuTrace b;
  allocate(b, 10, 0x10, 100, 1000);
  EXPECT_FALSE(step_peak_bytes(b.trace, link(b.trace))) << "no steps";
  b.annotation("ProfilerStep#1", 20, 40);
  allocate(b, 25, 0x20, 50, 1050);
  allocate(b, 30, 0x30, 30, 1080);
  allocate(b, 35, 0x20, -50, 1030);
  b.annotation("ProfilerStep#2", 50, 70);  // frees first what the one before left
  allocate(b, 55, 0x30, -30, 1000);
  allocate(b, 60, 0x40, 90, 1090);
  b.annotation("ProfilerStep#3", 80, 90);
  EXPECT_EQ(step_peak_bytes(b.trace, link(b.trace)), 80);
  allocate(b, 61, 0x50, 100, 1190);
  EXPECT_EQ(step_peak_bytes(b.trace, link(b.trace)), 160);
}

}  // namespace epilogue::trace::memory_profile_test
