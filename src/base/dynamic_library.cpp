// SPDX-License-Identifier: Apache-2.0
#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {

std::vector<std::string> folders(const std::string& last) {
  std::vector<std::string> list = {""};  // as the dynamic linker looks
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const root = std::getenv(variable); root != nullptr && *root != '\0')
      for (const char* const folder : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"})
        list.push_back(root + std::string(folder));
  list.push_back(last + "/");
  list.push_back(last + "/../extras/CUPTI/lib64/");
  return list;
}

}  // namespace

DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names, const char* purpose,
                               const std::string& last_folder) {
  std::string reason;
  for (const std::string& folder : folders(last_folder))
    for (const char* const name : names) {
      handle_ = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = folder + name;
        return;
      }
      if (reason.empty()) reason = dlerror();
    }
  throw Error(std::string("[cuda] ") + purpose + " needs " + *names.begin() +
              " of the CUDA toolkit, which cannot be loaded (" + reason +
              "); set LD_LIBRARY_PATH or CUDA_HOME");
}

void DynamicLibrary::load_beside(const std::string& name) const {
  const size_t slash = name_.rfind('/');
  if (slash != std::string::npos)
    dlopen((name_.substr(0, slash + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* DynamicLibrary::find(const char* symbol) const {
  void* const address = dlsym(handle_, symbol);
  if (address == nullptr)
    throw Error("[cuda] expected " + std::string(symbol) + " in " + name_ + ", got none");
  return address;
}

}  // namespace epilogue
