// SPDX-License-Identifier: Apache-2.0
#include "explain/render/html/page_timeline.h"

#include "explain/render/html/timeline_rows.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::page_timeline_test {

using testing::TraceBuilder;

// One column of `n` values off the front.
std::vector<int64_t> take(std::string_view& bytes, size_t n, bool is_zigzag = false) {
  std::vector<int64_t> values;
  while (values.size() < n) {
    uint64_t value = 0;
    int shift = 0;
    bool is_more = true;
    while (is_more && !bytes.empty()) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
      is_more = byte >= 0x80;
    }
    const auto magnitude = static_cast<int64_t>(value >> 1);
    values.push_back(!is_zigzag  ? static_cast<int64_t>(value)
                     : value & 1 ? -magnitude - 1
                                 : magnitude);
  }
  return values;
}

using Values = std::vector<int64_t>;

TEST(PageTimeline, ColumnsHoldEveryEventByLaneRowAndStart) {
  TraceBuilder b;
  b.annotation("step", 1000, 9000);
  const int64_t id = b.op("aten::mm", 2000, 5000).external_id;
  b.inputs({testing::tensor({2, 3}), testing::scalar("1"), testing::scalar("2")});
  b.kernel("gemm", 3000, 4000, id);
  b.op("aten::mm", 6000, 7000);
  const PageTimeline page = page_timeline(b.trace, link(b.trace), 500);

  EXPECT_EQ(page.header["events"], 5);
  EXPECT_EQ(page.header["origin_us"], 0.5);
  ASSERT_EQ(page.header["lanes"].size(), 2u);
  EXPECT_EQ(page.header["lanes"][0]["rows"], nlohmann::ordered_json({1, 2, 1}));
  EXPECT_EQ(page.header["lanes"][0]["is_device"], false);
  EXPECT_EQ(page.header["lanes"][1]["rows"], nlohmann::ordered_json({1}));
  EXPECT_EQ(page.header["lanes"][1]["is_device"], true);
  EXPECT_EQ(page.header["strings"],
            nlohmann::ordered_json({"step", "aten::mm", "epiLaunchKernel", "gemm"}));

  std::string_view bytes = page.columns;
  // step; mm, mm; launch; kernel
  EXPECT_EQ(take(bytes, 5), (Values{1, 0, 0, 6, 3}));  // categories
  EXPECT_EQ(take(bytes, 5), (Values{0, 1, 1, 2, 3}));  // names
  EXPECT_EQ(take(bytes, 5), (Values{0, 1, 0, 0, 2}));  // details
  EXPECT_EQ(take(bytes, 5), (Values{0, 0, 0, 0, 2}));  // op: event 2, counted from 1
  EXPECT_EQ(take(bytes, 5), (Values{0, 0, 0, 0, 4}));  // launch
  EXPECT_EQ(take(bytes, 5), (Values{8000, 3000, 1000, 1000, 1000}));
  EXPECT_EQ(take(bytes, 5, true), (Values{500, 1500, 1000, 2500, 2500}));
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(page.header["details"][1], "inputs\t[2, 3] float\n1, 2");
  EXPECT_EQ(page.header["details"][2].get<std::string>().find("grid\t[1, 1, 1]\n"), 0u);
}

TEST(PageTimeline, AnEventMayStartBeforeTheOneBesideItEnds) {
  TraceBuilder b;
  for (int i = 0; i < 70; ++i) b.op("o", i, 1000 + i);  // more than there are rows
  const PageTimeline page = page_timeline(b.trace, link(b.trace), 0);
  size_t events = 0;
  for (const auto& row : page.header["lanes"][0]["rows"]) events += row.get<size_t>();
  EXPECT_EQ(events, 70u);
  EXPECT_EQ(page.header["lanes"][0]["rows"].size(), 64u);
}

TEST(PageTimeline, TimesAtTheEndsOfTheirRangeDoNotOverflow) {
  TraceBuilder b;
  b.op("late", INT64_MAX - 10, INT64_MAX - 5);
  const PageTimeline page = page_timeline(b.trace, link(b.trace), INT64_MIN + 1);
  EXPECT_EQ(page.header["events"], 1);
}

TEST(TimelineRows, SpansThatOverlapInPartDoNotShareARow) {
  TraceBuilder b;
  b.op("a", 0, 10);
  b.op("b", 5, 15);
  b.op("c", 12, 14);  // below b
  b.op("d", 20, 30);
  const TimelineRows rows = timeline_rows(b.trace, 100);
  ASSERT_EQ(rows.lanes.size(), 1u);
  ASSERT_EQ(rows.lanes[0].rows.size(), 3u);
  EXPECT_EQ(rows.lanes[0].rows[0], (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(rows.lanes[0].rows[1], (std::vector<uint32_t>{1}));
  EXPECT_EQ(rows.lanes[0].rows[2], (std::vector<uint32_t>{2}));
}

TEST(TimelineRows, AboveTheLimitTheShortestAreLeftOut) {
  TraceBuilder b;
  b.op("5", 0, 5);
  b.op("9", 10, 19);
  b.op("5 too", 20, 25);
  b.op("1", 30, 31);
  b.op("7", 40, 47);
  const TimelineRows rows = timeline_rows(b.trace, 3);
  EXPECT_EQ(rows.left_out, 2);
  ASSERT_EQ(rows.lanes.size(), 1u);
  EXPECT_EQ(rows.lanes[0].rows[0], (std::vector<uint32_t>{0, 1, 4}));
}

TEST(TimelineRows, TheFullestHostThreadComesFirstAndDevicesLast) {
  TraceBuilder b;
  b.op("a", 0, 5, 7);
  b.op("b", 0, 5, 9);
  const int64_t id = b.op("c", 6, 9, 9).external_id;
  b.kernel("k", 7, 8, id, 9);
  b.trace.processes.push_back({.pid = 0, .name = "python", .labels = "GPU 0"});
  b.trace.threads.push_back({.pid = testing::kHostPid, .tid = 9, .name = "thread 9 (main) "});
  const TimelineRows rows = timeline_rows(b.trace, 100);
  ASSERT_EQ(rows.lanes.size(), 3u);
  EXPECT_EQ(rows.lanes[0].name, "process 4711, thread 9 (main)");
  EXPECT_EQ(rows.lanes[1].name, "process 4711, thread 7");
  EXPECT_EQ(rows.lanes[2].name, "GPU 0, stream 0");
}

TEST(TimelineRows, PythonFramesLieBelowTheDevices) {
  TraceBuilder b;
  for (int64_t depth = 0; depth < 5; ++depth)
    b.event(Category::python_function, "frame", depth, 100 - depth, 9);
  const int64_t id = b.op("a", 10, 20, 9).external_id;
  b.kernel("k", 12, 15, id, 9);
  b.event(Category::python_function, "idle", 0, 100, 3);  // a thread without ops
  const TimelineRows rows = timeline_rows(b.trace, 100);
  ASSERT_EQ(rows.lanes.size(), 4u);
  EXPECT_EQ(rows.lanes[0].name, "process 4711, thread 9");
  EXPECT_EQ(rows.lanes[0].rows.size(), 2u);
  EXPECT_EQ(rows.lanes[1].name, "device 0, stream 0");
  EXPECT_EQ(rows.lanes[2].name, "process 4711, thread 9, Python");
  EXPECT_EQ(rows.lanes[2].rows.size(), 5u);
  EXPECT_EQ(rows.lanes[3].name, "process 4711, thread 3, Python");
  // A click on a frame shows the work that its thread launched meanwhile.
  const PageTimeline page = page_timeline(b.trace, link(b.trace), 0);
  EXPECT_EQ(page.header["lanes"][0]["calls_lane"], 0);
  EXPECT_TRUE(page.header["lanes"][1]["calls_lane"].is_null());
  EXPECT_EQ(page.header["lanes"][2]["calls_lane"], 0);
  EXPECT_TRUE(page.header["lanes"][3]["calls_lane"].is_null());
}

TEST(TimelineRows, KernelsWhoseTimesAreLostAreNotDrawn) {
  TraceBuilder b;
  b.event(Category::kernel, "lost", 0, 0);
  b.event(Category::kernel, "there", 5, 6);
  const TimelineRows rows = timeline_rows(b.trace, 100);
  ASSERT_EQ(rows.lanes.size(), 1u);
  EXPECT_EQ(rows.lanes[0].rows[0].size(), 1u);
  EXPECT_EQ(rows.left_out, 0);
}

}  // namespace epilogue::trace::page_timeline_test
