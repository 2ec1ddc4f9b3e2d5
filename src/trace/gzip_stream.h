// SPDX-License-Identifier: Apache-2.0
// Compresses into a file that appears when it is complete.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace epilogue::trace {

// write() any number of times, then finish() once, which puts the file in place. Without finish()
// nothing is left behind. Not thread-safe.
class GzipStream {
 public:
  explicit GzipStream(AtomicFile file);
  GzipStream(GzipStream&&) noexcept;
  ~GzipStream();

  Status write(std::string_view bytes);
  Status finish();

 private:
  struct State;  // keeps zlib out of the header; zlib's own state must not move
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::trace
