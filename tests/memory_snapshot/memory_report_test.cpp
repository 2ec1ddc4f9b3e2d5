// SPDX-License-Identifier: Apache-2.0
// Histories small enough to add up by hand, and what is said of them.
#include "memory_snapshot/memory_report.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "epilogue/base/error.h"
#include "epilogue/trace/tables.h"

namespace epilogue::trace {
namespace memory_report_test {
namespace {

using namespace std::string_literals;

// Writes pickles of protocol 4, as much as these tests need.
std::string text(std::string_view s) {
  return "\x8c"s + static_cast<char>(s.size()) + std::string(s);
}
std::string number(int64_t n) {
  std::string out = "\x8a\x08"s;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<uint64_t>(n) >> (8 * i));
  return out;
}
std::string list(const std::string& elements) {
  return elements.empty() ? "]" : "](" + elements + "e";
}
std::string dict(const std::string& items) { return "}(" + items + "u"; }
std::string frames(std::initializer_list<std::array<std::string, 2>> all) {
  std::string out;
  for (const auto& [file, name] : all)
    out +=
        dict(text("filename") + text(file) + text("line") + number(7) + text("name") + text(name));
  return list(out);
}
std::string event(const char* action, int64_t address, int64_t bytes,
                  const std::string& stack = "]", int64_t time_us = 0) {
  return dict(text("action") + text(action) + text(action == "oom"s ? "device_free" : "addr") +
              number(address) + text("size") + number(bytes) + text("stream") + number(0) +
              text("time_us") + number(time_us) + text("frames") + stack);
}
std::string freed(int64_t address, int64_t bytes, const std::string& stack = "]") {
  return event("free_requested", address, bytes, stack) + event("free_completed", address, bytes);
}
std::string block(int64_t bytes, int64_t requested, const char* state,
                  const std::string& stack = "]") {
  return dict(text("size") + number(bytes) + text("requested_size") + number(requested) +
              text("state") + text(state) + text("frames") + stack);
}
std::string segment(int64_t address, int64_t bytes, const std::string& blocks, int pool = 0) {
  return dict(text("address") + number(address) + text("total_size") + number(bytes) +
              text("device") + number(0) + text("segment_pool_id") + "K" + static_cast<char>(pool) +
              "K\x00\x86"s + text("blocks") + list(blocks));
}
MemorySnapshot snapshot(const std::string& events, const std::string& segments = "") {
  const std::string bytes =
      "\x80\x04" +
      dict(text("segments") + list(segments) + text("device_traces") + list(list(events))) + ".";
  return read_memory_snapshot_bytes(bytes, "made").value();
}
DeviceMemoryReport report_of(const MemorySnapshot& s) {
  const MemoryReport report = memory_report(s);
  EXPECT_EQ(report.devices.size(), 1u);
  return report.devices.at(0);
}
int64_t bytes_of(const std::vector<SnapshotHolder>& holders, const std::string& label) {
  for (const SnapshotHolder& h : holders)
    if (h.label == label) return h.bytes;
  return 0;
}
bool has_finding(const DeviceMemoryReport& d, const std::string& id) {
  for (const MemoryFinding& f : d.findings)
    if (f.id == id) return true;
  return false;
}

const std::string kForward =
    frames({{"/site-packages/torch/nn/modules/linear.py", "Linear.forward"},
            {"/home/u/net.py", "Net.forward"}});
const std::string kBackward = frames(
    {{"??", "torch::autograd::generated::MmBackward0::apply"}, {"/home/u/train.py", "step"}});
const std::string kGradient = frames({{"??", "torch::autograd::AccumulateGrad::apply"}});
const std::string kState =
    frames({{"/x/torch/optim/adam.py", "_init_group"}, {"/home/u/train.py", "step"}});
const std::string kOptimizer =
    frames({{"/x/torch/optim/adam.py", "adam"}, {"/home/u/train.py", "step"}});
const std::string kParameters =
    frames({{"/x/torch/nn/modules/module.py", "_apply"}, {"/home/u/train.py", "build"}});
const std::string kCache = frames({{"/home/u/cache.py", "keep"}});
constexpr int64_t kMiB = 1 << 20;

TEST(MemoryReport, PeakIsTheLargestSumOfWhatIsAlive) {
  // 100, 150, 50 (of 100 freed), 90: the peak is at the second event.
  const DeviceMemoryReport d =
      report_of(snapshot(event("alloc", 1000, 100, kCache) + event("alloc", 2000, 50, kForward) +
                         freed(1000, 100) + event("alloc", 3000, 40, kCache)));
  EXPECT_EQ(d.peak_bytes, 150);
  EXPECT_EQ(d.peak_at, 2u);
  EXPECT_EQ(d.alive_at_peak, 2);
  EXPECT_EQ(bytes_of(d.by_frame, "cache.py:7:keep"), 100);
  EXPECT_EQ(bytes_of(d.by_frame, "net.py:7:Net.forward"), 50);
  EXPECT_EQ(bytes_of(d.by_module, "Net > Linear"), 50);
  EXPECT_EQ(d.no_module_bytes, 100);
}

TEST(MemoryReport, BlocksAndFreesOfBeforeTheHistoryCount) {
  // 64 at 9000 live all along, 30 at 8000 are freed without an alloc.
  const DeviceMemoryReport d =
      report_of(snapshot(event("alloc", 1000, 10, kCache) + freed(8000, 30),
                         segment(9000, 512, block(512, 64, "active_allocated", kParameters))));
  EXPECT_EQ(d.before_bytes, 94);
  EXPECT_EQ(d.peak_bytes, 104);
  EXPECT_EQ(d.unmatched_frees, 1);
  EXPECT_EQ(bytes_of(d.by_frame, "train.py:7:build"), 64);
  EXPECT_EQ(bytes_of(d.by_frame, "(no frames)"), 30);
}

TEST(MemoryReport, AnAddressThatIsTakenAgainIsAnotherAllocation) {
  const DeviceMemoryReport d = report_of(snapshot(
      event("alloc", 1000, 100, kCache) + freed(1000, 100) + event("alloc", 1000, 70, kForward)));
  EXPECT_EQ(d.peak_bytes, 100);
  EXPECT_EQ(d.allocations.size(), 2u);
}

TEST(MemoryReport, MemoryLivesUntilItsFreeIsCompleted) {
  const DeviceMemoryReport d =
      report_of(snapshot(event("alloc", 1000, 100) + event("free_requested", 1000, 100) +
                         event("alloc", 2000, 20) + event("free_completed", 1000, 100)));
  EXPECT_EQ(d.peak_bytes, 120);
}

TEST(MemoryReport, CategoriesComeFromFramesAndLifetimes) {
  const DeviceMemoryReport d = report_of(
      snapshot(event("alloc", 1, 1000, kParameters) + event("alloc", 2, 200, kForward) +
               event("alloc", 3, 30, kForward) + freed(3, 30) + event("alloc", 4, 4, kBackward) +
               event("alloc", 5, 500, kGradient) + freed(4, 4) + event("alloc", 6, 6000, kState) +
               event("alloc", 7, 70000, kOptimizer) + freed(7, 70000) + freed(2, 200)));
  EXPECT_EQ(d.peak_bytes, 77700);
  EXPECT_EQ(bytes_of(d.by_category, "parameters"), 1000);
  EXPECT_EQ(bytes_of(d.by_category, "activations"), 200);
  EXPECT_EQ(bytes_of(d.by_category, "gradients"), 500);
  EXPECT_EQ(bytes_of(d.by_category, "optimizer state"), 6000);
  EXPECT_EQ(bytes_of(d.by_category, "temporary"), 70000);
  EXPECT_EQ(bytes_of(d.by_category, "unknown"), 0);
}

// Backward's first product makes the workspace of its thread, which lives on: it is no gradient.
TEST(MemoryReport, AWorkspaceOfCublasIsNoGradient) {
  const std::string workspace = frames(
      {{"CUDACachingAllocator.cpp",
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)"},
       {"??", "at::cuda::setWorkspaceForHandle(cublasContext*, c10::cuda::CUDAStream)"},
       {"??", "torch::autograd::Engine::evaluate_function"}});
  const DeviceMemoryReport d = report_of(snapshot(event("alloc", 1, 32 << 20, workspace)));
  EXPECT_EQ(bytes_of(d.by_category, "workspaces"), 32 << 20);
  EXPECT_EQ(bytes_of(d.by_category, "gradients"), 0);
  ASSERT_EQ(d.by_frame.size(), 1U);
  EXPECT_NE(d.by_frame[0].label.find("setWorkspaceForHandle"), std::string::npos)
      << d.by_frame[0].label;
}

// The dispatcher's frames of autograd are around forward's allocations too.
TEST(MemoryReport, ForwardWithFramesOfCppIsForward) {
  const std::string both =
      frames({{"??", "torch::autograd::VariableType::(anonymous namespace)::addmm"},
              {"/site-packages/torch/nn/modules/linear.py", "Linear.forward"}});
  EXPECT_EQ(bytes_of(report_of(snapshot(event("alloc", 1, 200, both))).by_category, "activations"),
            200);
}

TEST(MemoryReport, RecordedCategoriesOfAProfileCount) {
  const std::string e =
      dict(text("action") + text("alloc") + text("addr") + number(5) + text("size") + number(100) +
           text("category") + text("optimizer_state") + text("frames") + "]");
  EXPECT_EQ(bytes_of(report_of(snapshot(e)).by_category, "optimizer state"), 100);
}

std::string steps(int count, bool leaks, bool frees_last) {
  std::string events;
  for (int i = 0; i < count; ++i) {
    const int64_t at = 100'000 * (i + 1);
    if (leaks) events += event("alloc", at, kMiB, kCache);
    events += event("alloc", at + 1, 500, kForward) + event("alloc", at + 2, 500, kOptimizer) +
              freed(at + 2, 500) + freed(at + 1, 500);
    if (frees_last && i == count - 2) events += freed(100'000, kMiB);
  }
  return events + event("alloc", 77, 1, kForward);
}

TEST(MemoryReport, GrowthOverStepsIsFound) {
  const DeviceMemoryReport d = report_of(snapshot(steps(6, true, false)));
  EXPECT_EQ(d.steps_by, "optimizer steps");
  ASSERT_EQ(d.leaks.size(), 1u);
  EXPECT_EQ(d.leaks[0].label, "cache.py:7:keep");
  EXPECT_EQ(d.leaks[0].bytes, 5 * kMiB);
  EXPECT_TRUE(has_finding(d, "growth"));
}

TEST(MemoryReport, NoGrowthWhereItFallsOrIsNotThere) {
  EXPECT_TRUE(report_of(snapshot(steps(6, false, false))).leaks.empty());
  EXPECT_TRUE(report_of(snapshot(steps(3, true, false))).leaks.empty());
  EXPECT_TRUE(report_of(snapshot(steps(6, true, true))).leaks.empty());
}

TEST(MemoryReport, FragmentationIsWhatIsFreeInSegmentsInUse) {
  const DeviceMemoryReport d = report_of(snapshot(
      "",
      segment(0, 300 * kMiB,
              block(100 * kMiB, 90 * kMiB, "active_allocated") + block(150 * kMiB, 0, "inactive") +
                  block(50 * kMiB, 50 * kMiB, "active_awaiting_free")) +
          segment(1000 * kMiB, 40 * kMiB, block(40 * kMiB, 0, "inactive")) +
          segment(2000 * kMiB, 20 * kMiB, block(20 * kMiB, 0, "inactive"), 1)));
  EXPECT_EQ(d.reserved_bytes, 360 * kMiB);
  EXPECT_EQ(d.allocated_bytes, 100 * kMiB);
  EXPECT_EQ(d.requested_bytes, 90 * kMiB);
  EXPECT_EQ(d.active_bytes, 150 * kMiB);
  EXPECT_EQ(d.pending_bytes, 50 * kMiB);
  EXPECT_EQ(d.inactive_split_bytes, 150 * kMiB);
  EXPECT_EQ(d.releasable_bytes, 40 * kMiB);  // a private pool keeps its own
  EXPECT_EQ(d.largest_free_bytes, 150 * kMiB);
  EXPECT_EQ(d.pools.size(), 2u);
  EXPECT_TRUE(has_finding(d, "fragmentation"));
  EXPECT_TRUE(has_finding(d, "pending-free"));
}

TEST(MemoryReport, JustBelowAThresholdIsNoFinding) {
  const auto split = [](int64_t mib) {
    return report_of(
        snapshot("", segment(0, 1000 * kMiB,
                             block((1000 - mib) * kMiB, (1000 - mib) * kMiB, "active_allocated") +
                                 block(mib * kMiB, 0, "inactive"))));
  };
  EXPECT_TRUE(has_finding(split(101), "fragmentation"));
  EXPECT_FALSE(has_finding(split(99), "fragmentation"));
}

TEST(MemoryReport, AFailedAllocationSaysWhatWasThere) {
  const std::string bytes = event("segment_alloc", 0, 100 * kMiB) +
                            event("alloc", 0, 30 * kMiB, kParameters) +
                            event("oom", 20 * kMiB, 80 * kMiB, kForward);
  const DeviceMemoryReport d =
      report_of(snapshot(bytes, segment(0, 100 * kMiB,
                                        block(30 * kMiB, 30 * kMiB, "active_allocated") +
                                            block(70 * kMiB, 0, "inactive"))));
  ASSERT_EQ(d.ooms.size(), 1u);
  EXPECT_EQ(d.ooms[0].asked_bytes, 80 * kMiB);
  EXPECT_EQ(d.ooms[0].device_free_bytes, 20 * kMiB);
  EXPECT_EQ(d.ooms[0].allocated_bytes, 30 * kMiB);
  EXPECT_EQ(d.ooms[0].reserved_bytes, 100 * kMiB);
  EXPECT_EQ(d.ooms[0].label, "net.py:7:Net.forward");
  ASSERT_TRUE(has_finding(d, "out-of-memory"));
  EXPECT_NE(d.findings[0].remedy.find("expandable_segments:True"), std::string::npos);
}

TEST(MemoryReport, DiffAddsUpByFrame) {
  const MemorySnapshot a =
      snapshot(event("alloc", 1, 100, kCache) + event("alloc", 2, 7, kForward));
  const MemorySnapshot b = snapshot(event("alloc", 1, 160, kCache) + event("alloc", 2, 7, kForward),
                                    segment(5, 512, block(512, 0, "inactive")));
  const std::vector<DeviceMemoryDiff> diffs = memory_diff(a, memory_report(a), b, memory_report(b));
  ASSERT_EQ(diffs.size(), 1u);
  ASSERT_EQ(diffs[0].by_frame.size(), 1u);
  EXPECT_EQ(diffs[0].by_frame[0].label, "cache.py:7:keep");
  EXPECT_EQ(diffs[0].by_frame[0].after - diffs[0].by_frame[0].before, 60);
  EXPECT_EQ(diffs[0].segments_only_after, 1);
}

TEST(SnapshotTables, RowsAreThoseOfTheSnapshot) {
  const SnapshotTables tables(snapshot(event("alloc", 1000, 100, kCache) + freed(1000, 100),
                                       segment(5, 512, block(512, 0, "inactive"))));
  EXPECT_EQ(tables.row_count("events"), 3);
  EXPECT_EQ(tables.row_count("allocations"), 1);
  EXPECT_EQ(tables.row_count("blocks"), 1);
  EXPECT_EQ(tables.row_count("segments"), 1);
  EXPECT_EQ(tables.row_count("frames"), 1);
  EXPECT_THROW(tables.row_count("kernels"), Error);
  ASSERT_EQ(SnapshotTables::names().size(), 5u);
  for (const std::string_view name : SnapshotTables::names()) {
    ArrowArrayStream stream;
    tables.export_stream(name, &stream);
    ArrowArray batch;
    ASSERT_EQ(stream.get_next(&stream, &batch), 0) << name;
    EXPECT_EQ(batch.length, tables.row_count(name));
    if (name == "events") {
      EXPECT_EQ(static_cast<const int64_t*>(batch.children[5]->buffers[1])[0], 100);
    }
    batch.release(&batch);
    stream.release(&stream);
  }
}

}  // namespace
}  // namespace memory_report_test
}  // namespace epilogue::trace
