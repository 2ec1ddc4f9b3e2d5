// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/compiled_entry.h"

namespace epilogue::plan {

// What the plan does, what was fused and what was not, and why, for people.
std::string explain(const Entry& entry);

}  // namespace epilogue::plan
