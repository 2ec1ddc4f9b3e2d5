// SPDX-License-Identifier: Apache-2.0
// Texts of many windows: cut anywhere, read by any number of threads, compressed or not.
#include <zlib.h>

#include <unistd.h>

#include "epilogue/trace/file.h"
#include "support/test.h"

namespace epilogue::trace::reader_windows_test {

constexpr int kEvents = 20'000;  // about 4 MB of text

std::string event(int i) {
  const std::string n = std::to_string(i);
  return R"({"ph": "X", "cat": "cpu_op", "name": "op)" + std::to_string(i % 97) +
         R"(", "pid": 1, "tid": 2, "ts": )" + n + R"(.001, "dur": 0.5, "args": {"External id": )" +
         n + R"(, "Input Dims": [[)" + std::to_string(i % 11) +
         R"(, 4]], "Input type": ["float"], "list": [{"name": "not an event"}, {"ts": 3}]}})";
}

// Events with `odd` in the middle.
std::string document(const std::string& odd = "") {
  std::string text = "{\"traceEvents\": [\n";
  for (int i = 0; i < kEvents; ++i) {
    text += event(i) + (i + 1 < kEvents ? ",\n" : "\n");
    if (i == kEvents / 2) text += odd;
  }
  return text + "], \"traceName\": \"t\"}";
}

void expect_all(const Trace& t, int extra = 0) {
  ASSERT_EQ(t.events.size(), static_cast<size_t>(kEvents + extra));
  int64_t expected = 0;
  for (const Event& e : t.events) {
    if (t.name(e) == "odd") continue;
    ASSERT_EQ(e.external_id, expected);  // the order of the file
    ASSERT_EQ(e.ts_ns, expected * 1000 + 1);
    ASSERT_EQ(t.inputs[t.op_args(e)->inputs][0].dims[0], expected % 11);
    ++expected;
  }
}

TEST(ReaderWindows, AnyNumberOfThreadsGivesTheSameTrace) {
  const std::string text = document();
  const Trace one = read_trace_text(text, "t", {.threads = 1}).value();
  expect_all(one);
  const std::string written = chrome_trace_json(one, "t");
  for (const int threads : {2, 3, 8}) {
    const Trace t = read_trace_text(text, "t", {.threads = threads}).value();
    EXPECT_EQ(t.import.skipped_events, 0);
    EXPECT_EQ(chrome_trace_json(t, "t"), written) << threads;
    EXPECT_EQ(t.strings.size(), one.strings.size());
    for (StringId id = 0; id < one.strings.size(); ++id) EXPECT_EQ(t.strings[id], one.strings[id]);
  }
}

TEST(ReaderWindows, AnEventLargerThanAWindowIsRead) {
  const std::string big(3'000'000, 'x');
  const std::string odd =
      R"({"ph": "X", "cat": "cpu_op", "name": "odd", "ts": 1, "dur": 1, "args": {"Call stack": ")" +
      big + "\"}},\n";
  const Trace t = read_trace_text(document(odd), "t").value();
  expect_all(t, 1);
  EXPECT_EQ(t.import.skipped_events, 0);
  for (const Event& e : t.events)
    if (t.name(e) == "odd") {
      EXPECT_EQ(t.strings[t.op_args(e)->stack].size(), big.size());
    }
}

TEST(ReaderWindows, ABrokenEventCostsNoOther) {
  const std::string odd = R"({"ph": "X", "cat": "cpu_op", "name": "unclosed, "ts": 1, "dur": {]},
)";
  const std::string text = document(odd);
  const Trace t = read_trace_text(text, "t").value();
  expect_all(t);
  ASSERT_EQ(t.import.skips.size(), 1U);
  EXPECT_EQ(t.import.skips[0].id, "bad-syntax");
  EXPECT_EQ(t.import.skips[0].first_offset, static_cast<int64_t>(text.find(odd)));
}

TEST(ReaderWindows, LongMetadataOnBothSidesOfTheList) {
  const std::string filler = "\"" + std::string(2'000'000, 'm') + "\"";
  std::string text = document();
  text.insert(1, "\"before\": " + filler + ", ");
  text.insert(text.size() - 1, ", \"after\": " + filler);
  const Trace t = read_trace_text(text, "t").value();
  expect_all(t);
  ASSERT_EQ(t.metadata.size(), 2U);
  EXPECT_EQ(t.metadata[0].second, filler);
  EXPECT_EQ(t.metadata[1].first, "after");
}

TEST(ReaderWindows, TwoListsAreJoined) {
  const Trace t = read_trace_text(document() + "\n" + document(), "t").value();
  EXPECT_EQ(t.events.size(), static_cast<size_t>(2 * kEvents));
  ASSERT_EQ(t.import.repairs.size(), 1U);
  EXPECT_EQ(t.import.repairs[0].id, "second-document");
}

class GzipFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("epilogue_reader_" + std::to_string(::getpid()) + ".json.gz"))
                .string();
  }
  void TearDown() override { std::remove(path_.c_str()); }
  void write(const std::string& text, const char* mode) {
    gzFile file = gzopen(path_.c_str(), mode);
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(file);
  }
  // The ids of what was read all the same.
  static std::string repairs(const Trace& t) {
    std::string ids;
    for (const ImportNote& note : t.import.repairs) ids += (ids.empty() ? "" : " ") + note.id;
    return ids;
  }
  std::string path_;
};

TEST_F(GzipFile, ReadsCompressedTextAndReportsProgress) {
  const std::string text = document();
  write(text, "wb");
  int64_t last = 0;
  int64_t total = 0;
  const Trace t = read_trace(path_, {.progress =
                                         [&](int64_t done, int64_t all) {
                                           EXPECT_GE(done, last);
                                           last = done;
                                           total = all;
                                         }})
                      .value();
  expect_all(t);
  EXPECT_TRUE(t.import.is_gzip);
  EXPECT_EQ(t.import.text_bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(total, static_cast<int64_t>(std::filesystem::file_size(path_)));
  EXPECT_EQ(last, total);
}

TEST_F(GzipFile, ReadsSeveralMembers) {
  const std::string text = document();
  write(text.substr(0, text.size() / 3), "wb");
  write(text.substr(text.size() / 3), "ab");
  expect_all(read_trace(path_).value());
}

TEST_F(GzipFile, ACutStreamGivesWhatCameBefore) {
  write(document(), "wb");
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  const Trace t = read_trace(path_).value();
  EXPECT_GT(t.events.size(), 100U);
  EXPECT_LT(t.events.size(), static_cast<size_t>(kEvents));
  EXPECT_TRUE(t.import.is_truncated);
  EXPECT_EQ(t.import.repairs.back().id, "truncated-gzip");
  EXPECT_LE(t.import.skipped_events, 1);
}

TEST_F(GzipFile, AWrongChecksumOrLengthIsSaid) {
  constexpr int kTrailerBytes = 8;  // CRC-32 and length, RFC 1952
  for (int from_end = 1; from_end <= kTrailerBytes; ++from_end) {
    write(document(), "wb");
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const int byte = file.get();
    file.seekp(-from_end, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    const Trace t = read_trace(path_).value();
    expect_all(t);
    EXPECT_EQ(repairs(t), "bad-checksum") << from_end;
    EXPECT_TRUE(t.import.repairs.front().is_doubtful);
    EXPECT_FALSE(t.import.is_truncated);
  }
}

TEST_F(GzipFile, AWrongChecksumOfAnEarlierMemberIsSaidAndTheNextOneRead) {
  const std::string text = document();
  write(text.substr(0, text.size() / 3), "wb");
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);  // of the length: the text has less than 16 MiB
  file.put('\x01');
  file.close();
  write(text.substr(text.size() / 3), "ab");
  const Trace t = read_trace(path_).value();
  expect_all(t);
  EXPECT_EQ(repairs(t), "bad-checksum");
}

TEST_F(GzipFile, BytesBehindTheLastMemberAreSaidAndZerosArePadding) {
  using std::string_literals::operator""s;
  const std::pair<std::string, std::string> cases[] = {
      {"garbage", "trailing-bytes"},
      {"\x1f garbage", "trailing-bytes"},
      {"\0\0\0garbage"s, "trailing-bytes"},
      {std::string(600'000, '\0'), ""},  // more than one piece of the file
      {std::string(600'000, '\0') + "x", "trailing-bytes"},
      {"\x1f\x8b", "truncated-gzip"},
  };
  for (const auto& [tail, expected] : cases) {
    SCOPED_TRACE(tail.substr(0, 10) + " of " + std::to_string(tail.size()));
    write(document(), "wb");
    std::ofstream(path_, std::ios::app | std::ios::binary) << tail;
    const Trace t = read_trace(path_).value();
    expect_all(t);
    EXPECT_EQ(repairs(t), expected);
  }
}

}  // namespace epilogue::trace::reader_windows_test
