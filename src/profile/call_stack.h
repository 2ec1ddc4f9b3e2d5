// SPDX-License-Identifier: Apache-2.0
// Names for the return addresses of a recorded call stack.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

namespace epilogue::profiler {

// Resolves addresses through the dynamic symbol table (link with -rdynamic to name a program's own
// functions) and remembers them. Frames: "epilogue::linear(...)", or "libfoo.so+0x1234" without a
// symbol.
class Symbolizer {
 public:
  const std::string& name(void* address);
  // Innermost first, joined by ';'.
  std::string stack(const std::vector<void*>& addresses);

 private:
  std::unordered_map<void*, std::string> names_;
};

}  // namespace epilogue::profiler
