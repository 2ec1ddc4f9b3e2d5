// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/table.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::key_averages_test {

using namespace testing;

// The only row of that name (on that side).
Row row(const KeyAverages& averages, std::string_view name, RowDevice device = RowDevice::cpu) {
  std::vector<Row> found;
  for (const Row& r : averages.rows)
    if (r.key == name && r.device == device) found.push_back(r);
  EXPECT_EQ(found.size(), 1U) << name;
  return found.empty() ? Row() : found[0];
}
bool has(const KeyAverages& averages, std::string_view name) {
  for (const Row& r : averages.rows)
    if (r.key == name) return true;
  return false;
}
std::vector<std::string> names(const KeyAverages& averages) {
  std::vector<std::string> out;
  for (const Row& r : averages.rows) out.push_back(r.key);
  return out;
}

// nn.Linear as the engine records it: linear > t, addmm > kernel.
TraceBuilder linear() {
  TraceBuilder b;
  b.trace.device_label = "KERNEL";
  b.op("aten::linear", 0, 1000);
  b.op("aten::t", 100, 200);
  b.op("aten::addmm", 300, 900);
  b.kernel("gemm", 400, 850, b.last_id());
  return b;
}

TEST(KeyAverages, PythonFramesTakeTheirTimeOutOfAStepsOwn) {
  TraceBuilder b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.event(Category::python_function, "train.py(4): prepare", 100, 400);
  b.event(Category::python_function, "nn.Module: Linear_0", 450, 950);
  b.op("aten::linear", 500, 900);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(names(a), (std::vector<std::string>{"ProfilerStep*", "aten::linear"}));
  EXPECT_EQ(row(a, "ProfilerStep*").cpu_time_total_ns, 1000);
  EXPECT_EQ(row(a, "ProfilerStep*").self_cpu_time_total_ns, 1000 - 300 - 500);
  EXPECT_EQ(row(a, "aten::linear").self_cpu_time_total_ns, 400);
}

TEST(KeyAverages, SelfAndTotalTimes) {
  const KeyAverages a = key_averages(linear().trace);
  EXPECT_EQ(names(a), (std::vector<std::string>{"aten::linear", "aten::t", "aten::addmm",
                                                "epiLaunchKernel", "gemm"}));
  const Row linear_row = row(a, "aten::linear");
  EXPECT_EQ(linear_row.count, 1);
  EXPECT_EQ(linear_row.cpu_time_total_ns, 1000);
  EXPECT_EQ(linear_row.self_cpu_time_total_ns, 1000 - 100 - 600);
  EXPECT_EQ(linear_row.device_time_total_ns, 450);
  EXPECT_EQ(linear_row.self_device_time_total_ns, 0);
  EXPECT_TRUE(linear_row.is_top_level);
  const Row addmm = row(a, "aten::addmm");
  EXPECT_EQ(addmm.self_cpu_time_total_ns, 600 - 450);  // the launch is a child
  EXPECT_EQ(addmm.self_device_time_total_ns, 450);
  EXPECT_EQ(addmm.device_time_total_ns, 450);
  EXPECT_FALSE(addmm.is_top_level);
  EXPECT_EQ(row(a, "epiLaunchKernel").device_time_total_ns, 0);
  const Row gemm = row(a, "gemm", RowDevice::device);
  EXPECT_EQ(gemm.cpu_time_total_ns, 0);
  EXPECT_EQ(gemm.self_cpu_time_total_ns, 0);
  EXPECT_EQ(gemm.self_device_time_total_ns, 450);
  // Self CPU adds up to the wall time; the kernel is counted once.
  EXPECT_EQ(a.self_cpu_time_total_ns(), 1000);
  EXPECT_EQ(a.self_device_time_total_ns(), 450);
  EXPECT_EQ(a.device_label, "KERNEL");
}

TEST(KeyAverages, AveragesOverCalls) {
  TraceBuilder b;
  for (int64_t i = 0; i < 4; ++i) b.op("aten::mm", 100 * i, 100 * i + 10 * (i + 1));
  const Row mm = row(key_averages(b.trace), "aten::mm");
  EXPECT_EQ(mm.count, 4);
  EXPECT_EQ(mm.cpu_time_total_ns, 100);
  EXPECT_DOUBLE_EQ(mm.cpu_time_avg_us(), 0.025);
  EXPECT_EQ(Row().cpu_time_avg_us(), 0);
  EXPECT_EQ(Row().device_time_avg_us(), 0);
}

TEST(KeyAverages, EmptyTrace) {
  const KeyAverages a = key_averages(Trace());
  EXPECT_TRUE(a.rows.empty());
  EXPECT_EQ(a.self_cpu_time_total_ns(), 0);
}

TEST(KeyAverages, DropsHelpersFramesAndShares) {
  TraceBuilder b;
  b.op("aten::add", 0, 100);
  for (const char* name :
       {"profiler::_record_function_enter", "profiler::_record_function_enter_new",
        "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
        "[memory]", "[OutOfMemory]"})
    b.op(name, 10, 20);
  b.event(Category::python_function, "main.py(1): run", 0, 50);
  b.event(Category::cpu_kernel_share, "share", 0, 50, 2);
  b.event(Category::cpu_instant_event, "instant", 0, 50);
  b.event(Category::overhead, "Buffer Flush", 0, 50, 9);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(names(a), (std::vector<std::string>{"aten::add", "Buffer Flush"}));
  EXPECT_EQ(row(a, "aten::add").self_cpu_time_total_ns, 50) << "the frame's time is its own";
}

TEST(KeyAverages, ThreadsAndOverlapsDoNotNest) {
  TraceBuilder b;
  b.op("outer", 0, 100, 1);
  b.op("other thread", 10, 20, 2);
  b.op("overlaps", 90, 110, 1);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "outer").self_cpu_time_total_ns, 100);
  EXPECT_TRUE(row(a, "overlaps").is_top_level);
}

// A driver may name another thread than its op's; ids join them, dense or not, sorted or not.
TEST(KeyAverages, ACallIsItsOpsByTheIdEvenOnAnotherThread) {
  for (const int64_t step : {int64_t{1}, int64_t{1} << 40}) {
    TraceBuilder b;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t at = 100 * i;
      b.op("aten::mm", at, at + 50).external_id = (20 - i) * step;
      Event& call = b.event(Category::cuda_runtime, "cudaLaunchKernel", at + 10, at + 20, 99);
      call.external_id = (20 - i) * step;
      call.correlation = 1000 + i;
    }
    EXPECT_EQ(row(key_averages(b.trace), "aten::mm").self_cpu_time_total_ns, 20 * 40) << step;
  }
}

TEST(KeyAverages, AsyncOpsHaveOnlyATotal) {
  TraceBuilder b;
  b.op("async", 0, 100);
  b.last_args().is_async = true;
  b.op("child", 10, 20);
  b.kernel("k", 50, 60, 1, 3);                       // linked to the async op
  b.trace.events.erase(b.trace.events.begin() + 2);  // its launch call was not seen
  const KeyAverages a = key_averages(b.trace);
  const Row async = row(a, "async");
  EXPECT_TRUE(async.is_async);
  EXPECT_EQ(async.cpu_time_total_ns, 100);
  EXPECT_EQ(async.self_cpu_time_total_ns, 0);
  EXPECT_EQ(async.device_time_total_ns, 0);
  EXPECT_TRUE(row(a, "child").is_top_level);
}

TEST(KeyAverages, StepsMergeAndSidesStayApart) {
  TraceBuilder b;
  b.annotation("ProfilerStep#1", 0, 100);
  b.annotation("ProfilerStep#2", 100, 250);
  b.event(Category::gpu_user_annotation, "ProfilerStep#1", 50, 90, 7);
  b.annotation("aten::mm", 300, 310);  // a label named as an op is a row of its own
  b.op("aten::mm", 320, 340);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(names(a),
            (std::vector<std::string>{"ProfilerStep*", "ProfilerStep*", "aten::mm", "aten::mm"}));
  EXPECT_EQ(row(a, "ProfilerStep*").count, 2);
  EXPECT_EQ(row(a, "ProfilerStep*").cpu_time_total_ns, 250);
  const Row device = row(a, "ProfilerStep*", RowDevice::device);
  EXPECT_EQ(device.self_device_time_total_ns, 40);
  EXPECT_TRUE(device.is_user_annotation);
  EXPECT_EQ(a.self_device_time_total_ns(), 0);  // an annotation is not device work
  EXPECT_EQ(a.rows[2].count, 1);
  EXPECT_NE(a.rows[2].is_user_annotation, a.rows[3].is_user_annotation);
}

TEST(KeyAverages, AWaitOfAStreamIsNoDeviceTimeOfTheOp) {
  TraceBuilder b;
  b.op("aten::mm", 0, 100);
  const int64_t id = b.last_id();
  b.kernel("gemm", 10, 50, id);
  b.event(Category::cuda_sync, "Stream Sync", 10, 60, 7).external_id = id;
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "aten::mm").device_time_total_ns, 40);
  EXPECT_EQ(row(a, "Stream Sync", RowDevice::device).device_time_total_ns, 50) << "its own row";
}

TEST(KeyAverages, AnOnlyChildOfTheSameNameIsItsParent) {
  TraceBuilder b;
  b.op("aten::mm", 0, 100);
  b.op("aten::mm", 10, 90);
  b.op("aten::mm", 20, 80);
  b.kernel("gemm", 30, 70, b.last_id());
  const KeyAverages a = key_averages(b.trace);
  const Row mm = row(a, "aten::mm");
  EXPECT_EQ(mm.count, 1);
  EXPECT_EQ(mm.cpu_time_total_ns, 100);
  EXPECT_EQ(mm.self_cpu_time_total_ns, 60);  // less the launch
  EXPECT_EQ(mm.self_device_time_total_ns, 40);
  EXPECT_EQ(mm.device_time_total_ns, 40);
}

TEST(KeyAverages, WithASiblingSameNamesStay) {
  TraceBuilder b;
  b.op("aten::mse_loss_backward", 0, 100);
  b.op("aten::mse_loss_backward", 10, 50);
  b.op("aten::zeros_like", 60, 90);
  const Row loss = row(key_averages(b.trace), "aten::mse_loss_backward");
  EXPECT_EQ(loss.count, 2);
  EXPECT_EQ(loss.cpu_time_total_ns, 140);
  EXPECT_EQ(loss.self_cpu_time_total_ns, 30 + 40);
}

TEST(KeyAverages, LinksByTheLaunchNotByAWrongExternalId) {
  // Files of 2022 to 2024: the External id is the event's own correlation and names another op.
  TraceBuilder b;
  b.op("wrong", 0, 10);
  b.op("right", 100, 200);
  b.kernel("k", 120, 150, /*op_id=*/1);  // correlation 1 == External id 1 == "wrong"
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "wrong").device_time_total_ns, 0);
  EXPECT_EQ(row(a, "right").self_device_time_total_ns, 30);
}

TEST(KeyAverages, LinksByExternalIdWhereThereIsNoLaunch) {
  TraceBuilder b;
  b.op("filler", 0, 10);
  b.op("aten::mm", 100, 200);
  Event& uncorrelated = b.event(Category::kernel, "old rocm", 300, 400, 7);
  uncorrelated.external_id = 2;
  Event& lost = b.event(Category::kernel, "triton", 500, 505, 7);
  lost.external_id = 2;
  lost.correlation = 77;
  b.event(Category::kernel, "from before the window", 0, 50, 7).correlation = 78;
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "aten::mm").self_device_time_total_ns, 105);
  EXPECT_EQ(a.self_device_time_total_ns(), 155);
}

TEST(KeyAverages, AnnotationsAreTransparentForKernels) {
  TraceBuilder b;
  b.op("aten::mm", 0, 100);
  b.annotation("label", 10, 90);
  b.kernel("k", 20, 40, 1);
  b.annotation("alone", 200, 300);
  b.kernel("no op", 220, 240, 0);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "aten::mm").self_device_time_total_ns, 20);
  EXPECT_EQ(row(a, "label").device_time_total_ns, 0);
  EXPECT_EQ(row(a, "alone").device_time_total_ns, 0);  // as in PyTorch: only ops are linked
}

TEST(KeyAverages, OneLaunchOfManyKernels) {
  TraceBuilder b;
  b.op("graph", 0, 100);
  b.event(Category::cuda_runtime, "cudaGraphLaunch", 10, 20).correlation = 5;
  for (int i = 0; i < 3; ++i)
    b.event(Category::kernel, "k", 100 * i, 100 * i + 7, 7).correlation = 5;
  Event& copy = b.event(Category::gpu_memcpy, "Memcpy DtoD", 400, 410, 7);
  copy.correlation = 5;
  EXPECT_EQ(row(key_averages(b.trace), "graph").self_device_time_total_ns, 31);
}

TEST(KeyAverages, LaunchesNestInTheThreadOfTheirOp) {
  TraceBuilder b;
  b.op("filler", 0, 1);
  b.op("aten::mm", 100, 200, 1);
  b.kernel("k", 120, 150, 2, /*tid=*/99);
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "aten::mm").self_cpu_time_total_ns, 70);
  EXPECT_EQ(row(a, "aten::mm").self_device_time_total_ns, 30);
  EXPECT_FALSE(row(a, "epiLaunchKernel").is_top_level);
}

TEST(KeyAverages, NoDeviceProfiled) {
  TraceBuilder b = linear();
  b.trace.device_label = "";
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(row(a, "aten::addmm").device_time_total_ns, 0);
  EXPECT_EQ(a.self_device_time_total_ns(), 0);
}

TEST(KeyAverages, MemoryCountsByTimeAcrossThreads) {
  TraceBuilder b;
  b.op("outer", 0, 100);
  b.op("inner", 20, 60);
  b.memory(10, 1000);
  b.memory(20, 200);                            // at the start of inner
  b.memory(60, -50);                            // at its end
  b.memory(30, 7, DeviceType::cpu, /*tid=*/2);  // another thread, counted all the same
  b.memory(40, 4096, DeviceType::cuda);
  b.trace.recorded.profile_memory = true;
  const KeyAverages a = key_averages(b.trace);
  EXPECT_TRUE(a.profile_memory);
  EXPECT_EQ(row(a, "inner").cpu_memory_bytes, 157);
  EXPECT_EQ(row(a, "inner").self_cpu_memory_bytes, 157);
  EXPECT_EQ(row(a, "inner").device_memory_bytes, 4096);
  EXPECT_EQ(row(a, "outer").cpu_memory_bytes, 1157);
  EXPECT_EQ(row(a, "outer").self_cpu_memory_bytes, 1000);
  EXPECT_EQ(row(a, "outer").self_device_memory_bytes, 0);
  EXPECT_FALSE(has(a, "[memory]"));
}

TEST(KeyAverages, MemoryOutsideOpsHasRowsOfItsOwn) {
  TraceBuilder b;
  b.memory(5, 64);
  b.op("aten::add", 10, 20);
  b.memory(30, -16);
  b.memory(15, 999).out_of_memory = true;
  const KeyAverages a = key_averages(b.trace);
  EXPECT_EQ(names(a), (std::vector<std::string>{"[memory]", "aten::add", "[OutOfMemory]"}));
  EXPECT_EQ(row(a, "[memory]").count, 2);
  EXPECT_EQ(row(a, "[memory]").cpu_memory_bytes, 48);
  EXPECT_EQ(row(a, "[memory]").self_cpu_memory_bytes, 48);
  EXPECT_EQ(row(a, "[memory]").cpu_time_total_ns, 0);
  EXPECT_EQ(row(a, "[OutOfMemory]").cpu_memory_bytes, 999);
  EXPECT_EQ(row(a, "aten::add").cpu_memory_bytes, 0);
}

TEST(KeyAverages, FlopsNeedTheFlag) {
  TraceBuilder b;
  for (int i = 0; i < 2; ++i) {
    b.op("aten::mm", 10 * i, 10 * i + 5);
    b.inputs({tensor({3, 4}), tensor({4, 5})});
  }
  EXPECT_EQ(row(key_averages(b.trace), "aten::mm").flops, 0U);
  b.trace.recorded.with_flops = true;
  EXPECT_EQ(row(key_averages(b.trace), "aten::mm").flops, 240U);
}

TEST(KeyAverages, GroupsByShape) {
  TraceBuilder b;
  b.op("aten::mm", 0, 1);
  b.inputs({tensor({3, 4}), tensor({4, 5})});
  b.op("aten::mm", 10, 11);
  b.inputs({tensor({3, 4}), tensor({4, 6})});
  b.op("aten::mm", 20, 21);
  b.inputs({tensor({3, 4}, "double"), tensor({4, 5})});  // a type is no shape
  b.op("aten::cat", 30, 31);
  b.inputs({testing::tensor_list({tensor({1}), tensor({2})}), scalar("0")});
  b.op("no shapes", 40, 41);
  EXPECT_EQ(key_averages(b.trace).rows.size(), 3U);
  EXPECT_EQ(key_averages(b.trace).rows[0].input_shapes, "");
  const KeyAverages a = key_averages(b.trace, {.group_by_input_shape = true});
  ASSERT_EQ(a.rows.size(), 4U);
  EXPECT_EQ(a.rows[0].input_shapes, "[[3, 4], [4, 5]]");
  EXPECT_EQ(a.rows[0].count, 2);
  EXPECT_EQ(a.rows[1].input_shapes, "[[3, 4], [4, 6]]");
  EXPECT_EQ(a.rows[2].input_shapes, "[[], []]");
  EXPECT_EQ(a.rows[3].input_shapes, "[]");
}

TEST(KeyAverages, GroupsByStackAndOverload) {
  TraceBuilder b;
  const auto op = [&](std::string_view stack, std::string_view overload) {
    b.op("aten::add", 10 * b.last_id(), 10 * b.last_id() + 5);
    b.last_args().stack = b.trace.strings.intern(stack);
    b.last_args().overload_name = b.trace.strings.intern(overload);
  };
  op("f;main;x", "Tensor");
  op("f;main;y", "Tensor");
  op("g;main", "out");
  op("", "");
  EXPECT_EQ(key_averages(b.trace).rows.size(), 1U);
  EXPECT_TRUE(key_averages(b.trace).rows[0].stack.empty());
  const KeyAverages by_stack = key_averages(b.trace, {.group_by_stack_n = 2});
  ASSERT_EQ(by_stack.rows.size(), 3U);
  EXPECT_EQ(by_stack.rows[0].stack, (std::vector<std::string>{"f", "main"}));
  EXPECT_EQ(by_stack.rows[0].count, 2);
  EXPECT_EQ(key_averages(b.trace, {.group_by_stack_n = 3}).rows.size(), 4U);
  const KeyAverages by_overload = key_averages(b.trace, {.group_by_overload_name = true});
  ASSERT_EQ(by_overload.rows.size(), 3U);
  EXPECT_EQ(by_overload.rows[1].overload_name, "out");
}

TEST(KeyAverages, BackwardOpsHaveTheForwardStack) {
  TraceBuilder b;
  const auto op = [&](const char* name, int64_t start, int64_t end, int64_t tid, int64_t number,
                      Scope scope, std::string_view stack) {
    b.op(name, start, end, tid);
    b.last_args().sequence_number = number;
    b.last_args().scope = scope;
    b.last_args().fwd_tid = scope == Scope::backward_function ? 1 : 0;
    b.last_args().stack = b.trace.strings.intern(stack);
  };
  op("aten::mm", 0, 10, 1, 5, Scope::function, "forward.py(3): mlp");
  op("MmBackward0", 100, 200, 2, 5, Scope::backward_function, "engine");
  op("aten::t", 110, 120, 2, -1, Scope::function, "engine");
  op("Other0", 300, 310, 2, 9, Scope::backward_function, "engine");
  const KeyAverages a = key_averages(b.trace, {.group_by_stack_n = 1});
  EXPECT_EQ(row(a, "MmBackward0").stack, (std::vector<std::string>{"forward.py(3): mlp"}));
  EXPECT_EQ(row(a, "aten::t").stack, (std::vector<std::string>{"forward.py(3): mlp"}));
  EXPECT_TRUE(row(a, "Other0").stack.empty());
}

}  // namespace epilogue::trace::key_averages_test
