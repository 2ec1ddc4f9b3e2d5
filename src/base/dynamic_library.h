// SPDX-License-Identifier: Apache-2.0
// Libraries of the CUDA toolkit that are looked for when they are needed: they are not linked, so
// that a program starts on machines without them.
#pragma once

#include <initializer_list>
#include <string>

namespace epilogue {

// Never closed: what a library registered must outlive static destructors.
class DynamicLibrary {
 public:
  // Tries the names in order: as the dynamic linker looks, in the toolkit that CUDA_HOME or
  // CUDA_PATH names, in `folder` (of the toolkit that this was built with). Throws Error that says
  // what the library is for.
  DynamicLibrary(std::initializer_list<const char*> names, const char* purpose,
                 const std::string& folder);

  // Sets a function pointer. Throws Error where the library lacks the symbol.
  template <class Function>
  void load(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(find(symbol));
  }
  const std::string& name() const { return name_; }
  // Loads another library from this one's folder, which this one opens later by its bare name. Does
  // nothing where the dynamic linker found this one: it finds the other one, too.
  void load_beside(const std::string& name) const;

 private:
  void* find(const char* symbol) const;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace epilogue
