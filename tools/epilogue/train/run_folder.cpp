// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "epilogue/base/error.h"

namespace epilogue::tool {

std::optional<RunFolder> RunFolder::try_open(const std::string& path, const char* flag) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw Error(fmt::format("[{}] {}: cannot create folder: {}", flag, path, error.message()));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw Error(fmt::format("[{}] {}", flag, file_failure("open", path).message));
  // File systems without locks have none to wait for.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    return {};
  }
  return RunFolder(path, fd);
}

RunFolder RunFolder::open(const std::string& path, const char* flag) {
  auto folder = try_open(path, flag);
  if (!folder)
    throw Error(fmt::format(
        "[{}] expected a folder that no other run writes to, got {}: another epilogue train is at "
        "work there",
        flag, path));
  return std::move(*folder);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RunFolder::~RunFolder() {
  if (fd_ >= 0) ::close(fd_);
}

void RunFolder::require_there() const {
  struct stat held {};
  struct stat named {};
  const bool is_there = ::fstat(fd_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (!is_there)
    throw Error(fmt::format(
        "[train] expected the run's folder {} to stay, got none there: it was removed or moved "
        "while the run went on",
        path_));
}

}  // namespace epilogue::tool
