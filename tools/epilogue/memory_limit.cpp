// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/memory_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/units.h"
#include "epilogue/base/error.h"

namespace epilogue::tool {

double memory_limit_bytes() {
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  // "max" (no limit) and other systems' lack of the file leave the machine's.
  std::ifstream group("/sys/fs/cgroup/memory.max");
  double limit = 0;
  return group >> limit && limit > 0 ? std::min(machine, limit) : machine;
}

void require_memory(const std::string& flags, double elements, DType dtype) {
  const double bytes = elements * static_cast<double>(dtype_bytes(dtype));
  const double limit = memory_limit_bytes();
  if (bytes > limit)
    throw Error(fmt::format("[{}] expected sizes that fit in {} of memory, got {} or more", flags,
                            format_bytes(limit), format_bytes(bytes)));
}

}  // namespace epilogue::tool
