// SPDX-License-Identifier: Apache-2.0
// Prints the library's numbers of a trace for independent_count.py.
#include <cstdio>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto trace = epilogue::trace::read_trace(argv[1]).value();
  for (const auto& quantity : epilogue::trace::quantities(trace))
    if (quantity.value) std::printf("%s %.3f\n", quantity.name.c_str(), *quantity.value);
  return 0;
}
