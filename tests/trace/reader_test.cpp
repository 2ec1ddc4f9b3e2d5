// SPDX-License-Identifier: Apache-2.0
// Small documents with what must come out of them.
#include "epilogue/trace/file.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::reader_test {

Trace read(const std::string& text, const ReadOptions& options = {}) {
  return read_trace_text(text, "t.json", options).value();
}
Trace read_events(const std::string& events, const ReadOptions& options = {}) {
  return read("{\"traceEvents\": [" + events + "]}", options);
}
std::string span(const std::string& cat, const std::string& name, const std::string& args,
                 const std::string& rest = R"("pid": 1, "tid": 2, "ts": 10, "dur": 5)") {
  return R"({"ph": "X", "cat": ")" + cat + R"(", "name": ")" + name + "\", " + rest +
         ", \"args\": {" + args + "}}";
}

TEST(Reader, ReadsAnOpWithItsShapes) {
  const Trace t = read_events(
      span("cpu_op", "aten::addmm",
           R"("External id": 7, "Record function id": 3, "Sequence number": 11, "Fwd thread id": 0,
         "Ev Idx": 5, "Input Dims": [[8], [4, 2], [], [[2, 3], [4]]],
         "Input Strides": [[1], [2, 1], [], [[3, 1], [1]]],
         "Input type": ["float", "c10::BFloat16", "Scalar", "TensorList"],
         "Concrete Inputs": ["", "", "1", ""])"));
  ASSERT_EQ(t.events.size(), 1U);
  const Event& e = t.events[0];
  EXPECT_EQ(e.category, Category::cpu_op);
  EXPECT_EQ(e.ts_ns, 10'000);
  EXPECT_EQ(e.dur_ns, 5'000);
  EXPECT_EQ(e.external_id, 7);
  const OpArgs& args = *t.op_args(e);
  EXPECT_EQ(args.sequence_number, 11);
  EXPECT_EQ(args.ev_idx, 5);
  const auto inputs = t.inputs[args.inputs];
  ASSERT_EQ(inputs.size(), 4U);
  EXPECT_EQ(inputs[1].dims, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(inputs[1].strides, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(inputs[1].type, "c10::BFloat16");
  EXPECT_EQ(inputs[2].concrete, "1");
  ASSERT_TRUE(inputs[3].is_list);
  EXPECT_EQ(inputs[3].list[0].dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(inputs[3].list[1].strides, (std::vector<int64_t>{1}));
  EXPECT_TRUE(t.recorded.record_shapes);
}

TEST(Reader, EqualShapesAreStoredOnce) {
  const std::string op = span("cpu_op", "a", R"("Input Dims": [[2, 3]], "Input type": ["float"])");
  const Trace t = read_events(op + "," + op);
  EXPECT_EQ(t.inputs.size(), 1U);
  EXPECT_EQ(t.ops[0].inputs, t.ops[1].inputs);
}

TEST(Reader, KeysMayComeInAnyOrder) {
  const Trace t = read(
      R"({"traceEvents": [{"args": {"stream": 7, "correlation": 9, "grid": [4, 2, 1],
          "block": [64, 1, 1], "External id": 3}, "dur": 2, "ts": 1, "name": "k", "tid": 7,
          "pid": 0, "cat": "kernel", "ph": "X"}],
          "baseTimeNanoseconds": 1000, "schemaVersion": 1})");
  ASSERT_EQ(t.events.size(), 1U);
  EXPECT_EQ(t.events[0].correlation, 9);
  EXPECT_EQ(t.kernel_args(t.events[0])->grid, (std::array<int64_t, 3>{4, 2, 1}));
  EXPECT_EQ(t.base_time_ns, 1000);
}

TEST(Reader, KnowsTheNamesOf2021) {
  const Trace t =
      read("[" + span("Operator", "aten::mm", R"("External id": 2, "Input dims": [[2]])") + "," +
           span("Operator", "ProfilerStep#1", "") + "," +
           span("Runtime", "cudaLaunchKernel", R"("correlation": 4, "external id": 2)") + "," +
           span("Kernel", "k", R"("correlation": 4, "external id": 2)",
                R"("pid": 0, "tid": "stream 7", "ts": 1, "dur": 1)") +
           "]");
  EXPECT_TRUE(t.import.is_bare_array);
  ASSERT_EQ(t.events.size(), 4U);
  EXPECT_EQ(t.events[0].category, Category::cpu_op);
  EXPECT_EQ(t.events[1].category, Category::user_annotation);
  EXPECT_EQ(t.events[2].category, Category::cuda_runtime);
  EXPECT_EQ(t.events[2].external_id, 2);
  EXPECT_EQ(t.events[3].category, Category::kernel);
  EXPECT_EQ(t.events[3].tid, 7);
  EXPECT_EQ(t.kernels[0].stream, 7);  // from the lane: the args do not say
  EXPECT_FALSE(t.kernels[0].has_grid);
  EXPECT_EQ(t.kernels[0].registers_per_thread, -1);
}

TEST(Reader, PythonFramesAreLeftOutUnlessAskedFor) {
  const std::string frame =
      span("python_function", "f.py(1): f", R"("Python id": 4, "Python parent id": null)");
  const Trace without = read_events(frame);
  EXPECT_TRUE(without.events.empty());
  EXPECT_EQ(without.import.python_functions_left_out, 1);
  EXPECT_TRUE(without.recorded.with_stack);
  const Trace with = read_events(frame, {.python_frames = PythonFrames::events});
  ASSERT_EQ(with.python.size(), 1U);
  EXPECT_EQ(with.python[0].id, 4);
  EXPECT_EQ(with.python[0].parent_id, -1);
}

TEST(Reader, PythonFramesBesideTheEventsKeepNameTimeAndThread) {
  const std::string good = span("python_function", R"(a\\b.py(1): f)", R"("Python id": 4)");
  const std::string literal = span("python_function", R"(C:\qt.py(2): g)", "",
                                   R"("pid": 3, "tid": 4, "ts": 1.5, "dur": 0)");
  const std::string no_time = span("python_function", "lost", "", R"("pid": 1, "tid": 2, "ts": 1)");
  const Trace t =
      read_events(good + "," + literal + "," + no_time, {.python_frames = PythonFrames::beside});
  EXPECT_TRUE(t.events.empty());
  EXPECT_TRUE(t.python.empty());
  EXPECT_EQ(t.import.python_functions_left_out, 3);
  EXPECT_TRUE(t.import.repairs.empty()) << "none of the events that notes count";
  ASSERT_EQ(t.frames.size(), 2U);
  EXPECT_EQ(t.strings[t.frames[0].name], R"(a\b.py(1): f)");
  EXPECT_EQ(t.frames[0].ts_ns, 10'000);
  EXPECT_EQ(t.frames[0].end_ns(), 15'000);
  EXPECT_EQ(t.frames[0].pid, 1);
  EXPECT_EQ(t.frames[0].tid, 2);
  EXPECT_EQ(t.strings[t.frames[1].name], R"(C:\qt.py(2): g)");
  EXPECT_EQ(t.frames[1].ts_ns, 1'500);
  EXPECT_EQ(t.frames[1].dur_ns, 0);
}

TEST(Reader, ReadsMemoryEventsWithAndWithoutCategory) {
  const std::string args = R"("Addr": 18446744073709551600, "Bytes": -512, "Total Allocated": 5,
      "Total Reserved": 6, "Device Type": 1, "Device Id": 0)";
  const std::string head =
      R"({"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 3)";
  const Trace t = read_events(head + R"(, "cat": "cpu_instant_event", "args": {)" + args + "}}," +
                              head + R"(, "args": {)" + args + "}}");
  ASSERT_EQ(t.memory.size(), 2U);
  EXPECT_EQ(t.memory[0].bytes, -512);
  EXPECT_EQ(t.memory[0].addr, 18446744073709551600U);
  EXPECT_EQ(t.memory[0].device_type, DeviceType::cuda);
  EXPECT_EQ(t.memory[1].ts_ns, 3'000);
  EXPECT_TRUE(t.recorded.profile_memory);
}

TEST(Reader, JoinsForwardAndBackwardArrows) {
  const auto flow = [](const char* ph, int id, int ts, const char* cat) {
    return std::string(R"({"ph": ")") + ph + R"(", "id": )" + std::to_string(id) +
           R"(, "pid": 1, "tid": 2, "ts": )" + std::to_string(ts) + R"(, "cat": ")" + cat +
           R"(", "name": "x"})";
  };
  const Trace t = read_events(flow("s", 1, 10, "fwdbwd") + "," + flow("s", 1, 11, "ac2g") + "," +
                              flow("s", 2, 12, "fwdbwd") + "," + flow("f", 1, 20, "fwdbwd"));
  ASSERT_EQ(t.flows.size(), 1U);  // 2 has no end; ac2g repeats the correlations
  EXPECT_EQ(t.flows[0].start.ts_ns, 10'000);
  EXPECT_EQ(t.flows[0].end.ts_ns, 20'000);
}

TEST(Reader, KeepsArgsWithoutAFieldAsJson) {
  const Trace t = read_events(
      span("cpu_op", "record_param_comms", R"("External id": 1, "Collective name": "allreduce",
           "Process Group Ranks": [0, 1])") +
      "," + span("kernel", "k", R"("stream": 7, "occupancy": {"limitingFactors": ["regs"]})"));
  EXPECT_EQ(t.strings[t.ops[0].other_args],
            R"({"Collective name": "allreduce", "Process Group Ranks": [0, 1]})");
  EXPECT_EQ(t.strings[t.kernels[0].other_args], R"({"occupancy": {"limitingFactors": ["regs"]}})");
}

TEST(Reader, SkipsAreCountedByReason) {
  const Trace t = read_events(
      R"({"ph": "X", "cat": "cpu_op", "name": "no dur", "ts": 1},)"
      R"({"ph": "X", "cat": "cpu_op", "name": "bad ts", "ts": "soon", "dur": 1},)"
      R"({"ph": "X", "cat": "cpu_op", "name": "far", "ts": 1e300, "dur": 1},)"
      R"({"ph": "B", "name": "begin", "ts": 1}, 17, "text", [1, 2],)"
      R"({"ph": "X", "cat": "cpu_op", "name": "good", "pid": 1, "tid": 1, "ts": 1, "dur": 1})");
  ASSERT_EQ(t.events.size(), 1U);
  EXPECT_EQ(t.import.events, 1);
  EXPECT_EQ(t.import.skipped_events, 7);
  ASSERT_EQ(t.import.skips.size(), 5U);
  EXPECT_EQ(t.import.skips[0].id, "not-an-object");
  EXPECT_EQ(t.import.skips[0].count, 3);
  EXPECT_EQ(t.import.skips[1].id, "missing-field");
  EXPECT_EQ(t.import.skips[1].first_offset, 17);  // behind {"traceEvents": [
  EXPECT_EQ(t.import.skips[4].id, "unsupported-phase");
}

TEST(Reader, ANegativeDurationIsEmptyAndDoubtful) {
  const Trace t =
      read_events(span("kernel", "k", "", R"("pid": 0, "tid": 7, "ts": 10, "dur": -100)") + "," +
                  span("kernel", "k", "", R"("pid": 0, "tid": 7, "ts": 20, "dur": 5)"));
  ASSERT_EQ(t.events.size(), 2U);
  EXPECT_EQ(t.events[0].dur_ns, 0);
  ASSERT_EQ(t.import.repairs.size(), 1U);
  EXPECT_EQ(t.import.repairs[0].id, "negative-durations");
  EXPECT_EQ(t.import.repairs[0].count, 1);
  EXPECT_TRUE(t.import.repairs[0].is_doubtful);
}

TEST(Reader, TextBehindTheDocumentIsSaidOnce) {
  const std::string events = R"({"traceEvents": [)" + span("cpu_op", "a", "") + "]}";
  for (const std::string& tail :
       {std::string(" xxxx"), std::string(1, '\0'), " " + std::string(3'000'000, 'x') + " y"}) {
    const Trace t = read(events + tail);
    EXPECT_EQ(t.events.size(), 1U);
    ASSERT_EQ(t.import.repairs.size(), 1U);
    EXPECT_EQ(t.import.repairs[0].id, "trailing-text");
    EXPECT_EQ(t.import.repairs[0].count, 1);
    EXPECT_EQ(t.import.repairs[0].first_offset,
              static_cast<int64_t>(events.size() + (tail[0] == ' ' ? 1 : 0)));
    EXPECT_TRUE(t.import.repairs[0].is_doubtful);
    EXPECT_FALSE(t.import.is_truncated);
  }
  EXPECT_TRUE(read(events + " \r\n\t\n").import.repairs.empty());
}

TEST(Reader, DecodesNames) {
  const Trace t = read_events(span("cpu_op", R"(a\"b\u00e9\ud83d\ude00\n)", "") + "," +
                              span("cpu_op", R"(C:\new\dir)", ""));
  EXPECT_EQ(t.name(t.events[0]), "a\"b\xC3\xA9\xF0\x9F\x98\x80\n");
  EXPECT_EQ(t.name(t.events[1]), "C:\\new\\dir");
}

TEST(Reader, SaysWhyAFileIsNoTrace) {
  const auto code = [](std::string_view text) -> std::optional<FailureCode> {
    const auto read = read_trace_text(text, "x");
    if (read.ok()) return {};
    return read.failure().code;
  };
  EXPECT_EQ(code(""), FailureCode::empty);
  EXPECT_EQ(code(" \n"), FailureCode::empty);
  EXPECT_EQ(code("<html>"), FailureCode::not_json);
  EXPECT_EQ(code("hello"), FailureCode::not_json);
  EXPECT_EQ(code("{\"a\": 1}"), FailureCode::not_a_trace);
  EXPECT_EQ(code("{\"traceEvents\": 3}"), FailureCode::not_a_trace);
  EXPECT_EQ(read_trace_text("{\"traceEvents\": {}, \"a\": 1}", "x").failure().message,
            "x: expected a Chrome trace, got JSON whose traceEvents is no list of events");
  EXPECT_EQ(code("[1, 2]"), FailureCode::not_a_trace);
  EXPECT_EQ(code("[]"), std::nullopt);
  EXPECT_EQ(read_trace("/no/such/file.json").failure().code, FailureCode::cannot_open);
}

TEST(Reader, MetadataThatIsNoJsonIsKeptAsText) {
  using std::string_literals::operator""s;
  const Trace t = read("{\"driver\": N/A, \"traceEvents\": []}");
  ASSERT_EQ(t.metadata.size(), 1U);
  EXPECT_EQ(t.metadata[0].second, "\"N/A\"");
  const Trace nul = read("{\"nul\": 10.1\0x, \"traceEvents\": []}"s);
  ASSERT_EQ(nul.metadata.size(), 1U);
  EXPECT_EQ(nul.metadata[0].second, "\"10.1\\u0000x\"");
}

TEST(Reader, AKernelAtTimeZeroMayStretchTheRecordedSpanButNoEventLastsForWeeks) {
  const std::string weeks = R"("pid": 1, "tid": 2, "ts": 0, "dur": 1606910596297036)";
  const Trace t = read_events(span("Trace", "PyTorch Profiler (0)", "", weeks) + "," +
                              span("kernel", "k", "", weeks));
  EXPECT_EQ(t.end_ns, 1'606'910'596'297'036'000);
  EXPECT_EQ(t.span_name, "PyTorch Profiler");
  EXPECT_TRUE(t.events.empty());
  EXPECT_EQ(t.import.skips.at(0).id, "number-out-of-range");
}

// A trace with one of everything.
Trace full_trace() {
  testing::TraceBuilder b;
  b.annotation("ProfilerStep#2", 1'000, 90'000);
  b.op("aten::linear", 2'000, 40'003);
  b.inputs({testing::tensor({2, 3}), testing::scalar("1"), testing::tensor_list({})});
  b.last_args().sequence_number = 4;
  b.last_args().stack = b.trace.strings.intern("f.py(1): f;g.py(2): g");
  b.op("name \"quoted\"\n\xC3\xA9", 3'000, 4'000);
  b.kernel("sgemm", 5'000, 30'001, b.last_id());
  b.trace.kernels.back() = {.device = 0,
                            .context = 1,
                            .stream = 0,
                            .registers_per_thread = 32,
                            .shared_memory_bytes = 1024,
                            .blocks_per_sm = 0.5,
                            .warps_per_sm = 2,
                            .est_occupancy_pct = 12,
                            .grid = {3, 2, 1},
                            .block = {64, 1, 1},
                            .fused_ops = b.trace.strings.intern("aten::mm, aten::relu"),
                            .unfused_bytes = 4096};
  b.event(Category::gpu_user_annotation, "ProfilerStep#2", 5'000, 30'001, 0);
  b.memory(2'500, 4096);
  b.memory(2'600, -4096);
  b.trace.flows.push_back({.id = 1, .start = {2'000, 1, 4711}, .end = {3'000, 1, 4711}});
  b.trace.processes.push_back({4711, "epilogue", "CPU", 4711});
  b.trace.threads.push_back({4711, 1, "main", 1});
  b.trace.devices.push_back(
      {.id = 0, .name = "A CPU", .total_global_mem_bytes = 1 << 30, .warp_size = 1, .num_sms = 2});
  b.trace.recorded = {.record_shapes = true, .profile_memory = true, .with_flops = true};
  b.trace.metadata.emplace_back("epilogue_recorder", "{\"ops\": 2}");
  b.trace.base_time_ns = 1'767'189'312'000'000'000;
  b.trace.start_ns = 1'000;
  b.trace.end_ns = 95'000;
  b.trace.device_label = "KERNEL";
  return std::move(b.trace);
}

TEST(Reader, ReadsBackWhatTheWriterWrote) {
  const Trace wrote = full_trace();
  const std::string text = chrome_trace_json(wrote, "t.json");
  const Trace t = read(text);
  EXPECT_TRUE(t.import.skips.empty());
  EXPECT_TRUE(t.import.repairs.empty());
  EXPECT_EQ(t.events.size(), wrote.events.size());
  EXPECT_EQ(t.base_time_ns, wrote.base_time_ns);
  EXPECT_EQ(t.start_ns, wrote.start_ns);
  EXPECT_EQ(t.end_ns, wrote.end_ns);
  EXPECT_EQ(t.span_name, wrote.span_name);
  EXPECT_EQ(t.device_label, "KERNEL");
  EXPECT_EQ(t.metadata, wrote.metadata);
  EXPECT_EQ(t.inputs[0][2].is_list, true);
  // The writer shows everything the schema has: equal texts are equal traces.
  EXPECT_EQ(chrome_trace_json(t, "t.json"), text);
}

}  // namespace epilogue::trace::reader_test
