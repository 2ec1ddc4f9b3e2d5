// SPDX-License-Identifier: Apache-2.0
#include "trace/read/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

namespace epilogue::trace {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr size_t kCompressedBuffer = size_t{1} << 18;
// Makes zlib expect gzip's header.
constexpr int kGzipWrapper = 16;

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : text_(text) {}
  Result<size_t> read(std::span<char> out) override {
    const size_t at = at_.load(std::memory_order_relaxed);
    const size_t n = std::min(out.size(), text_.size() - at);
    std::copy_n(text_.data() + at, n, out.data());
    at_.store(at + n, std::memory_order_relaxed);
    return n;
  }
  int64_t file_bytes_read() const override { return static_cast<int64_t>(at_.load()); }
  int64_t file_bytes() const override { return static_cast<int64_t>(text_.size()); }

 private:
  std::string_view text_;
  std::atomic<size_t> at_ = 0;
};

class FileSource : public ByteSource {
 public:
  FileSource(std::string path, int fd, int64_t bytes)
      : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  ~FileSource() override {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  // The first bytes, which read() will give again.
  Result<std::string_view> look_ahead() {
    head_.resize(kGzipMagic.size());
    Result<size_t> n = read_file(head_);
    if (!n) return n.failure();
    head_.resize(n.value());
    return std::string_view(head_.data(), head_.size());
  }

  Result<size_t> read(std::span<char> out) override {
    const size_t from_head = std::min(out.size(), head_.size());
    std::copy_n(head_.begin(), from_head, out.begin());
    head_.erase(head_.begin(), head_.begin() + static_cast<ptrdiff_t>(from_head));
    Result<size_t> n = read_file(out.subspan(from_head));
    if (!n) return n;
    return from_head + n.value();
  }
  int64_t file_bytes_read() const override { return done_.load(std::memory_order_relaxed); }
  int64_t file_bytes() const override { return bytes_; }

 private:
  Result<size_t> read_file(std::span<char> out) {
    size_t filled = 0;
    while (filled < out.size()) {
      const ssize_t n = ::read(fd_, out.data() + filled, out.size() - filled);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failure{"CannotOpen", path_ + ": cannot read: " + std::strerror(errno)};
      if (n == 0) break;
      filled += static_cast<size_t>(n);
    }
    done_.fetch_add(static_cast<int64_t>(filled), std::memory_order_relaxed);
    return filled;
  }

  std::string path_;
  int fd_;
  int64_t bytes_;
  std::vector<char> head_;
  std::atomic<int64_t> done_ = 0;
};

// Inflates any number of gzip members; what follows the last one is ignored, as gunzip does.
class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)), in_(kCompressedBuffer) {
    if (inflateInit2(&z_, MAX_WBITS + kGzipWrapper) != Z_OK)
      throw Error("[trace] expected memory for a decompressor, got none");
  }
  ~GzipSource() override { inflateEnd(&z_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  Result<size_t> read(std::span<char> out) override {
    const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uInt>::max());
    z_.next_out = reinterpret_cast<Bytef*>(out.data());
    z_.avail_out = static_cast<uInt>(room);
    while (z_.avail_out > 0 && !is_done_) {
      if (z_.avail_in == 0) {
        Result<size_t> n = compressed_->read(in_);
        if (!n) return n;
        z_.next_in = reinterpret_cast<Bytef*>(in_.data());
        z_.avail_in = static_cast<uInt>(n.value());
        if (n.value() == 0) {
          is_truncated_ = is_in_member_;
          is_done_ = true;
          break;
        }
      }
      pump();
    }
    return room - z_.avail_out;
  }
  bool is_gzip() const override { return true; }
  bool is_truncated() const override { return is_truncated_; }
  int64_t file_bytes_read() const override { return compressed_->file_bytes_read(); }
  int64_t file_bytes() const override { return compressed_->file_bytes(); }

 private:
  void pump() {
    const bool is_new_member = !is_in_member_;
    is_in_member_ = true;
    const int code = inflate(&z_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      is_in_member_ = false;
      has_member_ = true;
      inflateReset(&z_);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      // Padding behind a complete member is no damage.
      is_truncated_ = !(is_new_member && has_member_);
      is_done_ = true;
    }
  }

  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> in_;
  z_stream z_{};
  bool is_in_member_ = false;
  bool has_member_ = false;
  bool is_truncated_ = false;
  bool is_done_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_source(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    return Failure{"CannotOpen", path + ": cannot read: " + why};
  };
  const int fd = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(std::strerror(errno));
  struct stat info {};
  const bool is_known = ::fstat(fd, &info) == 0;
  const int64_t bytes = is_known && S_ISREG(info.st_mode) ? info.st_size : 0;
  auto file = std::make_unique<FileSource>(path, fd, bytes);
  if (is_known && S_ISDIR(info.st_mode)) return fail(std::strerror(EISDIR));
  const Result<std::string_view> head = file->look_ahead();
  if (!head) return head.failure();
  if (head.value() != kGzipMagic) return std::unique_ptr<ByteSource>(std::move(file));
  return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(std::move(file)));
}

std::unique_ptr<ByteSource> memory_source(std::string_view text) {
  return std::make_unique<MemorySource>(text);
}

}  // namespace epilogue::trace
