// SPDX-License-Identifier: Apache-2.0
// IDX: two zero bytes, an element type, a rank, big-endian dimensions, then the elements.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/printable.h"
#include "epilogue/io.h"
#include "io/message.h"

namespace epilogue {
namespace {

using io::io_failure;

constexpr int kUnsignedByte = 0x08;
constexpr int kMaxIdxRank = 3;
// Deflate cannot shrink anything further than this (zlib's technical details).
constexpr uint64_t kMaxDeflateRatio = 1032;
constexpr size_t kFirstChunkBytes = size_t{1} << 20;
constexpr size_t kMaxChunkBytes = size_t{1} << 26;

struct GzClose {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using GzHandle = std::unique_ptr<gzFile_s, GzClose>;

// The bytes of a plain or gzip file, with zlib's errors in our words.
class ByteSource {
 public:
  static Result<ByteSource> open(const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      return Failure{FailureCode::file_error, path + ": cannot read: not a regular file"};
    const uint64_t bytes = std::filesystem::file_size(path, error);
    GzHandle handle(error ? nullptr : gzopen(path.c_str(), "rb"));
    if (!handle) {
      if (error) errno = error.value();
      return file_failure("read", path);
    }
    return ByteSource(path, std::move(handle), bytes);
  }

  // As many of `bytes` as there are.
  Result<size_t> read(void* to, size_t bytes) {
    const int got = gzread(handle_.get(), to, static_cast<unsigned>(bytes));
    if (got == static_cast<int>(bytes)) return bytes;
    int code = Z_OK;
    std::string_view why = gzerror(handle_.get(), &code);
    // zlib puts the path first; the message has it already.
    if (why.starts_with(path_) && why.size() > path_.size() + 2)
      why.remove_prefix(path_.size() + 2);
    if (code == Z_ERRNO) return file_failure("read", path_);
    if (code == Z_BUF_ERROR)
      return io_failure(path_, FailureCode::idx_truncated,
                        "expected a whole gzip stream, got one that ends early");
    if (code != Z_OK && code != Z_STREAM_END)
      return io_failure(path_, FailureCode::idx_corrupt,
                        fmt::format("expected a valid gzip stream, got '{}'", printable(why)));
    return static_cast<size_t>(std::max(got, 0));
  }

  // Not compressed. Valid after the first read.
  bool is_plain() const { return gzdirect(handle_.get()) != 0; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::string& path() const { return path_; }

 private:
  ByteSource(std::string path, GzHandle handle, uint64_t bytes)
      : path_(std::move(path)), handle_(std::move(handle)), file_bytes_(bytes) {}
  std::string path_;
  GzHandle handle_;
  uint64_t file_bytes_;
};

Result<std::vector<int64_t>> read_dims(ByteSource& source) {
  const auto short_header = [&](size_t expected, size_t got) {
    return io_failure(source.path(), FailureCode::idx_header_too_small,
                      fmt::format("expected a header of {} bytes, got {}", expected, got));
  };
  std::array<uint8_t, 4> magic{};
  auto got = source.read(magic.data(), magic.size());
  if (!got) return got.failure();
  if (got.value() < magic.size()) return short_header(magic.size(), got.value());
  if (magic[0] != 0 || magic[1] != 0)
    return io_failure(source.path(), FailureCode::idx_invalid_magic,
                      fmt::format("expected a file that starts with 00 00, got {:02x} {:02x}",
                                  magic[0], magic[1]));
  if (magic[2] != kUnsignedByte)
    return io_failure(
        source.path(), FailureCode::idx_unsupported_type,
        fmt::format("expected elements of type 08 (unsigned byte), got {:02x}", magic[2]));
  if (magic[3] < 1 || magic[3] > kMaxIdxRank)
    return io_failure(source.path(), FailureCode::idx_unsupported_rank,
                      fmt::format("expected 1 to {} dimensions, got {}", kMaxIdxRank, magic[3]));
  std::array<uint8_t, 4 * kMaxIdxRank> raw{};
  const size_t bytes = size_t{4} * magic[3];
  got = source.read(raw.data(), bytes);
  if (!got) return got.failure();
  if (got.value() < bytes) return short_header(magic.size() + bytes, magic.size() + got.value());
  std::vector<int64_t> dims;
  for (size_t i = 0; i < bytes; i += 4)
    dims.push_back(int64_t{raw[i]} << 24 | raw[i + 1] << 16 | raw[i + 2] << 8 | raw[i + 3]);
  return dims;
}

// The size that the header promises, refused before any memory is taken for it when the file cannot
// hold it.
Result<uint64_t> promised_bytes(const ByteSource& source, const std::vector<int64_t>& dims) {
  uint64_t total = 1;
  bool fits = true;
  for (const int64_t dim : dims)
    fits = !__builtin_mul_overflow(total, static_cast<uint64_t>(dim), &total) && fits;
  const uint64_t header = 4 + 4 * dims.size();
  if (fits && source.is_plain() && total > source.file_bytes() - header)
    return io_failure(source.path(), FailureCode::idx_truncated,
                      fmt::format("expected {} bytes of data as the header says, got {}", total,
                                  source.file_bytes() - header));
  if (!fits || total > source.file_bytes() * kMaxDeflateRatio)
    return io_failure(source.path(), FailureCode::idx_too_large,
                      fmt::format("expected no more data than a file of {} bytes can hold, got the "
                                  "dimensions {}",
                                  source.file_bytes(), to_string(Dims(dims))));
  return total;
}

Status read_data(ByteSource& source, uint64_t total, std::vector<uint8_t>* data) {
  while (data->size() < total) {
    // Grow as the data come: a header alone must not make us allocate.
    const size_t have = data->size();
    const size_t chunk =
        std::min<uint64_t>(total - have, std::clamp(have, kFirstChunkBytes, kMaxChunkBytes));
    data->resize(have + chunk);
    auto got = source.read(data->data() + have, chunk);
    if (!got) return got.failure();
    if (got.value() < chunk)
      return io_failure(source.path(), FailureCode::idx_truncated,
                        fmt::format("expected {} bytes of data as the header says, got {}", total,
                                    have + got.value()));
  }
  return ok_status();
}

}  // namespace

Result<IdxFile> read_idx(const std::string& path, int64_t max_items) {
  auto opened = ByteSource::open(path);
  if (!opened) return opened.failure();
  ByteSource& source = opened.value();
  auto dims = read_dims(source);
  if (!dims) return dims.failure();
  auto total = promised_bytes(source, dims.value());
  if (!total) return total.failure();

  IdxFile out;
  out.dims = std::move(dims).value();
  uint64_t wanted = total.value();
  const bool is_partial = max_items >= 0 && max_items < out.dims[0];
  if (is_partial) {
    wanted = wanted / static_cast<uint64_t>(out.dims[0]) * static_cast<uint64_t>(max_items);
    out.dims[0] = max_items;
  }
  if (auto status = read_data(source, wanted, &out.data); !status) return status.failure();
  if (is_partial) return out;
  // One byte more: it finds trailing data, and makes zlib compare the checksum.
  uint8_t extra = 0;
  auto got = source.read(&extra, 1);
  if (!got) return got.failure();
  if (got.value() != 0)
    return io_failure(
        path, FailureCode::idx_trailing_bytes,
        fmt::format("expected {} bytes of data as the header says, got more", total.value()));
  return out;
}

}  // namespace epilogue
