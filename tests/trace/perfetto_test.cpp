// SPDX-License-Identifier: Apache-2.0
// Traces of Perfetto, written here byte by byte.
#include "epilogue/trace/file.h"
#include "support/test.h"
#include "trace/perfetto/perfetto_source.h"

namespace epilogue::trace::perfetto_test {

std::string varint(uint64_t value) {
  std::string out;
  do {
    out += static_cast<char>((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    value >>= 7;
  } while (value != 0);
  return out;
}
std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
std::string text(uint32_t field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

constexpr uint64_t kTrack = 5;
constexpr int64_t kBase = 1'000'000'000;

std::string packet(const std::string& fields, uint64_t sequence = 1) {
  return text(1, fields + number(10, sequence));
}
std::string track(uint64_t uuid = kTrack) {
  return packet(
      text(60, number(1, uuid) + text(4, number(1, 11) + number(2, 22) + text(5, "main"))));
}
std::string begin(int64_t at, const std::string& more, uint64_t uuid = kTrack) {
  return packet(number(8, static_cast<uint64_t>(kBase + at)) +
                text(11, number(9, 1) + number(11, uuid) + more));
}
std::string end(int64_t at, uint64_t uuid = kTrack) {
  return packet(number(8, static_cast<uint64_t>(kBase + at)) +
                text(11, number(9, 2) + number(11, uuid)));
}
std::string op(std::string_view name) { return text(22, "cpu_op") + text(23, name); }

Trace read(const std::string& bytes) { return read_trace_text(bytes, "made").value(); }
std::string why_not(const std::string& bytes) {
  const Result<Trace> trace = read_trace_text(bytes, "made");
  return trace ? "" : trace.failure().message;
}

// "a 0+10, b 2+3", by start.
std::string shown(const Trace& trace) {
  std::vector<const Event*> events;
  for (const Event& e : trace.events) events.push_back(&e);
  std::ranges::stable_sort(events, {},
                           [](const Event* e) { return std::pair(e->ts_ns, -e->dur_ns); });
  std::string out;
  for (const Event* e : events)
    out += (out.empty() ? "" : ", ") + std::string(trace.name(*e)) + " " +
           std::to_string(e->ts_ns - events.front()->ts_ns) + "+" + std::to_string(e->dur_ns);
  return out;
}

TEST(Perfetto, SlicesEndAsTheyNest) {
  const Trace trace = read(track() + begin(0, op("a")) + begin(2, op("b")) + end(5) + end(10) +
                           begin(10, op("c")) + begin(12, op("z")) + end(12) + end(15));
  EXPECT_EQ(shown(trace), "a 0+10, b 2+3, c 10+5, z 12+0");
  EXPECT_EQ(trace.events.front().category, Category::cpu_op);
  EXPECT_EQ(trace.events.front().pid, 11);
  EXPECT_EQ(trace.events.front().tid, 22);
  EXPECT_EQ(trace.import.skipped_events, 0);
}

TEST(Perfetto, PytorchWritesRunsOfBeginningsAndTheirEnds) {
  // Slices that touch, and one without length: sorted by time alone these could be others.
  EXPECT_EQ(shown(read(track() + begin(0, op("a")) + begin(5, op("b")) + begin(7, op("z")) +
                       begin(10, op("c")) + end(5) + end(10) + end(7) + end(12))),
            "a 0+5, b 5+5, z 7+0, c 10+2");
}

TEST(Perfetto, OtherOrdersAreSorted) {
  EXPECT_EQ(shown(read(track() + end(10) + begin(0, op("a")) + end(5) + begin(2, op("b")))),
            "a 0+10, b 2+3");
}

TEST(Perfetto, TracksAndSequencesAreApart) {
  const std::string names =
      packet(number(13, 1) + text(12, text(2, number(1, 1) + text(2, "one"))), 1) +
      packet(number(13, 1) + text(12, text(2, number(1, 1) + text(2, "two"))), 2);
  const auto slice = [](uint64_t sequence, int64_t at, uint64_t uuid) {
    return packet(number(8, static_cast<uint64_t>(at)) +
                      text(11, number(9, 1) + number(11, uuid) + number(10, 1)),
                  sequence) +
           packet(number(8, static_cast<uint64_t>(at + 10)) +
                      text(11, number(9, 2) + number(11, uuid)),
                  sequence);
  };
  // A cleared state has new numbers.
  const std::string again =
      packet(number(13, 1) + text(12, text(2, number(1, 1) + text(2, "new"))), 1);
  EXPECT_EQ(shown(read(track(5) + track(6) + names + slice(1, 100, 5) + slice(2, 101, 6) + again +
                       slice(1, 120, 5))),
            "one 0+10, two 1+10, new 20+10");
}

TEST(Perfetto, AnnotationsAreArgs) {
  const auto list = [](std::vector<std::string> values) {
    std::string out;
    for (const std::string& value : values) out += text(12, value);
    return out;
  };
  const std::string args =
      text(4, text(10, "External id") + number(4, 77)) +
      text(4, text(10, "Input Dims") +
                  list({list({number(4, 4), number(4, 8)}), "", list({number(4, 8)})})) +
      text(4, text(10, "Input type") +
                  list({text(6, "float"), text(6, "Scalar"), text(6, "double")})) +
      text(4, text(10, "Concrete Inputs") + list({text(6, ""), text(6, "\"3\""), text(6, "")})) +
      text(4, text(10, "dict") + text(11, text(10, "key") + number(2, 1)));
  const Trace trace = read(track() + begin(0, op("aten::mm") + args) + end(9));
  ASSERT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.events[0].external_id, 77);
  const OpArgs& found = test::found(trace.op_args(trace.events[0]));
  const std::span<const OpInput> inputs = trace.inputs[found.inputs];
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_EQ(inputs[0].dims, (std::vector<int64_t>{4, 8}));
  EXPECT_TRUE(inputs[1].dims.empty());
  EXPECT_EQ(inputs[1].concrete, "\"3\"");
  EXPECT_EQ(inputs[2].type, "double");
  EXPECT_TRUE(trace.import.repairs.empty());
}

TEST(Perfetto, StagesOfAGpuAreKernels) {
  const auto sizes = [](uint64_t x, uint64_t y, uint64_t z) {
    return number(1, x) + number(2, y) + number(3, z);
  };
  const std::string interned = packet(
      number(13, 1) + text(12, text(2, number(1, 3) + text(2, "gemm")) +
                                   text(24, number(1, 1) + text(2, "Kernel")) +
                                   text(24, number(1, 2) + text(2, "Memcpy")) +
                                   text(1001, number(1, 1) + text(2, "registers_per_thread"))));
  const auto stage = [&](uint64_t kind, const std::string& more) {
    return packet(number(8, 5000) + text(53, number(2, 700) + number(11, 3) + number(13, 100) +
                                                 number(14, kind) + more));
  };
  const auto extra = [](std::string_view key, std::string_view value) {
    return text(6, text(1, key) + text(2, value));
  };
  const Trace trace =
      read(interned +
           stage(1, number(20, 3) +
                        text(21, text(1, sizes(8, 2, 1)) + text(2, sizes(128, 1, 1)) +
                                     text(3, number(1, 1) + number(4, 122))) +
                        extra("stream id", "7") + extra("correlation", "41") +
                        extra("Collective name", "allreduce")) +
           stage(2, extra("stream id", "9") + extra("bytes", "4096")));
  ASSERT_EQ(trace.events.size(), 2U);
  const Event& kernel = trace.events[0];
  EXPECT_EQ(kernel.category, Category::kernel);
  EXPECT_EQ(trace.name(kernel), "gemm");
  EXPECT_EQ(kernel.dur_ns, 700);
  EXPECT_EQ(kernel.pid, 3);
  EXPECT_EQ(kernel.correlation, 41);
  const KernelArgs& args = test::found(trace.kernel_args(kernel));
  EXPECT_EQ(args.stream, 7);
  EXPECT_EQ(args.grid, (std::array<int64_t, 3>{8, 2, 1}));
  EXPECT_EQ(args.block, (std::array<int64_t, 3>{128, 1, 1}));
  EXPECT_EQ(args.registers_per_thread, 122);
  EXPECT_EQ(trace.events[1].category, Category::gpu_memcpy);
  EXPECT_EQ(trace.kernel_args(trace.events[1])->bytes, 4096);
}

TEST(Perfetto, WhatIsDamagedIsOneError) {
  const std::string whole =
      track() + begin(0, op("a") + text(4, text(10, "k") + number(4, 1))) + end(9);
  EXPECT_EQ(why_not(whole), "");
  const std::vector<size_t> packets = {track().size(), whole.size() - end(9).size()};
  for (size_t size = 4; size < whole.size(); ++size) {
    const bool is_between = std::ranges::find(packets, size) != packets.end();
    const std::string error = why_not(whole.substr(0, size));
    if (is_between) continue;  // whole packets: nothing says that more were to come
    EXPECT_HAS(error,
               "made: expected a Perfetto trace with slices, got one that cannot be read at byte")
        << size << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
  EXPECT_HAS(why_not(whole + "\x0a" + std::string(9, '\xFF') + "\x01"), "ends early");
  EXPECT_HAS(why_not(whole + text(1, "\x0b")), "damaged") << "a group";
  EXPECT_HAS(why_not(track()), "without slices");
  const std::string own_clock = packet(number(8, 1) + number(58, 64) + text(11, number(9, 1)));
  EXPECT_HAS(why_not(own_clock), "a clock of one sequence");
  const std::string late = packet(number(8, UINT64_MAX) + text(11, number(9, 1)));
  EXPECT_HAS(why_not(late), "later than the year 2262");
  // Annotations are looked at late.
  EXPECT_HAS(why_not(track() + begin(0, op("a") + text(4, "\x52\x7f")) + end(9)),
             "a damaged slice");
}

TEST(Perfetto, DeepValuesEnd) {
  std::string value = number(4, 1);
  for (int i = 0; i < 2000; ++i) value = text(12, value);
  const Trace trace =
      read(track() + begin(0, op("a") + text(4, text(10, "deep") + value)) + end(9));
  EXPECT_EQ(shown(trace), "a 0+9");
}

TEST(Perfetto, JsonThatBeginsWithALineBreakIsJson) {
  for (const char* json : {"\n{\"traceEvents\": []}", "\n[{\"ph\":\"X\"}]",
                           "\n\n  {\n\"schemaVersion\": 1}", "\n", "\n[ ]"})
    EXPECT_FALSE(is_perfetto(json)) << json;
  EXPECT_TRUE(is_perfetto(track()));
  EXPECT_FALSE(is_perfetto("\x0a\x03\x07zz"));  // no type of field
  EXPECT_FALSE(is_perfetto(""));
}

}  // namespace epilogue::trace::perfetto_test
