// SPDX-License-Identifier: Apache-2.0
// Somebody's trace: read it, ask what bounds it, what could be fused, and for its table. This part
// needs the trace libraries alone; no tensor is involved.
#include <cstdio>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/links.h"

int main(int argc, char** argv) {
  using namespace epilogue;
  if (argc != 2) {
    std::fprintf(stderr, "expected the path of a trace, got %d arguments\n", argc - 1);
    return 2;
  }
  const Result<trace::Trace> read = trace::read_trace(argv[1]);
  if (!read.ok()) {
    std::fprintf(stderr, "%s\n", read.failure().message.c_str());
    return 2;
  }
  const trace::Trace& trace = read.value();
  const trace::Explanation e = trace::explain(trace, trace::link(trace));
  std::printf("%lld events, %lld ops, %lld kernels, %zu steps\n", static_cast<long long>(e.events),
              static_cast<long long>(e.ops), static_cast<long long>(e.kernels), e.steps.size());
  for (const trace::Finding& finding : e.findings)
    if (finding.saving_us)
      std::printf("%s: up to %.0f us\n", finding.title.c_str(), *finding.saving_us);
  return e.ops > 0 ? 0 : 1;
}
