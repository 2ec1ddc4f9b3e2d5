// SPDX-License-Identifier: Apache-2.0
// The goldens' own machinery: what it finds, what it says, what it writes.
#include "golden/golden_file.h"
#include "support/test.h"

#include <gtest/gtest-spi.h>

namespace epilogue::test::golden_file_test {

// A file for this test alone, compared and not rewritten, whatever the environment says.
class GoldenFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv(kUpdate)) before_ = value;
    unsetenv(kUpdate);
    path_ = ::testing::TempDir() + "epilogue_golden_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt";
    std::ofstream(path_) << kText;
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    if (!before_.empty()) setenv(kUpdate, before_.c_str(), 1);
  }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  GoldenFile file(std::vector<std::string> names) const { return {path_, "About.", names}; }

  static constexpr const char* kUpdate = "EPILOGUE_UPDATE_GOLDENS";
  static constexpr const char* kText =
      "# scripts/update_goldens.sh rewrites this file. About.\n"
      "\n== a\none\n\ntwo\n"
      "\n== b\nthree\n";
  std::string path_;
  std::string before_;
};

// Runs in a function of its own: EXPECT_NONFATAL_FAILURE sees no local variables.
void expect_in(const GoldenFile* file, const char* name, const char* text) {
  file->expect(name, text);
}

TEST_F(GoldenFiles, EqualSectionsPassAndOthersFailWithADiff) {
  static GoldenFile* file;
  GoldenFile here = this->file({"a", "b"});
  file = &here;
  here.expect("a", "one\n\ntwo\n");
  here.expect("b", "three\n");
  here.expect_no_other_sections();
  EXPECT_NONFATAL_FAILURE(expect_in(file, "b", "four\n"), "- three\n+ four\n");
  EXPECT_NONFATAL_FAILURE(expect_in(file, "b", ""), "- three\n");
  EXPECT_NONFATAL_FAILURE(expect_in(file, "c", ""), "has no section 'c'");
}

TEST_F(GoldenFiles, SectionsThatNoCaseHasFail) {
  static GoldenFile* file;
  GoldenFile fewer = this->file({"a"});
  file = &fewer;
  EXPECT_NONFATAL_FAILURE(file->expect_no_other_sections(), "+ == b");
  GoldenFile turned = this->file({"b", "a"});
  file = &turned;
  EXPECT_NONFATAL_FAILURE(file->expect_no_other_sections(), "is not what its cases give");
  GoldenFile more = this->file({"a", "b", "c"});
  file = &more;
  EXPECT_NONFATAL_FAILURE(file->expect_no_other_sections(), "is not what its cases give");
}

TEST_F(GoldenFiles, AnUpdateWritesTheCasesInTheirOrderAndDropsOthers) {
  setenv(kUpdate, "1", 1);
  file({"c", "a"}).expect("c", "five\n");
  unsetenv(kUpdate);
  EXPECT_EQ(text(),
            "# scripts/update_goldens.sh rewrites this file. About.\n"
            "\n== c\nfive\n"
            "\n== a\none\n\ntwo\n");
  file({"c", "a"}).expect("a", "one\n\ntwo\n");
  file({"c", "a"}).expect_no_other_sections();
}

TEST(LineDiff, MarksWhatIsGoneAndWhatIsNew) {
  EXPECT_EQ(line_diff("a\nb\nc\n", "a\nx\nc\nd\n"), "  a\n- b\n+ x\n  c\n+ d\n");
  EXPECT_EQ(line_diff("a\n", "a\n"), "  a\n");
  EXPECT_EQ(line_diff("", "a\n"), "+ a\n");
  EXPECT_EQ(line_diff("a\nb\n", "b\n"), "- a\n  b\n");
}

}  // namespace epilogue::test::golden_file_test
