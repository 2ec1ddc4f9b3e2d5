// SPDX-License-Identifier: Apache-2.0
#include "trace/gzip_stream.h"

#include <zlib.h>

#include <array>

#include "base/assert.h"
#include "trace/gzip_format.h"

namespace epilogue::trace {
namespace {

// Traces repeat themselves: level 1 shrinks them about 15-fold already, and the levels above cost
// more time than the disk they save.
constexpr int kLevel = 1;

}  // namespace

struct GzipStream::State {
  explicit State(AtomicFile f) : file(std::move(f)) {}
  ~State() { deflateEnd(&z); }

  // Feeds `bytes` through deflate and writes what comes out.
  Status pump(std::string_view bytes, int flush) {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(bytes.size());
    do {
      z.next_out = reinterpret_cast<Bytef*>(out.data());
      z.avail_out = static_cast<uInt>(out.size());
      const int code = deflate(&z, flush);
      EPI_ASSERT(code != Z_STREAM_ERROR, "deflate was misused");
      if (Status s = file.write({out.data(), out.size() - z.avail_out}); !s) return s;
    } while (z.avail_out == 0);
    return ok_status();
  }

  AtomicFile file;
  z_stream z{};
  std::array<char, 1 << 16> out{};
};

GzipStream::GzipStream(AtomicFile file) : state_(std::make_unique<State>(std::move(file))) {
  const int code = deflateInit2(&state_->z, kLevel, Z_DEFLATED, MAX_WBITS + kGzipWrapper,
                                kDefaultMemLevel, Z_DEFAULT_STRATEGY);
  if (code != Z_OK) throw Error("[gzip] expected memory for a compressor, got none");
}
GzipStream::GzipStream(GzipStream&&) noexcept = default;
GzipStream::~GzipStream() = default;

Status GzipStream::write(std::string_view bytes) {
  // zlib counts in 32 bits.
  constexpr size_t kPiece = size_t{1} << 30;
  for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) {
    if (Status s = state_->pump(bytes.substr(0, kPiece), Z_NO_FLUSH); !s) return s;
  }
  return state_->pump(bytes, Z_NO_FLUSH);
}

Status GzipStream::finish() {
  if (Status s = state_->pump({}, Z_FINISH); !s) return s;
  return state_->file.commit();
}

}  // namespace epilogue::trace
