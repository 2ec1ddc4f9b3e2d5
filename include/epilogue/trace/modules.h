// SPDX-License-Identifier: Apache-2.0
// Time by nn.Module, where Python frames were recorded and read (ReadOptions::python_functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

struct ModuleTime {
  std::string path;  // "BertModel_0/BertEncoder_0/Linear_3"
  std::string name;  // its last part
  int depth = 0;     // 0: no module around it
  int64_t count = 0;
  int64_t cpu_ns = 0;
  int64_t self_cpu_ns = 0;  // not in modules below
  int64_t kernels = 0;      // launched inside, also by modules below
  int64_t device_ns = 0;    // the sum of that device work
  int64_t self_device_ns = 0;
};

// Parents before children, else in order of first appearance. Empty without module frames.
std::vector<ModuleTime> module_times(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
