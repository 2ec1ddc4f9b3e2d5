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

// The fault of a compressed stream.
struct StreamFaults {
  bool is_truncated = false;        // it ends early, or is damaged: nothing behind that was read
  bool has_bad_checksum = false;    // of a part of it
  bool has_trailing_bytes = false;  // something else follows it
};

// Reads forward only. Not thread-safe, except file_bytes_read().
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills as much of `out` as there is; less only at the end. A damaged stream ends where the
  // damage is. Failure: the file cannot be read.
  virtual Result<size_t> read(std::span<char> out) = 0;
  virtual bool is_gzip() const { return false; }
  // Known once read() came to its end.
  virtual StreamFaults faults() const { return {}; }
  virtual int64_t file_bytes_read() const = 0;
  // 0: not known (a pipe).
  virtual int64_t file_bytes() const = 0;
};

// "-" is stdin. Compressed files are recognised by their first bytes, not by their names.
Result<std::unique_ptr<ByteSource>> open_source(const std::string& path);
// Text, or what a compressed file holds. It must outlive the source.
std::unique_ptr<ByteSource> memory_source(std::string_view bytes);

}  // namespace epilogue::trace
