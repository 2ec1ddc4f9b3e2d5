// SPDX-License-Identifier: Apache-2.0
// A profile of the program's own steps, and what it says of them.
#include <epilogue/epilogue.h>
#include <epilogue/trace.h>

int main() {
  using namespace epilogue;
  const NoGrad inference;
  const nn::Linear linear(8, 2);
  profiler::Profile prof;
  prof.start();
  {
    const profiler::RecordFunction range("my_step");
    linear(ones({4, 8}));
  }
  prof.stop();
  const std::string table = trace::format_table(prof.key_averages());
  const bool named = table.find("my_step") != std::string::npos;
  return named && table.find("aten::linear") != std::string::npos ? 0 : 1;
}
