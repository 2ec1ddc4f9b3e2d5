// SPDX-License-Identifier: Apache-2.0
// Properties: any prefix and any damage of a small trace reads without a crash, and loses no more
// than it must.
#include "epilogue/trace/file.h"
#include "support/test.h"

namespace epilogue::trace::reader_robustness_test {

// Three events of different kinds between metadata, as Kineto lays them out.
std::string small_trace() {
  return R"({
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100", "numSms": 132
    }
  ],
  "record_shapes": 1,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1000,
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2,
    "ts": 10.125, "dur": 5.000,
    "args": {
      "External id": 1, "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "sgemm \"quoted\" \u00e9", "pid": 0, "tid": 7,
    "ts": 12.5, "dur": 1.25,
    "args": {
      "device": 0, "stream": 7, "correlation": 9, "grid": [1, 2, 3], "block": [4, 5, 6]
    }
  },
  {
    "ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "ts": 0, "args": {"name": "main"}
  }
  ],
  "traceName": "t.json"
}
)";
}

const std::string kFirst = "aten::mm";
const std::string kSecond = "sgemm \"quoted\" \xC3\xA9";

size_t end_of_event(const std::string& text, int index) {
  size_t at = 0;
  for (int i = 0; i <= index; ++i) at = text.find("\n    }\n  }", at) + 1;
  return at + std::string("    }\n  }").size();
}

TEST(ReaderRobustness, EveryPrefixKeepsTheEventsThatAreComplete) {
  const std::string text = small_trace();
  const size_t list = text.find("\"traceEvents\": [") + 16;
  const size_t first = end_of_event(text, 0);
  const size_t second = end_of_event(text, 1);
  for (size_t size = 0; size <= text.size(); ++size) {
    const auto read = read_trace_text(text.substr(0, size), "prefix");
    ASSERT_EQ(read.ok(), size >= list) << size;
    if (!read.ok()) continue;
    const Trace& t = read.value();
    ASSERT_EQ(t.events.size(), size_t{size >= first} + size_t{size >= second}) << size;
    if (size >= first) {
      ASSERT_EQ(t.name(t.events[0]), kFirst);
    }
    if (size >= second) {
      ASSERT_EQ(t.name(t.events[1]), kSecond);
    }
    ASSERT_LE(t.import.skipped_events, 1) << size;
    // Behind the last bracket there is nothing to miss.
    ASSERT_EQ(t.import.is_truncated, size < text.rfind('}') + 1) << size;
  }
}

TEST(ReaderRobustness, ADamagedByteLosesAtMostTheEventsThatTouchIt) {
  const std::string text = small_trace();
  const size_t list = text.find("\"traceEvents\": [") + 16;
  const size_t first = end_of_event(text, 0);
  const size_t second = end_of_event(text, 1);
  int read_all_the_same = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'"', '\\', '{', '}', ']', ',', ':', '\0', '\n', '\x80', 'x', '9'}) {
      std::string damaged = text;
      damaged[at] = c;
      const auto read = read_trace_text(damaged, "damaged");
      if (!read.ok() || at < list) continue;  // no crash is all that a damaged head promises
      ++read_all_the_same;
      const Trace& t = read.value();
      const auto has = [&](const std::string& name) {
        return std::any_of(t.events.begin(), t.events.end(),
                           [&](const Event& e) { return t.name(e) == name; });
      };
      // The comma between two events belongs to both.
      if (at > first + 3) {
        EXPECT_TRUE(has(kFirst)) << at << " '" << c << "'";
      }
      if (at < first || at > second + 3) {
        EXPECT_TRUE(has(kSecond)) << at << " '" << c << "'";
      }
    }
  }
  EXPECT_GT(read_all_the_same, 0);
}

TEST(ReaderRobustness, DeepNestingIsNoRecursion) {
  const std::string deep(1'000'000, '[');
  const std::string closed = deep + std::string(deep.size(), ']');
  for (const std::string& value : {deep, closed}) {
    const std::string event = R"({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1,
        "ts": 1, "dur": 1, "args": {"Input Dims": )" +
                              value + R"(, "odd": )" + value + "}}";
    const Trace t = read_trace_text("{\"traceEvents\": [" + event + "]}", "deep").value();
    EXPECT_EQ(t.import.events + t.import.skipped_events, 1);
  }
  EXPECT_FALSE(read_trace_text("{\"a\": " + closed + "}", "deep").ok());
  EXPECT_FALSE(read_trace_text(std::string(1'000'000, '{'), "deep").ok());
}

TEST(ReaderRobustness, TimesThatWouldOverflowAreSkipped) {
  const Trace t =
      read_trace_text(
          R"([{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 9223372036854775.807, "dur": 1},
          {"ph": "X", "cat": "cpu_op", "name": "b", "ts": 1, "dur": 9223372036854775},
          {"ph": "X", "cat": "cpu_op", "name": "c", "ts": -9223372036854775, "dur": 1},
          {"ph": "X", "cat": "cpu_op", "name": "d", "ts": 1, "dur": 1}])",
          "far")
          .value();
  EXPECT_EQ(t.events.size(), 1U);
  ASSERT_EQ(t.import.skips.size(), 1U);
  EXPECT_EQ(t.import.skips[0].id, "number-out-of-range");
  EXPECT_EQ(t.import.skips[0].count, 3);
}

}  // namespace epilogue::trace::reader_robustness_test
