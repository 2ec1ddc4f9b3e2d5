// SPDX-License-Identifier: Apache-2.0
// Compiled code on disk: kept, compared, and never believed where it was made of something else.
#include "backend/cuda/program_cache.h"

#include <unistd.h>

#include "base/file.h"
#include "support/test.h"

namespace epilogue::cuda::program_cache_test {

namespace fs = std::filesystem;

class CodeCache : public ::testing::Test {
 protected:
  CodeCache()
      : folder_(fs::temp_directory_path() / ("epilogue_code_" + std::to_string(::getpid()))) {}
  ~CodeCache() override { fs::remove_all(folder_); }

  std::string code(const std::string& key, const std::string& source, const std::string& made) {
    return cached_code(folder_.string(), key, source, [&] {
      ++compiled_;
      return made;
    });
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(folder_)) list.push_back(entry.path());
    return list;
  }
  fs::path folder_;
  int compiled_ = 0;
};

TEST_F(CodeCache, TheSecondTimeNothingIsCompiled) {
  const std::string binary("co\0de", 5);
  EXPECT_EQ(code("sm_90", "source", binary), binary);
  EXPECT_EQ(code("sm_90", "source", "other"), binary);
  EXPECT_EQ(compiled_, 1);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(CodeCache, KeyAndSourceTellProgramsApart) {
  EXPECT_EQ(code("sm_90", "source", "a"), "a");
  EXPECT_EQ(code("sm_80", "source", "b"), "b");
  EXPECT_EQ(code("sm_90", "source 2", "c"), "c");
  EXPECT_EQ(code("sm_90", "source", "d"), "a");
}

TEST_F(CodeCache, AFileOfSomethingElseIsReplaced) {
  code("sm_90", "source", "a");
  const std::string path = files().at(0).string();
  ASSERT_TRUE(write_file(path, std::string("sm_90\nother\0evil", 16)));
  EXPECT_EQ(code("sm_90", "source", "b"), "b");
  EXPECT_EQ(code("sm_90", "source", "c"), "b");
}

TEST_F(CodeCache, ATruncatedFileIsReplaced) {
  code("sm_90", "source", "a");
  const std::string path = files().at(0).string();
  fs::resize_file(path, fs::file_size(path) - 1);  // no code is left
  EXPECT_EQ(code("sm_90", "source", "b"), "b");
}

TEST_F(CodeCache, WithoutAFolderEveryCallCompiles) {
  const auto make = [&] {
    ++compiled_;
    return std::string("x");
  };
  cached_code("", "k", "s", make);
  cached_code("", "k", "s", make);
  EXPECT_EQ(compiled_, 2);
}

TEST_F(CodeCache, AFolderThatCannotBeWrittenIsNoFailure) {
  EXPECT_EQ(cached_code("/proc/no/such/folder", "k", "s", [] { return std::string("x"); }), "x");
}

TEST(CodeCacheFolder, FollowsTheEnvironment) {
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(code_cache_folder(), "/somewhere/epilogue");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/user", 1);
  EXPECT_EQ(code_cache_folder(), "/home/user/.cache/epilogue");
  unsetenv("HOME");
  EXPECT_EQ(code_cache_folder(), "");
}

}  // namespace epilogue::cuda::program_cache_test
