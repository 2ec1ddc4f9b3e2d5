// SPDX-License-Identifier: Apache-2.0
// The ladder as text, Markdown and JSON.
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

// format: text or markdown.
std::string ladder_text(const LadderRun& run, Format format);
std::string ladder_json(const LadderRun& run);

}  // namespace epilogue::tool
