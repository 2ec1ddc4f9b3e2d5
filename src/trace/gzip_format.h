// SPDX-License-Identifier: Apache-2.0
// What zlib's deflateInit2() takes for a gzip stream.
#pragma once

namespace epilogue::trace {

inline constexpr int kGzipWrapper = 16;  // added to the window's bits
inline constexpr int kDefaultMemLevel = 8;

}  // namespace epilogue::trace
