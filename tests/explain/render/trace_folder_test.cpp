// SPDX-License-Identifier: Apache-2.0
// Which files of a folder are served. Paths come from whoever can reach the port.
#include "explain/render/trace_folder.h"

#include <sys/stat.h>

#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"

namespace epilogue::trace::trace_folder_test {

namespace fs = std::filesystem;
using namespace io_test;

// served/ beside what must not be served.
class Served : public ::testing::Test {
 protected:
  Served() {
    fs::create_directories(out_ / "served/sub");
    fs::create_directories(out_ / "served-too");
    write_bytes(out_ / "secret.json", "secret");
    write_bytes(out_ / "served-too/secret.json", "secret");
    for (const char* name : {"a.json", "b b.json.gz", "sub/page.html", "notes.txt", "odd%2e.json"})
      write_bytes(out_ / ("served/" + std::string(name)), name);
  }
  void link(const std::string& target, const std::string& name) {
    fs::create_symlink(target, out_ / ("served/" + name));
  }
  TraceFolder folder() const { return TraceFolder(out_ / "served"); }
  bool finds(std::string_view path) const { return folder().find(path).has_value(); }

  TempFolder out_;
};

TEST_F(Served, FilesOfThreeKindsAreListedByName) {
  EXPECT_EQ(folder().files(),
            (std::vector<std::string>{"a.json", "b b.json.gz", "odd%2e.json", "sub/page.html"}));
  for (const std::string& file : folder().files()) {
    const auto path = folder().find(file);
    ASSERT_TRUE(path.has_value()) << file;
    EXPECT_EQ(path->lexically_relative(folder().root()), file);
  }
}

TEST_F(Served, OtherKindsAndFoldersAreNot) {
  fs::create_directories(out_ / "served/folder.json");
  ASSERT_EQ(::mkfifo((out_ / "served/pipe.json").c_str(), 0600), 0);
  for (const char* path : {"", ".", "/", "notes.txt", "none.json", "sub", "sub/", "folder.json",
                           "pipe.json", "a.json/", "a.json.", "A.JSON", "a.json.bak"})
    EXPECT_FALSE(finds(path)) << path;
  EXPECT_EQ(folder().files().size(), 4U);
}

TEST_F(Served, DotsDoNotLeadOut) {
  for (const char* path : {"..", "../secret.json", "sub/../../secret.json", "./../secret.json",
                           "sub/../a.json", "../served/a.json", "../served-too/secret.json",
                           "....//secret.json", "..\\secret.json", ".../secret.json"})
    EXPECT_FALSE(finds(path)) << path;
  EXPECT_TRUE(finds("./a.json"));
  EXPECT_TRUE(finds("sub//page.html"));
}

TEST_F(Served, AbsolutePathsAreRefusedEvenOfFilesInTheFolder) {
  EXPECT_FALSE(finds(out_ / "secret.json"));
  EXPECT_FALSE(finds(out_ / "served/a.json"));
  EXPECT_FALSE(finds("/" + (out_ / "secret.json")));
  EXPECT_FALSE(finds("/etc/hosts.json"));
}

// A path is decoded once, before: what is encoded here is a name.
TEST_F(Served, EncodedPathsAreNames) {
  for (const char* path : {"%2e%2e/secret.json", "..%2fsecret.json", "%2e%2e%2fsecret.json",
                           "%252e%252e/secret.json", "odd..json", "a%2ejson", "b%20b.json.gz"})
    EXPECT_FALSE(finds(path)) << path;
  EXPECT_TRUE(finds("odd%2e.json"));
}

TEST_F(Served, NulAndOtherControlCharactersAreRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view path :
       {"a.json\0"sv, "a.json\0.html"sv, "notes.txt\0.json"sv, "../secret.json\0.json"sv,
        "\0a.json"sv, "a.json\n"sv, "\ra.json"sv, "a\x7f.json"sv})
    EXPECT_FALSE(finds(path)) << path.size();
}

TEST_F(Served, LinksMayNotLeadOutOfTheFolder) {
  link("../secret.json", "out.json");
  link(out_ / "secret.json", "absolute.json");
  link("..", "up");
  link("../served-too", "too");  // the name of the folder is the beginning of its
  link("out.json", "twice.json");
  link("loop.json", "loop.json");
  link("nowhere.json", "dangling.json");
  link("notes.txt", "notes.json");
  link("a.json", "inside.json");
  link("sub", "also");
  for (const char* path : {"out.json", "absolute.json", "up/secret.json", "too/secret.json",
                           "twice.json", "loop.json", "dangling.json"})
    EXPECT_FALSE(finds(path)) << path;
  EXPECT_TRUE(finds("inside.json"));
  EXPECT_TRUE(finds("also/page.html"));
  EXPECT_EQ(folder().find("inside.json")->filename(), "a.json");
  // Of folders that are links, files can be asked for but are not listed a second time.
  EXPECT_EQ(folder().files(),
            (std::vector<std::string>{"a.json", "b b.json.gz", "inside.json", "notes.json",
                                      "odd%2e.json", "sub/page.html"}));
}

TEST_F(Served, LongNamesAreNotFound) {
  EXPECT_FALSE(finds(std::string(100'000, 'a') + ".json"));
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "sub/";
  EXPECT_FALSE(finds(deep + "a.json"));
}

TEST_F(Served, TheFolderItselfMayBeALink) {
  fs::create_directory_symlink("served", out_ / "link");
  const TraceFolder linked(out_ / "link");
  EXPECT_EQ(linked.root(), folder().root());
  EXPECT_TRUE(linked.find("a.json").has_value());
  EXPECT_FALSE(linked.find("../secret.json").has_value());
}

TEST_F(Served, AFileIsNoFolder) {
  const std::string file = out_ / "served/a.json", none = out_ / "none";
  EXPECT_ERROR(TraceFolder folder(file), file + ": expected a folder");
  EXPECT_ERROR(TraceFolder folder(none), none + ": expected a folder");
}

TEST(ContentType, FollowsTheEndOfTheName) {
  EXPECT_EQ(content_type("a.json"), "application/json");
  EXPECT_EQ(content_type("a.json.gz"), "application/gzip");
  EXPECT_EQ(content_type("a.html"), "text/html; charset=utf-8");
  for (const char* name : {"", "json", "a.gz", "a.htm", "a.json ", "a.js"})
    EXPECT_FALSE(content_type(name).has_value()) << name;
}

TEST(PercentEncoded, LeavesUnreservedCharactersAndSlashes) {
  EXPECT_EQ(percent_encoded("sub/a-b_c.~9.json"), "sub/a-b_c.~9.json");
  EXPECT_EQ(percent_encoded("b b?#&%+.json"), "b%20b%3F%23%26%25%2B.json");
  EXPECT_EQ(percent_encoded("\xc3\xa4\n"), "%C3%A4%0A");
}

}  // namespace epilogue::trace::trace_folder_test
