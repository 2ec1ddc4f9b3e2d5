// SPDX-License-Identifier: Apache-2.0
// The products of a run without a device beside what its CPU does at most.
#pragma once

#include "epilogue/trace/host.h"

namespace epilogue::trace {

// Sets the peaks of the host and of its products.
void compare_with_peaks(const CpuPeaks& peaks, HostTime& host);

}  // namespace epilogue::trace
