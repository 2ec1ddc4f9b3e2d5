// SPDX-License-Identifier: Apache-2.0
// Every field of every kind of event, against Kineto's format.
#include "support/test.h"
#include "trace/trace_builder.h"
#include "trace/written.h"

namespace epilogue::trace::writer_schema_test {

using namespace testing;
using Names = std::vector<std::string>;

// The only event of its kind, without its args.
Json only(const Json& document, std::string_view phase, std::string_view category,
          std::string_view name = "") {
  const std::vector<Json> found = select(document, phase, category, name);
  EXPECT_EQ(found.size(), 1U) << phase << ' ' << category << ' ' << name;
  return found.empty() ? Json() : found[0];
}

const Names kSpanKeys = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};

TEST(Schema, TopLevelKeysInOrder) {
  TraceBuilder b;
  b.trace.base_time_ns = 1775078550000000000;
  b.trace.recorded = {.record_shapes = true,
                      .profile_memory = true,
                      .with_stack = true,
                      .with_flops = true,
                      .with_modules = true};
  b.trace.metadata = {{"host_name", "\"box\""}, {"profiler_ns_per_event", "41.5"}};
  const Json d = written(b.trace);
  EXPECT_EQ(keys(d),
            (Names{"schemaVersion", "deviceProperties", "record_shapes", "profile_memory",
                   "with_stack", "with_flops", "with_modules", "host_name", "profiler_ns_per_event",
                   "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName"}));
  EXPECT_EQ(d["schemaVersion"], 1);
  EXPECT_EQ(d["deviceProperties"], Json::array());
  EXPECT_EQ(d["with_flops"], 1);
  EXPECT_EQ(d["host_name"], "box");
  EXPECT_EQ(d["profiler_ns_per_event"], 41.5);
  EXPECT_EQ(d["displayTimeUnit"], "ms");
  EXPECT_EQ(d["baseTimeNanoseconds"], 1775078550000000000);
  EXPECT_EQ(d["traceName"], "out/trace.json");
  // Fields that were not recorded have no key.
  EXPECT_EQ(keys(written(TraceBuilder().trace)),
            (Names{"schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds",
                   "traceEvents", "traceName"}));
}

TEST(Schema, DeviceProperties) {
  TraceBuilder b;
  b.trace.devices.push_back({.id = 0,
                             .name = "A \"CPU\"",
                             .total_global_mem_bytes = 1LL << 36,
                             .compute_major = 1,
                             .compute_minor = 2,
                             .max_threads_per_block = 3,
                             .max_threads_per_multiprocessor = 4,
                             .regs_per_block = 5,
                             .warp_size = 6,
                             .shared_mem_per_block_bytes = 7,
                             .num_sms = 8,
                             .regs_per_multiprocessor = 9,
                             .shared_mem_per_block_optin_bytes = 10,
                             .shared_mem_per_multiprocessor_bytes = 11});
  b.trace.devices.push_back({.id = 1});
  const Json expected = {{"id", 0},
                         {"name", "A \"CPU\""},
                         {"totalGlobalMem", 1LL << 36},
                         {"computeMajor", 1},
                         {"computeMinor", 2},
                         {"maxThreadsPerBlock", 3},
                         {"maxThreadsPerMultiprocessor", 4},
                         {"regsPerBlock", 5},
                         {"warpSize", 6},
                         {"sharedMemPerBlock", 7},
                         {"numSms", 8},
                         {"regsPerMultiprocessor", 9},
                         {"sharedMemPerBlockOptin", 10},
                         {"sharedMemPerMultiprocessor", 11}};
  const Json d = written(b.trace);
  ASSERT_EQ(d["deviceProperties"].size(), 2U);
  EXPECT_EQ(d["deviceProperties"][0].dump(), expected.dump());
  EXPECT_EQ(d["deviceProperties"][1]["id"], 1);
}

TEST(Schema, CpuOp) {
  TraceBuilder b;
  b.op("aten::addmm", 1234567, 2234568, 4712);
  b.inputs({tensor({128}), tensor({5, 128}, "c10::BFloat16"),
            tensor_list({tensor({3}), tensor({4})}), scalar("1"), scalar("False", "")});
  b.last_args().sequence_number = 5;
  b.last_args().stack = b.trace.strings.intern("model.py(3): forward;main.py(9): <module>");
  b.last_args().module_hierarchy = b.trace.strings.intern("mlp.gate");
  b.last_args().fused_ops = b.trace.strings.intern("aten::mm, aten::add");
  b.last_args().overload_name = b.trace.strings.intern("out");
  b.last_args().is_async = true;
  EXPECT_HAS(chrome_trace_json(b.trace, "t"), "\"ts\": 1234.567, \"dur\": 1000.001,");
  const Json e = only(written(b.trace), "X", "cpu_op");
  EXPECT_EQ(keys(e), kSpanKeys);
  EXPECT_EQ(e["name"], "aten::addmm");
  EXPECT_EQ(e["pid"], kHostPid);
  EXPECT_EQ(e["tid"], 4712);
  const Json expected = {{"External id", 1},
                         {"Record function id", 0},
                         {"Sequence number", 5},
                         {"Fwd thread id", 0},
                         {"Ev Idx", 1},
                         {"Overload name", "out"},
                         {"Async", true},
                         {"Call stack", "model.py(3): forward;main.py(9): <module>"},
                         {"Module Hierarchy", "mlp.gate"},
                         {"fused ops", "aten::mm, aten::add"},
                         {"Input Dims", Json::parse("[[128], [5, 128], [[3], [4]], [], []]")},
                         {"Input Strides", Json::parse("[[1], [128, 1], [[1], [1]], [], []]")},
                         {"Input type", {"float", "c10::BFloat16", "TensorList", "Scalar", ""}},
                         {"Concrete Inputs", {"", "", "", "1", "False"}}};
  EXPECT_EQ(e["args"].dump(), expected.dump());
}

TEST(Schema, OpArgsThatAreNotThereAreLeftOut) {
  TraceBuilder b;
  b.op("aten::t", 0, 1);
  b.event(Category::cpu_op, "bare", 0, 1);
  const Json d = written(b.trace);
  EXPECT_EQ(keys(only(d, "X", "cpu_op", "aten::t")["args"]),
            (Names{"External id", "Record function id", "Ev Idx"}));
  EXPECT_EQ(only(d, "X", "cpu_op", "bare")["args"].size(), 0U);
}

TEST(Schema, Annotations) {
  TraceBuilder b;
  b.annotation("ProfilerStep#2", 1000, 5000);
  b.event(Category::gpu_user_annotation, "ProfilerStep#2", 2000, 4000, 7).external_id = 1;
  const Json d = written(b.trace);
  const Json host = only(d, "X", "user_annotation");
  EXPECT_EQ(keys(host), kSpanKeys);
  EXPECT_EQ(host["name"], "ProfilerStep#2");
  EXPECT_EQ(keys(host["args"]), (Names{"External id", "Record function id", "Ev Idx"}));
  const Json device = only(d, "X", "gpu_user_annotation");
  EXPECT_EQ(device["args"].dump(), R"({"External id":1})");
  // One nanosecond earlier, two longer.
  EXPECT_HAS(chrome_trace_json(b.trace, "t"), "\"ts\": 1.999, \"dur\": 2.002,");
  EXPECT_EQ(device["pid"], 0);
  EXPECT_EQ(device["tid"], 7);
}

TEST(Schema, LaunchAndKernel) {
  TraceBuilder b;
  b.op("aten::mm", 0, 5000, 12);
  b.kernel("epi_avx512_gemm_f32_6x64_tn_bias", 1000, 4000, 1, 12);
  KernelArgs& args = b.trace.kernels.back();
  args.stream = 3;
  args.grid = {16, 4, 1};
  args.block = {6, 64, 1};
  args.bytes = 4096;
  args.flops = 1 << 20;
  args.threads = 2;
  args.fused_ops = b.trace.strings.intern("aten::mm, aten::relu");
  args.unfused_bytes = 5000;
  b.trace.runtime_calls.push_back({.cbid = 211});
  b.trace.events[1].args = 0;
  const Json d = written(b.trace);

  const Json launch = only(d, "X", "cuda_runtime");
  EXPECT_EQ(keys(launch), kSpanKeys);
  EXPECT_EQ(launch["name"], "epiLaunchKernel");
  EXPECT_EQ(launch["args"].dump(), R"({"External id":1,"cbid":211,"correlation":1})");

  const Json kernel = only(d, "X", "kernel");
  EXPECT_EQ(keys(kernel), kSpanKeys);
  const Json expected = {{"External id", 1},
                         {"queued", 0},
                         {"device", 0},
                         {"context", 0},
                         {"stream", 3},
                         {"correlation", 1},
                         {"registers per thread", 0},
                         {"shared memory", 0},
                         {"grid", {16, 4, 1}},
                         {"block", {6, 64, 1}},
                         {"bytes", 4096},
                         {"flops", 1 << 20},
                         {"threads", 2},
                         {"fused ops", "aten::mm, aten::relu"},
                         {"unfused bytes", 5000}};
  EXPECT_EQ(kernel["args"].dump(), expected.dump());
  EXPECT_EQ(kernel["ts"], launch["ts"]);
  EXPECT_EQ(kernel["dur"], launch["dur"]);

  const Json start = only(d, "s", "ac2g");
  EXPECT_EQ(keys(start), (Names{"ph", "id", "pid", "tid", "ts", "cat", "name"}));
  EXPECT_EQ(start["id"], 1);
  EXPECT_EQ(start["name"], "ac2g");
  EXPECT_EQ(start["pid"], kHostPid);
  EXPECT_EQ(start["tid"], 12);
  const Json finish = only(d, "f", "ac2g");
  EXPECT_EQ(keys(finish), (Names{"ph", "id", "pid", "tid", "ts", "cat", "name", "bp"}));
  EXPECT_EQ(finish["bp"], "e");
  EXPECT_EQ(finish["pid"], 0);
  EXPECT_EQ(finish["ts"], kernel["ts"]);
}

TEST(Schema, KernelOfAGpu) {
  TraceBuilder b;
  b.kernel("kernel", 0, 10, 0);
  KernelArgs& args = b.trace.kernels.back();
  args.registers_per_thread = 128;
  args.shared_memory_bytes = 49152;
  args.blocks_per_sm = 0.007576;
  args.warps_per_sm = 1.5;
  args.est_occupancy_pct = 12;
  args.graph_id = 0;
  args.graph_node_id = 4;
  const Json kernel = only(written(b.trace), "X", "kernel");
  EXPECT_EQ(kernel["name"], "Kernel");  // Kineto's way with that name
  const Json expected = {{"queued", 0},
                         {"device", 0},
                         {"context", 0},
                         {"stream", 0},
                         {"correlation", 1},
                         {"registers per thread", 128},
                         {"shared memory", 49152},
                         {"blocks per SM", 0.007576},
                         {"warps per SM", 1.5},
                         {"grid", {1, 1, 1}},
                         {"block", {1, 1, 1}},
                         {"est. achieved occupancy %", 12},
                         {"graph id", 0},
                         {"graph node id", 4}};
  EXPECT_EQ(kernel["args"].dump(), expected.dump());  // no External id: nothing launched it
}

TEST(Schema, Copies) {
  TraceBuilder b;
  Event& copy = b.event(Category::gpu_memcpy, "Memcpy HtoD (Pageable -> Device)", 0, 500, 7);
  copy.correlation = 9;
  copy.args = 0;
  Event& fill = b.event(Category::gpu_memset, "Memset (Device)", 10, 10, 7);
  fill.args = 0;
  b.trace.kernels.push_back({.stream = 7, .bytes = 1000});
  const Json d = written(b.trace);
  EXPECT_EQ(only(d, "X", "gpu_memcpy")["args"].dump(),
            R"({"device":0,"context":0,"stream":7,"correlation":9,"bytes":1000,)"
            R"j("memory bandwidth (GB/s)":2})j");
  // No bandwidth without a duration.
  EXPECT_EQ(keys(only(d, "X", "gpu_memset")["args"]),
            (Names{"device", "context", "stream", "correlation", "bytes"}));
}

TEST(Schema, PythonFramesOverheadAndShares) {
  TraceBuilder b;
  b.trace.python = {{.id = 1}, {.id = 2, .parent_id = 1, .module_id = 0, .ev_idx = 3}};
  b.event(Category::python_function, "<built-in method>", 0, 10).args = 0;
  b.event(Category::python_function, "nn.Module: Linear_0", 1, 9).args = 1;
  b.event(Category::overhead, "Buffer Flush", 0, 5, 0).pid = -1;
  Event& share = b.event(Category::cpu_kernel_share, "gemm", 2, 3, 99);
  share.correlation = 5;
  share.external_id = 4;
  const Json d = written(b.trace);
  EXPECT_EQ(only(d, "X", "python_function", "<built-in method>")["args"].dump(),
            R"({"Python parent id":null,"Python id":1})");
  EXPECT_EQ(only(d, "X", "python_function", "nn.Module: Linear_0")["args"].dump(),
            R"({"Python parent id":1,"Python id":2,"Python module id":0,"Ev Idx":3})");
  EXPECT_EQ(only(d, "X", "overhead")["pid"], -1);
  EXPECT_EQ(only(d, "X", "cpu_kernel_share")["args"].dump(),
            R"({"External id":4,"correlation":5})");
}

TEST(Schema, Memory) {
  TraceBuilder b;
  MemoryEvent& m = b.memory(2500, -4096, DeviceType::cuda, 12);
  m.device_id = 1;
  m.addr = 0xffff'ffff'0000'0000;  // above 2^63
  m.total_allocated = 5435638784;
  m.total_reserved = 12782141440;
  m.ev_idx = 77;
  b.memory(2600, 64).out_of_memory = true;
  const Json d = written(b.trace);
  const Json e = only(d, "i", "cpu_instant_event", "[memory]");
  EXPECT_EQ(keys(e), (Names{"ph", "cat", "s", "name", "pid", "tid", "ts", "args"}));
  EXPECT_EQ(e["s"], "t");
  EXPECT_EQ(e["pid"], kHostPid);
  EXPECT_EQ(e["tid"], 12);
  EXPECT_EQ(e["ts"], 2.5);
  const Json expected = {{"Ev Idx", 77},
                         {"Device Type", 1},
                         {"Device Id", 1},
                         {"Addr", 0xffff'ffff'0000'0000},
                         {"Bytes", -4096},
                         {"Total Allocated", 5435638784},
                         {"Total Reserved", 12782141440}};
  EXPECT_EQ(e["args"].dump(), expected.dump());
  EXPECT_EQ(keys(only(d, "i", "cpu_instant_event", "[OutOfMemory]")["args"]),
            (Names{"Device Type", "Device Id", "Bytes", "Total Allocated", "Total Reserved"}));
}

TEST(Schema, ForwardBackwardArrows) {
  TraceBuilder b;
  b.trace.flows.push_back({1, {1000, 12, kHostPid}, {9000, 13, kHostPid}});
  const Json d = written(b.trace);
  EXPECT_EQ(only(d, "s", "fwdbwd").dump(),
            R"({"ph":"s","id":1,"pid":4711,"tid":12,"ts":1.0,"cat":"fwdbwd","name":"fwdbwd"})");
  EXPECT_EQ(
      only(d, "f", "fwdbwd").dump(),
      R"({"ph":"f","id":1,"pid":4711,"tid":13,"ts":9.0,"cat":"fwdbwd","name":"fwdbwd","bp":"e"})");
}

TEST(Schema, NamesOfProcessesAndThreads) {
  TraceBuilder b;
  b.trace.start_ns = 5000;
  b.trace.processes.push_back(
      {0, "epilogue", "CPU 0 (synchronous: the launch is the call)", 5000000});
  b.trace.threads.push_back({0, 0, "stream 0 ", 3});
  const Json d = written(b.trace);
  const auto check = [&](std::string_view name, std::string_view key, const Json& value) {
    std::vector<Json> found;
    for (const Json& e : select(d, "M", "", name))
      if (e["pid"] == 0) found.push_back(e);
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_EQ(keys(found[0]), (Names{"name", "ph", "ts", "pid", "tid", "args"}));
    EXPECT_EQ(found[0]["ts"], 5.0);
    EXPECT_EQ(found[0]["args"], (Json{{std::string(key), value}}));
  };
  check("process_name", "name", "epilogue");
  check("process_labels", "labels", "CPU 0 (synchronous: the launch is the call)");
  check("process_sort_index", "sort_index", 5000000);
  check("thread_name", "name", "stream 0 ");
  check("thread_sort_index", "sort_index", 3);
}

TEST(Schema, SpanAndWindow) {
  TraceBuilder b;
  b.trace.start_ns = 1000;
  b.trace.end_ns = 9000;
  b.op("aten::t", 2000, 3000);
  b.op("aten::t", 4000, 5000);
  const Json d = written(b.trace);
  EXPECT_EQ(only(d, "X", "Trace").dump(),
            R"({"ph":"X","cat":"Trace","ts":1.0,"dur":8.0,"pid":"Spans","tid":"PyTorch Profiler",)"
            R"j("name":"PyTorch Profiler (0)","args":{"Op count":2}})j");
  EXPECT_EQ(only(d, "M", "", "process_sort_index").dump(),
            R"({"name":"process_sort_index","ph":"M","ts":1.0,"pid":"Spans","tid":0,)"
            R"("args":{"sort_index":536870912}})");
  EXPECT_EQ(only(d, "i", "", "Iteration Start: PyTorch Profiler").dump(),
            R"({"name":"Iteration Start: PyTorch Profiler","ph":"i","s":"g","pid":"Traces",)"
            R"("tid":"Trace PyTorch Profiler","ts":1.0})");
  EXPECT_EQ(d["traceEvents"].back().dump(),
            R"({"name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":9.0})");
}

}  // namespace epilogue::trace::writer_schema_test
