// SPDX-License-Identifier: Apache-2.0
// Reads a trace with the library of the Python package.
#include <cstdio>

#include "epilogue/trace.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto trace = epilogue::trace::read_trace(argv[1]);
  if (!trace) return 1;
  const auto said = epilogue::trace::explain(trace.value(), epilogue::trace::link(trace.value()));
  std::printf("%zu findings\n", said.findings.size());
  return said.findings.empty() ? 1 : 0;
}
