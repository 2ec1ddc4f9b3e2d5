// SPDX-License-Identifier: Apache-2.0
#include "trace/gzip_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "epilogue/base/error.h"
#include "trace/gzip_format.h"

namespace epilogue::trace {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // zlib counts in 32 bits

class Deflater {
 public:
  Deflater() {
    const int code = deflateInit2(&z_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzipWrapper,
                                  kDefaultMemLevel, Z_DEFAULT_STRATEGY);
    if (code != Z_OK) throw Error("[gzip] expected memory for a compressor, got none");
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() { deflateEnd(&z_); }

  // Appends what comes out of `piece` to `out`.
  void pump(std::string_view piece, bool is_last, std::string& out) {
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    z_.avail_in = static_cast<uInt>(piece.size());
    do {
      z_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
      z_.avail_out = static_cast<uInt>(buffer_.size());
      const int code = deflate(&z_, is_last ? Z_FINISH : Z_NO_FLUSH);
      EPI_ASSERT(code != Z_STREAM_ERROR, "deflate was misused");
      out.append(buffer_.data(), buffer_.size() - z_.avail_out);
    } while (z_.avail_out == 0);
  }

 private:
  z_stream z_{};
  std::vector<char> buffer_ = std::vector<char>(size_t{1} << 16);
};

}  // namespace

std::optional<std::string> gzip_bytes(std::string_view bytes, size_t limit_bytes) {
  Deflater deflater;
  std::string out;
  bool is_last = false;
  while (!is_last) {
    const std::string_view piece = bytes.substr(0, kPieceBytes);
    bytes.remove_prefix(piece.size());
    is_last = bytes.empty();
    deflater.pump(piece, is_last, out);
    if (out.size() > limit_bytes) return std::nullopt;
  }
  return out;
}

}  // namespace epilogue::trace
