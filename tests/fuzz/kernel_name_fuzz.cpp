// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: any bytes are a decoded name, and a name does not differ from itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "epilogue/trace/kernel_name.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace trace = epilogue::trace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Two names in one input, so that comparisons are reached too.
  const size_t cut = text.find('\n');
  const trace::KernelName a = trace::decode_kernel_name(text.substr(0, cut));
  const trace::KernelName b = trace::decode_kernel_name(
      cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1));
  if (trace::describe_difference(a, a) != "same kernel") std::abort();
  if (trace::describe_difference(a, b).empty()) std::abort();
  // Unknown means that nothing is claimed.
  if (!a.is_known() && (!a.fields.empty() || a.gemm || a.kind != trace::KernelKind::unknown))
    std::abort();
  return 0;
}
