// SPDX-License-Identifier: Apache-2.0
// The ladder as a document.
#pragma once

#include <string>
#include <vector>

#include "tools/epilogue/bench/bench_ladder.h"
#include "tools/epilogue/bench/bench_report.h"

namespace epilogue::tool {

struct LadderRun {
  BenchMachine machine;
  std::string dtype;
  std::vector<Ladder> ladders;  // not empty
};

// The run must outlive it.
trace::Document ladder_document(const LadderRun& run);

}  // namespace epilogue::tool
