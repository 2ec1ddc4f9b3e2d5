// SPDX-License-Identifier: Apache-2.0
// A progress bar for long work: callers report, the tool decides whether and where it shows.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace epilogue {

// Draws "label [#####.....]  52 %  3.1 s left  note" on one line of a terminal, at most ten times a
// second, and wipes it in finish(). Silent where the stream is not a terminal. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total, std::FILE* stream = stderr);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, const std::string& note = {});
  void finish();

 private:
  std::string label_;
  int64_t total_;
  std::FILE* stream_;
  bool visible_;
  bool drawn_ = false;
  int64_t start_ns_;
  int64_t last_ns_ = 0;
};

// The line without control characters; pure, for tests.
std::string progress_line(const std::string& label, int64_t done, int64_t total, double elapsed_s,
                          const std::string& note, int width);

}  // namespace epilogue
