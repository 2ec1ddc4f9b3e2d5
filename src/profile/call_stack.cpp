// SPDX-License-Identifier: Apache-2.0
#include "profile/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace epilogue::profiler {
namespace {

std::string resolve(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return fmt::format("{}", address);
  if (info.dli_sname != nullptr) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    std::string name = status == 0 ? demangled : info.dli_sname;
    std::free(demangled);
    return name;
  }
  std::string_view file = info.dli_fname != nullptr ? info.dli_fname : "?";
  file = file.substr(file.find_last_of('/') + 1);
  return fmt::format("{}+{:#x}", file,
                     static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
}

}  // namespace

const std::string& Symbolizer::name(void* address) {
  const auto it = names_.find(address);
  return it != names_.end() ? it->second : names_.emplace(address, resolve(address)).first->second;
}

std::string Symbolizer::stack(const std::vector<void*>& addresses) {
  std::string text;
  for (void* address : addresses) {
    if (!text.empty()) text += ';';
    text += name(address);
  }
  return text;
}

}  // namespace epilogue::profiler
