// SPDX-License-Identifier: Apache-2.0
// Events that must be recovered from each broken file of a collection, and what must be said about
// it.
#include "epilogue/trace/file.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::reader_malformed_test {

struct Recovered {
  std::string name;
  int64_t ts_ns;
  int64_t dur_ns;
  bool operator==(const Recovered&) const = default;
};

void PrintTo(const Recovered& r, std::ostream* out) {
  *out << r.name << " @" << r.ts_ns << "+" << r.dur_ns;
}

struct Case {
  std::string file;
  std::vector<Recovered> events;
  // "id:count" of every note, skips first.
  std::vector<std::string> notes;
  int64_t usable = 0;  // events of every kind
  std::optional<FailureCode> failure = {};
};

const Recovered kMm{"aten::mm", 1'000'123, 5'000};
const Recovered kK1002{"k", 1'002'000, 1'000};

std::vector<Case> cases() {
  const std::string lib =
      "_test_lib_impl = torch.library.Library(\"_inductor_test\", \"IMPL\")\n(1): <module>";
  return {
      {"01_truncated_mid_event.json", {}, {"truncated:1", "unclosed-document:1"}, 46},
      {"02_truncated_after_comma.json", {}, {"unclosed-document:1"}, 46},
      {"03_truncated_gzip.json.gz",
       {{"op1", 88'511'388'202'765, 40},
        {"op_record", 88'511'388'202'815, 20},
        {"op_wait", 88'511'388'202'845, 20},
        {"op_evt_sync", 88'511'388'202'875, 20}},
       {"truncated:1", "unclosed-document:1", "truncated-gzip:1"},
       63},
      {"04_unescaped_quotes_in_name.json",
       {kMm, {R"({"device": "cpu", "dtype": "float32"}(12): run)", 1'001'000, 1'000}, kMm},
       {"unescaped-quote:1"},
       3},
      {"05_newline_in_name.json",
       {kMm, {lib, 1'001'000, 0}, kMm},
       {"unescaped-quote:1", "control-character:1"},
       3},
      {"06_windows_backslash.json",
       {kMm, {"torch\\cuda\\__init__.py(219): _lazy_init", 1'001'000, 1'000}, kMm},
       {"bad-escape:1"},
       3},
      {"07_control_char_and_nonutf8.json",
       {kMm,
        {"torch/_inductor/config.py(0): \x01\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 1'001'000,
         1'000},
        kMm},
       {"control-character:1", "bad-utf8:1"},
       3},
      {"08_bare_inf_nan.json", {kK1002, kMm}, {"bare-word:3"}, 2},
      {"09_quoted_inf.json", {kK1002, kMm}, {"bad-argument:2"}, 2},
      {"10_unquoted_NA.json", {kMm}, {"bad-metadata:1"}, 1},
      {"11_empty_args_dangling_comma.json", {kK1002, kMm}, {"extra-comma:1"}, 2},
      {"12_trailing_comma_events.json", {kMm}, {"extra-comma:1"}, 1},
      {"13_log_lines_with_quotes.json", {kMm}, {"bad-metadata:1"}, 1},
      {"14_big_ints.json", {{"hipLaunchKernel", 1'711'999'999'999'999'999, 1'500}, kMm}, {}, 2},
      {"15_ts_forms.json",
       {{"aten::a", 1'713'200'000'000'123'007, 1},
        {"aten::b", 1'713'200'000'000'124'500, 2'000},
        {"aten::c", 1'713'200'000'000'125'000, 10'000},
        {"aten::neg", 1'713'200'000'000'126'000, 0},
        {"volta_sgemm_64x64_nt", 0, 0}},
       {"negative-durations:1"},
       5},
      {"16_bare_array_unclosed.json", {kMm, kMm}, {"unclosed-document:1"}, 2},
      {"17_bom_crlf.json", {kMm, kMm}, {"byte-order-mark:1"}, 2},
      {"18_empty.json", {}, {}, 0, FailureCode::empty},
      {"19_no_traceEvents.json", {}, {}, 0, FailureCode::not_a_trace},
      {"20_metadata_only.json", {}, {}, 1},
      {"21_events_after_metadata_unordered_keys.json", {kMm}, {}, 1},
      {"22_partial_overlap.json",
       {{"_record_function_enter_new", 100'000, 10'000},
        {"ProfilerStep#3", 105'000, 100'000},
        {"profiler.py(811): step", 190'000, 40'000}},
       {},
       3},
      {"23_duplicate_keys.json", {{"k", 1'000, 1'000}, kMm}, {"duplicate-key:1"}, 2},
      {"24_two_concatenated_documents.json", {kMm, kMm}, {"second-document:1"}, 2},
      {"25_fwd_ref_nested_deep.json", {{"aten::cat", 1'000, 1'000}, kMm}, {"bad-argument:1"}, 2},
      {"26_record_window_end_huge_ts.json", {kMm}, {}, 2},
  };
}

std::vector<Recovered> recovered(const Trace& trace) {
  std::vector<Recovered> events;
  for (const Event& e : trace.events)
    events.push_back({std::string(trace.name(e)), e.ts_ns, e.dur_ns});
  return events;
}

std::vector<std::string> notes(const ImportReport& report) {
  std::vector<std::string> texts;
  for (const auto* list : {&report.skips, &report.repairs})
    for (const ImportNote& note : *list)
      texts.push_back(note.id + ":" + std::to_string(note.count));
  return texts;
}

TEST(ReaderMalformed, GivesWhatCanBeReadAndSaysWhatCannot) {
  const std::filesystem::path folder = testing::real_traces_folder() / "malformed";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.file);
    const auto read =
        read_trace((folder / c.file).string(), {.python_frames = PythonFrames::events});
    if (c.failure) {
      ASSERT_FALSE(read.ok());
      EXPECT_EQ(read.failure().code, c.failure);
      EXPECT_HAS(read.failure().message, c.file);
      continue;
    }
    ASSERT_TRUE(read.ok()) << read.failure().message;
    const Trace& trace = read.value();
    EXPECT_EQ(recovered(trace), c.events);
    EXPECT_EQ(notes(trace.import), c.notes);
    EXPECT_EQ(trace.import.events, c.usable);
    const bool is_cut = c.file.find("truncated") != std::string::npos ||
                        c.file.find("unclosed") != std::string::npos;
    EXPECT_EQ(trace.import.is_truncated, is_cut);
  }
}

TEST(ReaderMalformed, EveryFileOfTheCollectionHasItsExpectation) {
  const std::filesystem::path folder = testing::real_traces_folder() / "malformed";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const std::vector<Case> all = cases();
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".json") == std::string::npos) continue;
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Case& c) { return c.file == name; }))
        << name;
    ++files;
  }
  EXPECT_EQ(files, all.size());
}

TEST(ReaderMalformed, BigIntegersKeepTheirBitsAndTheLastDuplicateCounts) {
  const std::filesystem::path folder = testing::real_traces_folder() / "malformed";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const Trace big = read_trace((folder / "14_big_ints.json").string()).value();
  EXPECT_EQ(static_cast<uint64_t>(big.events[0].correlation), UINT64_MAX);
  EXPECT_EQ(big.runtime_calls[big.events[0].args].stream, INT64_MIN);
  const Trace twice = read_trace((folder / "23_duplicate_keys.json").string()).value();
  EXPECT_EQ(twice.kernel_args(twice.events[0])->stream, 8);
}

TEST(ReaderMalformed, NamesWhatTheFileLooksLike) {
  const std::filesystem::path folder = testing::real_traces_folder() / "not_chrome";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const auto read = read_trace((folder / "pytorch_execution_trace.json.gz").string());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.failure().code, FailureCode::not_a_trace);
  EXPECT_HAS(read.failure().message, "PyTorch execution trace");
}

}  // namespace epilogue::trace::reader_malformed_test
