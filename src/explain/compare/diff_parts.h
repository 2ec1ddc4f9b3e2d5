// SPDX-License-Identifier: Apache-2.0
// Matches of work as parts of a difference, in words.
#pragma once

#include <string>

#include "epilogue/trace/diff.h"
#include "explain/compare/diff_match.h"
#include "explain/kernel_name/kernel_labels.h"

namespace epilogue::trace {

// `diff` says whether counts are of a step.
DiffPart part_of(const Match& match, const KernelLabels& labels, const TraceDiff& diff);

// "1,264", or "5.33": of an average step.
std::string count_text(double count);
// The word for counts of both sides: `one` if both are 1.
std::string_view noun_for(const std::array<double, 2>& n, std::string_view one,
                          std::string_view many);

}  // namespace epilogue::trace
