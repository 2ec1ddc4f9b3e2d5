// SPDX-License-Identifier: Apache-2.0
// EPI_ASSERT: for our own bugs only; misuse throws Error, bad input returns Failure.
#pragma once

namespace epilogue::detail {
[[noreturn]] void assert_failed(const char* condition, const char* why, const char* file, int line);
}  // namespace epilogue::detail

// Always on: every use is outside inner loops.
#define EPI_ASSERT(condition, why) \
  (static_cast<bool>(condition)    \
       ? static_cast<void>(0)      \
       : ::epilogue::detail::assert_failed(#condition, (why), __FILE__, __LINE__))
