// SPDX-License-Identifier: Apache-2.0
// Files appear whole or not at all; mapping and its failures.
#include "base/file.h"
#include "support/test.h"

#include <sys/stat.h>
#include <unistd.h>

namespace epilogue::file_test {
namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "epilogue_file_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    return names;
  }
  std::string folder_;
};

TEST_F(File, CommitMakesTheFileAppear) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file.value().write("one "));
  ASSERT_TRUE(file.value().write(""));
  ASSERT_TRUE(file.value().write("two"));
  EXPECT_FALSE(fs::exists(path("a")));
  ASSERT_TRUE(file.value().commit());
  EXPECT_EQ(read_file(path("a")).value(), "one two");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(File, AbandonedWritesLeaveTheOldFile) {
  ASSERT_TRUE(write_file(path("a"), "old"));
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file.value().write("new"));
  }
  EXPECT_EQ(read_file(path("a")).value(), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(File, TwoWritersOfOnePathDoNotMix) {
  auto first = AtomicFile::create(path("a"));
  auto second = AtomicFile::create(path("a"));
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first.value().write("first"));
  ASSERT_TRUE(second.value().write("second, which is longer"));
  ASSERT_TRUE(second.value().commit());
  EXPECT_EQ(read_file(path("a")).value(), "second, which is longer");
  ASSERT_TRUE(first.value().commit());
  EXPECT_EQ(read_file(path("a")).value(), "first");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(File, AMovedFileIsWrittenOnce) {
  auto file = AtomicFile::create(path("a")).value();
  {
    AtomicFile other = std::move(file);
    ASSERT_TRUE(other.write("x"));
    ASSERT_TRUE(other.commit());
  }
  EXPECT_EQ(read_file(path("a")).value(), "x");
}

TEST_F(File, ASecondCommitFails) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file.value().write("x"));
  ASSERT_TRUE(file.value().commit());
  EXPECT_FALSE(file.value().commit());
  EXPECT_FALSE(file.value().write("y"));
  EXPECT_EQ(read_file(path("a")).value(), "x");
}

TEST_F(File, MissingFoldersAreCreated) {
  ASSERT_TRUE(write_file(path("b/c/d"), "x"));
  EXPECT_EQ(read_file(path("b/c/d")).value(), "x");
}

TEST_F(File, AFolderThatCannotBeIsNamed) {
  ASSERT_TRUE(write_file(path("a"), ""));
  const auto status = write_file(path("a/b"), "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.failure().code, FailureCode::file_error);
  EXPECT_EQ(status.failure().message, path("a") + ": cannot create folder: Not a directory");
}

TEST_F(File, WritingIsRefusedWherePermissionIsMissing) {
  const uid_t user = geteuid();
  const uid_t nobody = 65534;
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  if (user == 0 && seteuid(nobody) != 0) GTEST_SKIP() << "root cannot become nobody here";
  const auto status = write_file(path("a"), "x");
  ASSERT_EQ(seteuid(user), 0);
  chmod(folder_.c_str(), 0700);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.failure().message, path("a") + ": cannot write: Permission denied");
}

// As root, a rename would replace the device by a plain file.
TEST_F(File, OnlyRegularFilesAreReplaced) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& target : {path("pipe"), folder_, std::string("/dev/null")}) {
    const auto status = write_file(target, "x");
    ASSERT_FALSE(status) << target;
    EXPECT_EQ(status.failure().message, target + ": cannot write: not a regular file");
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(File, MapsWhatWasWritten) {
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(write_file(path("a"), bytes));
  auto mapped = MappedFile::open(path("a"));
  ASSERT_TRUE(mapped);
  const MappedFile kept = std::move(mapped).value();
  fs::remove(path("a"));
  ASSERT_EQ(kept.bytes().size(), bytes.size());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(kept.bytes().data()), kept.bytes().size()),
            bytes);
}

TEST_F(File, AnEmptyFileIsNoError) {
  ASSERT_TRUE(write_file(path("a"), ""));
  EXPECT_TRUE(MappedFile::open(path("a")).value().bytes().empty());
  EXPECT_EQ(read_file(path("a")).value(), "");
}

TEST_F(File, WhatCannotBeReadSaysWhy) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path("none")).failure().message,
            path("none") + ": cannot read: No such file or directory");
  EXPECT_EQ(MappedFile::open(folder_).failure().message, folder_ + ": cannot read: Is a directory");
  EXPECT_EQ(MappedFile::open(path("pipe")).failure().message,
            path("pipe") + ": cannot read: not a regular file");
  EXPECT_EQ(read_file(path("none")).failure().code, FailureCode::file_error);
}

}  // namespace epilogue::file_test
