// SPDX-License-Identifier: Apache-2.0
// Prints the active instruction set level, or the error.
#include <cstdio>
#include <exception>

#include "base/cpu_features.h"

int main() {
  try {
    std::puts(epilogue::isa_name(epilogue::active_isa()).data());
    return 0;
  } catch (const std::exception& e) {
    std::puts(e.what());
    return 2;
  }
}
