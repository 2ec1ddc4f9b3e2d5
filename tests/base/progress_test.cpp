// SPDX-License-Identifier: Apache-2.0
// The progress line, and that no bar is drawn into a file.
#include "base/progress.h"
#include "support/test.h"

namespace epilogue::progress_test {

TEST(ProgressLine, Start) {
  EXPECT_EQ(progress_line("read", 0, 10, 1, "", 80), "read [........................]   0 %");
}

TEST(ProgressLine, HalfWayTellsTheTimeLeft) {
  EXPECT_EQ(progress_line("read", 5, 10, 2.5, "a.json", 80),
            "read [############............]  50 %  2.50 s left  a.json");
}

TEST(ProgressLine, End) {
  EXPECT_EQ(progress_line("read", 10, 10, 2, "", 80), "read [########################] 100 %");
}

TEST(ProgressLine, OddTotalsStayInRange) {
  EXPECT_EQ(progress_line("x", 20, 10, 1, "", 80), "x [########################] 100 %");
  EXPECT_EQ(progress_line("x", -5, 10, 1, "", 80), "x [........................]   0 %");
  EXPECT_EQ(progress_line("x", 5, 0, 1, "", 80), "x [........................]   0 %");
}

TEST(ProgressLine, NeverFillsTheLastColumn) {
  const std::string note(200, 'n');
  for (int width : {1, 2, 20, 40, 80})
    EXPECT_EQ(progress_line("read", 5, 10, 1, note, width).size(), static_cast<size_t>(width - 1));
  EXPECT_EQ(progress_line("read", 5, 10, 1, note, 0), "");
}

TEST(ProgressBar, IsSilentWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    ProgressBar bar("read", 10, file);
    for (int i = 0; i <= 10; ++i) bar.update(i);
    bar.finish();
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace epilogue::progress_test
