// SPDX-License-Identifier: Apache-2.0
// The plans that one captured call may have, and which of them it gets.
//
//   model     the first one: every choice within it is made by the machine's rates among plans of
//             equal bits
//   measure   the fastest of all, timed on the inputs at hand; kept on disk by machine and graph
#pragma once

#include <string>
#include <vector>

#include "core/fused_kernel.h"
#include "epilogue/compile.h"
#include "passes/pipeline.h"

namespace epilogue::plan {

struct Candidate {
  std::string name;                    // "row-chains"; stable: checkpoints hold it
  std::string what;                    // "blocks of rows through all products"
  std::vector<std::string> skip = {};  // passes
  Packed packed = Packed::automatic;
  Saved saved = Saved::automatic;
  KernelTuning tuning = {};
};

// The plan that compile() makes unless told otherwise comes first. `trains`: the graph holds a
// backward pass.
std::vector<Candidate> candidates(bool trains);

// Of candidates(). Throws Error where there is none of this name.
Candidate candidate_of(const std::string& name, bool trains);

// The pipeline's options for a candidate: those that the caller gave come first.
passes::PipelineOptions pipeline_options(const CompileOptions& options, const Candidate& candidate);

}  // namespace epilogue::plan
