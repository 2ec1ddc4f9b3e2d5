// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace epilogue {
namespace fs = std::filesystem;

Failure file_failure(const std::string& what, const std::string& path) {
  return {FailureCode::file_error, path + ": cannot " + what + ": " + std::strerror(errno)};
}

namespace {

// A rename survives a power failure once the folder's own data are on the disk. A folder that may
// not be read, or whose file system knows no such thing, is left to the system.
Status sync_folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ok_status();
  const bool failed = ::fsync(fd) != 0 && errno != EINVAL && errno != EROFS;
  const Failure failure = file_failure("flush the folder of", path);
  ::close(fd);
  if (failed) return failure;
  return ok_status();
}

struct OpenFile {
  int fd = -1;
  int64_t size = 0;
};

Result<OpenFile> open_regular(const std::string& path) {
  // Not blocking: opening a pipe without a writer would wait for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_failure("read", path);
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return OpenFile{fd, info.st_size};
  if (S_ISDIR(info.st_mode)) errno = EISDIR;
  const Failure failure =
      S_ISDIR(info.st_mode)
          ? file_failure("read", path)
          : Failure{FailureCode::file_error, path + ": cannot read: not a regular file"};
  ::close(fd);
  return failure;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  // Renaming over /dev/null or a pipe would replace it by a file.
  std::error_code error;
  const fs::file_status target = fs::status(path, error);
  if (fs::exists(target) && !fs::is_regular_file(target))
    return Failure{FailureCode::file_error, path + ": cannot write: not a regular file"};
  error.clear();
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error)
    return Failure{FailureCode::file_error,
                   parent.string() + ": cannot create folder: " + error.message()};
  // Another thread, or an earlier file of this one, may be writing the same path.
  static std::atomic<uint64_t> last{0};
  std::string temporary = path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(++last);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return file_failure("write", path);
  return AtomicFile(path, std::move(temporary), fd);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return file_failure("write", path_);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return ok_status();
}

Status AtomicFile::commit() {
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return file_failure("flush", path_);
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (closed && ::rename(temporary_.c_str(), path_.c_str()) == 0) return sync_folder_of(path_);
  const Failure failure = file_failure(closed ? "rename to" : "close", path_);
  ::unlink(temporary_.c_str());
  return failure;
}

Status write_file(const std::string& path, std::string_view bytes) {
  auto file = AtomicFile::create(path);
  if (!file) return file.failure();
  if (auto s = file.value().write(bytes); !s) return s;
  return file.value().commit();
}

Result<std::string> read_file(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.failure();
  const auto bytes = mapped.value().bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<ReadFile> ReadFile::open(const std::string& path) {
  auto opened = open_regular(path);
  if (!opened) return opened.failure();
  return ReadFile(path, opened.value().fd, opened.value().size);
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

ReadFile::~ReadFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::string> ReadFile::read(int64_t begin, int64_t end) const {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pread(fd_, bytes.data() + done, bytes.size() - done, begin + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_failure("read", path_);
    if (n == 0)
      return Failure{FailureCode::file_error, path_ + ": cannot read: it became shorter than " +
                                                  std::to_string(end) + " bytes while it was read"};
    done += static_cast<size_t>(n);
  }
  return bytes;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  auto opened = open_regular(path);
  if (!opened) return opened.failure();
  const int fd = opened.value().fd;
  const auto size = static_cast<size_t>(opened.value().size);
  if (size == 0) {
    ::close(fd);
    return MappedFile(nullptr, 0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) return file_failure("map", path);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace epilogue
