// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/units.h"

namespace epilogue {
namespace {
constexpr int kBarCells = 24;
constexpr int64_t kRedrawNs = 100'000'000;

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}
}  // namespace

std::string progress_line(const std::string& label, int64_t done, int64_t total, double elapsed_s,
                          const std::string& note, int width) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0)
                : 0.0;
  const int cells = static_cast<int>(share * kBarCells);
  std::string line = fmt::format("{} [{:#>{}}{:.>{}}] {:3.0f} %", label, "", cells, "",
                                 kBarCells - cells, share * 100);
  if (share > 0 && share < 1)
    line += fmt::format("  {} left", format_duration_ns(elapsed_s * (1 - share) / share * 1e9));
  if (!note.empty()) line += "  " + note;
  if (static_cast<int>(line.size()) >= width)
    line.resize(static_cast<size_t>(std::max(width - 1, 0)));
  return line;
}

ProgressBar::ProgressBar(std::string label, int64_t total, std::FILE* stream)
    : label_(std::move(label)),
      total_(total),
      stream_(stream),
      visible_(isatty(fileno(stream)) != 0),
      start_ns_(monotonic_ns()) {}

void ProgressBar::update(int64_t done, const std::string& note) {
  if (!visible_) return;
  const int64_t now = monotonic_ns();
  if (drawn_ && done < total_ && now - last_ns_ < kRedrawNs) return;
  last_ns_ = now;
  drawn_ = true;
  const double elapsed_s = static_cast<double>(now - start_ns_) * 1e-9;
  fmt::print(stream_, "\r\x1b[2K{}",
             progress_line(label_, done, total_, elapsed_s, note, terminal_width(stream_)));
  std::fflush(stream_);
}

void ProgressBar::finish() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stream_, "\r\x1b[2K");
  std::fflush(stream_);
}

}  // namespace epilogue
