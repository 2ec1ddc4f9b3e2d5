// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/file.h"

#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "support/test.h"
#include "trace/trace_builder.h"
#include "trace/written.h"

namespace epilogue::trace::writer_test {

namespace fs = std::filesystem;
using namespace testing;

class WriterFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           ("epilogue_writer_" + std::string(info->name()) + "_" + std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string gunzip(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    std::string out;
    std::vector<char> block(1 << 16);
    int n = 0;
    while ((n = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0)
      out.append(block.data(), static_cast<size_t>(n));
    EXPECT_EQ(n, 0);
    EXPECT_EQ(gzclose(file), Z_OK);
    return out;
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }

  fs::path dir_;
};

// Several megabytes: more than any buffer on the way.
TraceBuilder long_trace() {
  TraceBuilder b;
  for (int64_t i = 0; i < 4000; ++i) {
    b.op("aten::mm", 100 * i, 100 * i + 90);
    b.inputs({tensor({64, i % 100}), tensor({i % 100, 32})});
    b.kernel("gemm_" + std::to_string(i % 7), 100 * i + 10, 100 * i + 80, b.last_id());
    b.memory(100 * i + 5, 64 * i);
  }
  return b;
}

TEST_F(WriterFiles, PlainAndGzipHoldTheSameDocument) {
  const TraceBuilder b = long_trace();
  const std::string plain = dir_ / "new" / "folder" / "t.json";
  const std::string zipped = dir_ / "t.json.gz";
  ASSERT_TRUE(write_chrome_trace(b.trace, plain));
  ASSERT_TRUE(write_chrome_trace(b.trace, zipped));
  const std::string text = read_file(plain).value();
  EXPECT_GT(text.size(), size_t{3} << 20);
  EXPECT_EQ(text, chrome_trace_json(b.trace, plain));
  EXPECT_EQ(gunzip(zipped), chrome_trace_json(b.trace, zipped));
  EXPECT_LT(fs::file_size(zipped), text.size() / 8);
  const Json d = Json::parse(text);
  EXPECT_EQ(select(d, "X", "cpu_op").size(), 4000U);
  EXPECT_EQ(select(d, "X", "kernel").size(), 4000U);
  EXPECT_EQ(select(d, "s", "ac2g").size(), 4000U);
  EXPECT_EQ(select(d, "f", "ac2g").size(), 4000U);
  EXPECT_EQ(select(d, "i", "cpu_instant_event").size(), 4000U);
}

TEST_F(WriterFiles, ReplacesAFileAsAWhole) {
  const std::string path = dir_ / "t.json";
  std::ofstream(path) << "old";
  ASSERT_TRUE(write_chrome_trace(TraceBuilder().trace, path));
  EXPECT_TRUE(Json::accept(read_file(path).value()));
  EXPECT_EQ(files(), 1U);  // no temporary left
}

TEST_F(WriterFiles, SaysWhatCannotBeWritten) {
  std::ofstream(dir_ / "file") << "not a folder";
  for (const char* name : {"t.json", "t.json.gz"}) {
    const std::string path = dir_ / "file" / name;
    const Status status = write_chrome_trace(TraceBuilder().trace, path);
    ASSERT_FALSE(status);
    EXPECT_HAS(status.failure().message, (dir_ / "file").string());
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(WriterFiles, FullDiskIsAFailure) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  // A temporary that leads to a full device: PATH.tmp.PID.N is what the writer opens, where N
  // counts this process's files.
  const std::string path = dir_ / "t.json";
  constexpr int kMoreThanWritten = 1000;
  for (int n = 1; n <= kMoreThanWritten; ++n)
    fs::create_symlink("/dev/full",
                       path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(n));
  const Status status = write_chrome_trace(long_trace().trace, path);
  ASSERT_FALSE(status);
  EXPECT_FALSE(fs::exists(path));
}

TEST(Writer, HostileNamesStayValidAndExact) {
  TraceBuilder b;
  const std::string name = "a\"b\\c\nd\x01\xff 模型";
  b.op(name, 0, 10);
  b.inputs({scalar("\"x\"\n", "ty\\pe\"")});
  b.last_args().stack = b.trace.strings.intern("f(\"\x02\")");
  b.trace.processes.push_back({1, name, name, 1});
  b.trace.threads.push_back({1, 1, name, 1});
  b.trace.devices.push_back({.name = name});
  b.trace.span_name = name;
  b.trace.metadata = {{"k\"ey", "\"v\""}};
  const Json d = Json::parse(chrome_trace_json(b.trace, name));
  const std::string repaired = "a\"b\\c\nd\x01\xEF\xBF\xBD 模型";
  const Json e = select(d, "X", "cpu_op")[0];
  EXPECT_EQ(e["name"], repaired);
  EXPECT_EQ(e["args"]["Concrete Inputs"][0], "\"x\"\n");
  EXPECT_EQ(e["args"]["Input type"][0], "ty\\pe\"");
  EXPECT_EQ(e["args"]["Call stack"], "f(\"\x02\")");
  EXPECT_EQ(select(d, "M", "", "thread_name")[0]["args"]["name"], repaired);
  EXPECT_EQ(d["deviceProperties"][0]["name"], repaired);
  EXPECT_EQ(d["k\"ey"], "v");
  EXPECT_EQ(d["traceName"], repaired);
}

TEST(Writer, MetadataCannotBreakTheDocument) {
  TraceBuilder b;
  b.trace.recorded.with_stack = true;
  b.trace.metadata = {{"object", R"({"a": [1, 2]})"},
                      {"broken", R"({"a": )"},
                      {"empty", ""},
                      {"escape", R"(1, "x": 2)"},
                      {"traceEvents", "[]"},
                      {"with_stack", "7"},
                      {"object", "2"}};
  const Json d = written(b.trace);
  EXPECT_EQ(d["object"]["a"][1], 2);
  EXPECT_EQ(d["broken"], R"({"a": )");
  EXPECT_EQ(d["empty"], "");
  EXPECT_EQ(d["escape"], R"(1, "x": 2)");
  EXPECT_EQ(d["with_stack"], 1);
  EXPECT_GT(d["traceEvents"].size(), 0U);
  EXPECT_FALSE(d.contains("x"));
  // ordered_json would keep a second key of the same name silently: count it in the text.
  const std::string text = chrome_trace_json(b.trace, "t");
  EXPECT_EQ(text.find("\"traceEvents\""), text.rfind("\"traceEvents\""));
  EXPECT_EQ(text.find("\"object\""), text.rfind("\"object\""));
}

TEST(Writer, ClampsTimesAndThreads) {
  TraceBuilder b;
  b.op("early", -500, 10).dur_ns = -3;
  b.op("negative", 0, 10, -77);
  b.op("smallest", 0, 10, INT64_MIN);
  b.event(Category::gpu_user_annotation, "first", 0, 10);  // its margin would be before the base
  const Json d = written(b.trace);
  const auto find = [&](const char* name) { return select(d, "X", "", name)[0]; };
  EXPECT_EQ(find("early")["ts"], 0.0);
  EXPECT_EQ(find("early")["dur"], 0.0);
  EXPECT_EQ(find("negative")["tid"], 77);
  EXPECT_EQ(find("smallest")["tid"], 0);
  EXPECT_EQ(find("first")["ts"], 0.0);
}

TEST(Writer, NoArrowWithoutBothEnds) {
  TraceBuilder b;
  b.event(Category::cuda_runtime, "cudaLaunchKernel", 0, 5).correlation = 1;  // its kernel was lost
  b.event(Category::kernel, "orphan", 0, 5).correlation = 2;                  // launched before
  b.event(Category::cuda_runtime, "cudaDeviceSynchronize", 0, 5);             // no correlation
  b.event(Category::kernel, "plain", 0, 5);
  const Json d = written(b.trace);
  EXPECT_TRUE(select(d, "s").empty());
  EXPECT_TRUE(select(d, "f").empty());
}

TEST(Writer, OneLaunchManyKernels) {
  TraceBuilder b;
  b.event(Category::cuda_runtime, "cudaGraphLaunch", 0, 5).correlation = 1;
  for (int i = 0; i < 3; ++i) b.event(Category::kernel, "k", 10 * i, 10 * i + 5).correlation = 1;
  const Json d = written(b.trace);
  EXPECT_EQ(select(d, "s", "ac2g").size(), 1U);
  EXPECT_EQ(select(d, "f", "ac2g").size(), 3U);
}

TEST(Writer, EventsComeByTimeParentsFirst) {
  TraceBuilder b;
  b.op("child", 10, 20);
  b.op("parent", 10, 30);
  b.op("first", 0, 5);
  std::vector<std::string> names;
  for (const Json& e : select(written(b.trace), "X", "cpu_op")) names.push_back(e["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"first", "parent", "child"}));
}

TEST(Writer, SideTableIndicesOutOfRangeAreIgnored) {
  TraceBuilder b;
  b.op("op", 0, 1).args = 1000;
  b.op("inputs", 0, 1);
  b.last_args().inputs = 1000;
  b.event(Category::kernel, "k", 0, 1).args = 1000;
  b.event(Category::python_function, "p", 0, 1).args = 1000;
  b.event(Category::cuda_runtime, "r", 0, 1).args = 1000;
  EXPECT_NO_THROW((void)written(b.trace));
}

}  // namespace epilogue::trace::writer_test
