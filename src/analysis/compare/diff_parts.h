// SPDX-License-Identifier: Apache-2.0
// Matches of work as parts of a difference, in words.
#pragma once

#include <string>

#include "analysis/compare/diff_match.h"
#include "analysis/kernel_name/kernel_labels.h"
#include "epilogue/trace/diff.h"

namespace epilogue::trace {

// `diff` says whether counts are of a step.
DiffPart part_of(const Match& match, const KernelLabels& labels, const TraceDiff& diff);

// "1,264", or "5.33": of an average step.
std::string count_text(double count);

}  // namespace epilogue::trace
