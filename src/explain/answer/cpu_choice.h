// SPDX-License-Identifier: Apache-2.0
// Which CPU recorded a trace, as users name it.
#pragma once

#include <optional>

#include "epilogue/trace/explain.h"
#include "explain/answer/load.h"

namespace epilogue::trace {

// Empty where no CPU is named. Throws Error if the name is not known, or this machine was not
// measured.
std::optional<CpuPeaks> peaks_of_choice(const CpuChoice& choice);

// Throws Error where a CPU is named for a folder of several traces.
void refuse_for_ranks(const CpuChoice& choice, const TraceInput& folder, size_t traces);

// Warns where a CPU is named and the explanation has no use for it.
void warn_if_unused(const CpuChoice& choice, const Trace& trace, const Explanation& e,
                    const AnswerHooks& hooks);

}  // namespace epilogue::trace
