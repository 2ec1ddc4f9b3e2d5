// SPDX-License-Identifier: Apache-2.0
// The folder of a run, which one process at a time works in.
#pragma once

#include <optional>
#include <string>

namespace epilogue::tool {

// Holds the folder's lock while it lives. The kernel drops the lock when the process ends, however
// it ends.
class RunFolder {
 public:
  // Makes the folder where it is missing. Throws Error where it cannot be made, or where another
  // process works in it. `flag` is for messages.
  static RunFolder open(const std::string& path, const char* flag);
  // Empty where another process works in it.
  static std::optional<RunFolder> try_open(const std::string& path, const char* flag);

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  // Throws Error where the path is no longer this folder: somebody removed or moved it.
  void require_there() const;

 private:
  RunFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

}  // namespace epilogue::tool
