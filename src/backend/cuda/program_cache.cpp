// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/program_cache.h"

#include <array>
#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "backend/cuda/error.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/runtime.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/machine.h"

namespace epilogue::cuda {
namespace {

// The hash names files only; their content is compared.
std::string file_of(const std::string& folder, const std::string& made_of) {
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(fnv1a(made_of)));
  return folder + "/" + hex.data() + ".cubin";
}

}  // namespace

std::string code_cache_folder() { return user_cache_folder(); }

// A file: what the code was made of, a zero byte, the code.
std::string cached_code(const std::string& folder, const std::string& key,
                        const std::string& source, const std::function<std::string()>& compile) {
  const std::string head = key + "\n" + source + '\0';
  if (folder.empty()) return compile();
  const std::string path = file_of(folder, head);
  if (const Result<std::string> file = read_file(path);
      file && file.value().size() > head.size() && file.value().starts_with(head))
    return file.value().substr(head.size());
  std::string code = compile();
  // Without the file the next process compiles again: no reason to fail.
  static_cast<void>(write_file(path, head + code));
  return code;
}

cudaKernel_t load_kernel(const std::string& source, const std::string& name) {
  static std::mutex mutex;
  static auto* const loaded = new std::unordered_map<std::string, cudaKernel_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded->find(source);
  if (found != loaded->end()) return found->second;
  const int architecture = Runtime::get().architecture();
  const auto compile = [&] { return compile_source(source, architecture).cubin; };
  const std::string key = "sm_" + std::to_string(architecture) + " nvrtc " + nvrtc_version();
  std::string code = cached_code(code_cache_folder(), key, source, compile);
  const auto load = [&](cudaLibrary_t& library) {
    return cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  cudaLibrary_t library = nullptr;
  if (load(library) != cudaSuccess) {  // a damaged file
    cudaGetLastError();
    code = compile();
    check(load(library), "cudaLibraryLoadData");
  }
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, name.c_str()), "cudaLibraryGetKernel");
  loaded->emplace(source, kernel);
  return kernel;
}

}  // namespace epilogue::cuda
