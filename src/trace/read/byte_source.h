// SPDX-License-Identifier: Apache-2.0
// The bytes of a trace, decompressed: from a file, stdin or memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"

namespace epilogue::trace {

// Reads forward only. Not thread-safe, except file_bytes_read().
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills as much of `out` as there is; less only at the end. A damaged stream ends where the
  // damage is. Failure: the file cannot be read.
  virtual Result<size_t> read(std::span<char> out) = 0;
  virtual bool is_gzip() const { return false; }
  // The stream ended early or is damaged; known once read() came to its end.
  virtual bool is_truncated() const { return false; }
  virtual int64_t file_bytes_read() const = 0;
  // 0: not known (a pipe).
  virtual int64_t file_bytes() const = 0;
};

// "-" is stdin. Compressed files are told by their first bytes, not by their names.
Result<std::unique_ptr<ByteSource>> open_source(const std::string& path);
// The text must outlive the source.
std::unique_ptr<ByteSource> memory_source(std::string_view text);

}  // namespace epilogue::trace
