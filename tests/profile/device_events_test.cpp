// SPDX-License-Identifier: Apache-2.0
// A device's activities in the trace: made by hand, built with the recorder's ops.
#include "profile/device_events.h"

#include "ops/ops.h"
#include "profile/build_trace.h"
#include "support/test.h"

namespace epilogue::profiler::device_events_test {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kThread = 77;
constexpr uint32_t kOp = 1;

DeviceInfo h200() {
  DeviceInfo d;
  d.name = "NVIDIA H200";
  d.memory_bytes = int64_t{141} << 30;
  d.compute_major = 9;
  d.multiprocessors = 132;
  d.warp_size = 32;
  d.max_threads_per_block = 1024;
  d.max_threads_per_multiprocessor = 2048;
  d.registers_per_block = 65536;
  d.registers_per_multiprocessor = 65536;
  d.shared_bytes_per_block = 48 << 10;
  d.shared_bytes_per_block_optin = 227 << 10;
  d.shared_bytes_per_multiprocessor = 228 << 10;
  return d;
}

// One op of one thread; its times are those of the recording.
Recording recording_with_op() {
  Recording r;
  r.begin = tick_anchor();
  auto buffer = std::make_shared<ThreadBuffer>();
  buffer->thread_id = kThread;
  buffer->thread_name = "main";
  OpRecord op = {
      .op = &kMm, .begin_ticks = r.begin.ticks, .end_ticks = r.begin.ticks + 1000, .id = kOp};
  buffer->ops.push_back(std::move(op));
  buffer->next_id = 2;
  r.buffers.push_back(buffer);
  r.end = tick_anchor();
  r.devices = {h200()};
  return r;
}

const trace::Event& event(const trace::Trace& t, trace::Category category) {
  const auto found = std::find_if(t.events.begin(), t.events.end(),
                                  [&](const trace::Event& e) { return e.category == category; });
  EXPECT_NE(found, t.events.end()) << trace::category_name(category);
  return *found;
}

int64_t count(const trace::Trace& t, trace::Category category) {
  return std::count_if(t.events.begin(), t.events.end(),
                       [&](const trace::Event& e) { return e.category == category; });
}

DeviceActivity kernel(int64_t begin_ns, int64_t end_ns) {
  DeviceActivity a;
  a.name = "epi_cuda_fused_gelu_mul_bf16";
  a.begin_ns = begin_ns;
  a.end_ns = end_ns;
  a.correlation = 5;
  a.op = op_key(kThread, kOp);
  a.stream = 13;
  a.registers = 168;
  a.shared_bytes = 200 << 10;
  a.grid = {66, 2, 1};
  a.block = {384, 1, 1};
  return a;
}

TEST(DeviceEvents, AKernelIsLinkedToItsCallAndItsOp) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  const int64_t start = r.begin.unix_ns;
  DeviceActivity call;
  call.kind = ActivityKind::runtime_call;
  call.name = "cudaLaunchKernel";
  call.begin_ns = start + 100;
  call.end_ns = start + 400;
  call.thread_id = kThread;
  call.correlation = 5;
  call.op = op_key(kThread, kOp);
  call.cbid = 211;
  r.activities = {call, kernel(start + 1000, start + 3500)};
  const trace::Trace t = build_trace(r);

  const trace::Event& launch = event(t, trace::Category::cuda_runtime);
  EXPECT_EQ(t.name(launch), "cudaLaunchKernel");
  EXPECT_EQ(launch.tid, static_cast<int64_t>(kThread));
  EXPECT_EQ(t.runtime_calls[launch.args].cbid, 211);
  const trace::Event& k = event(t, trace::Category::kernel);
  EXPECT_EQ(k.correlation, launch.correlation);
  EXPECT_EQ(k.external_id, event(t, trace::Category::cpu_op).external_id);
  EXPECT_EQ(k.external_id, launch.external_id);
  EXPECT_EQ(k.ts_ns + t.base_time_ns, start + 1000);
  EXPECT_EQ(k.dur_ns, 2500);
  EXPECT_EQ(k.pid, 0);
  EXPECT_EQ(k.tid, 13);
  EXPECT_EQ(t.device_label, "CUDA");
}

TEST(DeviceEvents, OccupancyCountsOptInSharedMemory) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  r.activities = {kernel(r.begin.unix_ns, r.begin.unix_ns + kSecond)};
  const trace::Trace t = build_trace(r);
  const trace::KernelArgs& args = *t.kernel_args(event(t, trace::Category::kernel));
  // 132 blocks on 132 multiprocessors; one fits each; 384 of 2048 threads.
  EXPECT_DOUBLE_EQ(args.blocks_per_sm, 1);
  EXPECT_DOUBLE_EQ(args.warps_per_sm, 12);
  EXPECT_EQ(args.est_occupancy_pct, 19);
  EXPECT_EQ(args.registers_per_thread, 168);
  EXPECT_EQ(args.shared_memory_bytes, 200 << 10);
}

TEST(DeviceEvents, DevicesAndStreamsHaveLanes) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  r.activities = {kernel(r.begin.unix_ns, r.begin.unix_ns + 1)};
  const trace::Trace t = build_trace(r);
  ASSERT_EQ(t.processes.size(), 2U);
  EXPECT_EQ(t.processes[1].labels, "GPU 0");
  ASSERT_EQ(t.threads.size(), 2U);
  EXPECT_EQ(t.threads[1].name, "stream 13 ");
  ASSERT_EQ(t.devices.size(), 1U);
  EXPECT_EQ(t.devices[0].name, "NVIDIA H200");
  EXPECT_EQ(t.devices[0].num_sms, 132);
}

KernelRecord timed_kernel(int64_t begin_mark, int64_t end_mark) {
  KernelRecord k;
  k.info.name = "epi_cuda_gemm_bf16";
  k.on_device = true;
  k.parent = kOp;
  k.begin_mark = begin_mark;
  k.end_mark = end_mark;
  return k;
}

TEST(DeviceEvents, WithoutATracerKernelsAreWhereTheMarksAre) {
  Recording r = recording_with_op();
  const int64_t start = r.begin.unix_ns;
  KernelRecord k = timed_kernel(0, 1);
  k.begin_ticks = r.begin.ticks;
  k.end_ticks = r.begin.ticks + 10;
  r.buffers[0]->kernels.push_back(k);
  r.marks = {start + 5000, start + 9000};
  const trace::Trace t = build_trace(r);
  const trace::Event& e = event(t, trace::Category::kernel);
  EXPECT_EQ(e.ts_ns + t.base_time_ns, start + 5000);
  EXPECT_EQ(e.dur_ns, 4000);
  EXPECT_EQ(count(t, trace::Category::cuda_runtime), 1);
  const trace::KernelArgs& args = *t.kernel_args(e);
  EXPECT_FALSE(args.has_grid);
  EXPECT_LT(args.registers_per_thread, 0);
}

TEST(DeviceEvents, WhatWasNotTimedIsLeftOut) {
  Recording r = recording_with_op();
  r.buffers[0]->kernels.push_back(timed_kernel(-1, -1));
  r.buffers[0]->kernels.push_back(timed_kernel(0, 3));  // the second mark is missing
  r.marks = {r.begin.unix_ns};
  EXPECT_EQ(count(build_trace(r), trace::Category::kernel), 0);
}

TEST(DeviceEvents, ATracersKernelsAreNotShownTwice) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  r.buffers[0]->kernels.push_back(timed_kernel(0, 1));
  r.marks = {1, 2};
  r.activities = {kernel(r.begin.unix_ns, r.begin.unix_ns + 1)};
  EXPECT_EQ(count(build_trace(r), trace::Category::kernel), 1);
}

TEST(DeviceEvents, HostCallsAreLeftOutWithoutCpuActivity) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  r.cpu_activity = false;
  DeviceActivity call = {.kind = ActivityKind::driver_call, .name = "cuLaunchKernelEx"};
  r.activities = {call, kernel(r.begin.unix_ns, r.begin.unix_ns + 1)};
  const trace::Trace t = build_trace(r);
  EXPECT_EQ(count(t, trace::Category::cuda_driver), 0);
  EXPECT_EQ(count(t, trace::Category::kernel), 1);
}

TEST(DeviceEvents, AnOpOfAThreadThatWasNotRecordedLinksNothing) {
  Recording r = recording_with_op();
  r.has_tracer = true;
  DeviceActivity k = kernel(r.begin.unix_ns, r.begin.unix_ns + 1);
  k.op = op_key(kThread + 1, kOp);
  r.activities = {k};
  const trace::Trace t = build_trace(r);
  EXPECT_EQ(event(t, trace::Category::kernel).external_id, 0);
}

}  // namespace epilogue::profiler::device_events_test
