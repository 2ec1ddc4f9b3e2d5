// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/rank_pages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"

namespace epilogue::trace {
namespace {

namespace fs = std::filesystem;

std::string temporary_name(const std::string& folder) {
  static std::atomic<uint64_t> last{0};
  return fmt::format("{}.tmp.{}.{}", folder, getpid(), ++last);
}

std::string page_name(int64_t rank) { return fmt::format("rank_{:04}.html", rank); }

}  // namespace

RankPages::RankPages(const std::string& report)
    : report_(report),
      folder_((fs::path(report).parent_path() / (fs::path(report).stem().string() + "_ranks"))
                  .string()),
      temporary_(temporary_name(folder_)) {}

RankPages::~RankPages() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

int64_t RankPages::begin(std::optional<int64_t> rank) {
  rank_ = rank.value_or(static_cast<int64_t>(pages_.size()));
  return rank_;
}

Status RankPages::add(std::string_view page) {
  const std::string name = page_name(rank_);
  pages_.push_back({rank_, (fs::path(folder_) / name).string(), static_cast<int64_t>(page.size())});
  return write_file((fs::path(temporary_) / name).string(), page);
}

void RankPages::add_credentials(const std::vector<std::string>& keys) {
  credentials_.insert(keys.begin(), keys.end());
}

Status RankPages::commit() {
  if (pages_.empty()) return ok_status();
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    return Failure{FailureCode::file_error, folder_ + ": cannot create folder: " + error.message()};
  for (const Page& page : pages_) {
    fs::rename(fs::path(temporary_) / page_name(page.rank), page.file, error);
    if (error)
      return Failure{FailureCode::file_error, page.file + ": cannot write: " + error.message()};
  }
  return ok_status();
}

int64_t RankPages::bytes() const {
  int64_t sum = 0;
  for (const Page& page : pages_) sum += page.bytes;
  return sum;
}

std::string RankPages::path_to_report() const {
  return "../" + fs::path(report_).filename().string();
}

std::vector<std::string> RankPages::relative_paths() const {
  std::vector<std::string> paths;
  paths.reserve(pages_.size());
  for (const Page& page : pages_)
    paths.push_back(fs::path(folder_).filename().string() + "/" + page_name(page.rank));
  return paths;
}

}  // namespace epilogue::trace
