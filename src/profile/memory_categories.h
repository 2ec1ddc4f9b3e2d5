// SPDX-License-Identifier: Apache-2.0
// Who held which memory: what was said of it, and what its life shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epilogue/trace/memory.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

struct MemoryCategories {
  std::vector<std::vector<trace::MemoryCategory>> of;  // [buffer][memory record]
  trace::CategoryBytes at_start{};  // allocated before the session, as far as it is known

  std::string at_start_json() const;
};

// torch.profiler's categories. A block of which something was said (parameter, optimizer state,
// input, gradient) is that, from its allocation on. Else it is temporary where it was freed in the
// node that allocated it (the outermost op, or node of the backward walk), autograd detail where
// that node is the walk's, an activation where it is another op, and unknown outside of ops.
MemoryCategories categorize_memory(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers);

}  // namespace epilogue::profiler
