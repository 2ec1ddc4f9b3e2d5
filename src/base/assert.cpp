// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace epilogue::detail {

void assert_failed(const char* condition, const char* why, const char* file, int line) {
  // The only place where the library writes: the process is about to end because of our own bug.
  std::fprintf(stderr, "epilogue: internal error: %s (%s) at %s:%d\n", why, condition, file, line);
  std::abort();
}

}  // namespace epilogue::detail
