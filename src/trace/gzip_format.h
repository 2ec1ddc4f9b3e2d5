// SPDX-License-Identifier: Apache-2.0
// The argument of zlib's deflateInit2() for a gzip stream.
#pragma once

namespace epilogue::trace {

inline constexpr int kGzipWrapper = 16;  // added to the window's bits
inline constexpr int kDefaultMemLevel = 8;

}  // namespace epilogue::trace
