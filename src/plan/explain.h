// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/compiled_entry.h"

namespace epilogue::plan {

// What the plan does, what was fused and what was not, and why, for people.
std::string explain(const Entry& entry);

// What Compiled's functions of these names give.
std::vector<FusionNote> notes(const Entry& entry);
// The candidates of the captured call, with their times where they were measured.
std::vector<PlanCandidate> candidates_of(const Entry& entry);
std::string dump(const Entry& entry, CompiledDump what);

}  // namespace epilogue::plan
