// SPDX-License-Identifier: Apache-2.0
// Whole-file helpers: read, write under a temporary name and rename, map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "epilogue/base/result.h"

namespace epilogue {

// A file being written: bytes go to PATH.tmp.PID.N; commit() fsyncs it, renames it to PATH and
// fsyncs the folder, so that neither a reader nor a power failure finds half a file. Destroyed
// without commit(), the temporary is removed and PATH is left as it was. Missing parent folders are
// created. Not thread-safe.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::string_view bytes);
  Status commit();
  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

Status write_file(const std::string& path, std::string_view bytes);
Result<std::string> read_file(const std::string& path);

// A file of which parts are read, also by several threads at a time.
class ReadFile {
 public:
  static Result<ReadFile> open(const std::string& path);
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&&) = delete;
  ~ReadFile();

  int64_t size() const { return size_; }  // when it was opened
  // Bytes [begin, end). A file that became shorter is a failure.
  Result<std::string> read(int64_t begin, int64_t end) const;

 private:
  ReadFile(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// A read-only mapping of a whole file; unmapped by the destructor.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// "PATH: reason", with errno's text.
Failure file_failure(const std::string& what, const std::string& path);

}  // namespace epilogue
