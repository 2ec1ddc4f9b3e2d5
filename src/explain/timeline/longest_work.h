// SPDX-License-Identifier: Apache-2.0
// What a device works on most.
#pragma once

#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// The kernels, copies and fills of most time on that device, by name and op, a sentence each: those
// that take a tenth of its work or more, at most three.
std::vector<std::string> longest_work(const Trace& trace, const Links& links, int32_t device);

}  // namespace epilogue::trace
