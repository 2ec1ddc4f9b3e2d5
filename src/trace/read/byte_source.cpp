// SPDX-License-Identifier: Apache-2.0
#include "trace/read/byte_source.h"

#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <sys/stat.h>
#include <unistd.h>

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
      if (n < 0)
        return Failure{FailureCode::cannot_open, path_ + ": cannot read: " + std::strerror(errno)};
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

// Inflates any number of gzip members. As with gunzip, zeros behind the last one are padding, and
// what else follows it is noted and ignored. ISA-L inflates about twice as fast as zlib, and with
// the tokens found at gigabytes per second this is the slowest stage of all.
class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)),
        in_(kCompressedBuffer),
        state_(std::make_unique<inflate_state>()) {
    isal_inflate_init(state_.get());
    state_->crc_flag = ISAL_GZIP;
  }

  Result<size_t> read(std::span<char> out) override {
    const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uint32_t>::max());
    state_->next_out = reinterpret_cast<uint8_t*>(out.data());
    state_->avail_out = static_cast<uint32_t>(room);
    while (state_->avail_out > 0 && !is_done_) {
      bool is_at_end = false;
      if (state_->avail_in == 0) {
        Result<size_t> n = compressed_->read(in_);
        if (!n) return n;
        state_->next_in = reinterpret_cast<uint8_t*>(in_.data());
        state_->avail_in = static_cast<uint32_t>(n.value());
        is_at_end = n.value() == 0;
      }
      pump(is_at_end);
    }
    return room - state_->avail_out;
  }
  bool is_gzip() const override { return true; }
  StreamFaults faults() const override { return faults_; }
  int64_t file_bytes_read() const override { return compressed_->file_bytes_read(); }
  int64_t file_bytes() const override { return compressed_->file_bytes(); }

 private:
  void pump(bool is_at_end) {
    if (state_->block_state == ISAL_BLOCK_FINISH) return next_member(is_at_end);
    const uint32_t room = state_->avail_out;
    const int code = isal_inflate(state_.get());
    if (state_->block_state == ISAL_BLOCK_FINISH) {
      faults_.has_bad_checksum |= code == ISAL_INCORRECT_CHECKSUM;
      return;
    }
    // At the end of the input what the decoder holds back still comes out.
    const bool is_stuck = is_at_end && state_->avail_out == room;
    if (code >= ISAL_DECOMP_OK && !is_stuck) return;
    is_done_ = true;
    const bool is_no_member = members_done_ > 0 && code == ISAL_INVALID_WRAPPER;
    (is_no_member ? faults_.has_trailing_bytes : faults_.is_truncated) = true;
  }

  // As far as the input at hand tells; isal_inflate() finds out the rest.
  bool may_start_member() const {
    const size_t known = std::min<size_t>(state_->avail_in, kGzipMagic.size());
    return std::memcmp(state_->next_in, kGzipMagic.data(), known) == 0;
  }

  // Another member follows where its magic number does.
  void next_member(bool is_at_end) {
    while (state_->avail_in > 0 && *state_->next_in == 0) {
      is_padding_ = true;
      ++state_->next_in;
      --state_->avail_in;
    }
    if (state_->avail_in == 0) {
      is_done_ = is_at_end;
    } else if (is_padding_ || !may_start_member()) {
      is_done_ = true;
      faults_.has_trailing_bytes = true;
    } else {
      ++members_done_;
      isal_inflate_reset(state_.get());
      state_->crc_flag = ISAL_GZIP;
    }
  }

  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> in_;
  std::unique_ptr<inflate_state> state_;
  StreamFaults faults_;
  int64_t members_done_ = 0;
  bool is_padding_ = false;  // zeros follow the last member
  bool is_done_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_source(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    return Failure{FailureCode::cannot_open, path + ": cannot read: " + why};
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

std::unique_ptr<ByteSource> memory_source(std::string_view bytes) {
  auto memory = std::make_unique<MemorySource>(bytes);
  if (!bytes.starts_with(kGzipMagic)) return memory;
  return std::make_unique<GzipSource>(std::move(memory));
}

}  // namespace epilogue::trace
