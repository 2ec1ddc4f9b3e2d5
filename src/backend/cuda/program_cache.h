// SPDX-License-Identifier: Apache-2.0
// Compiled programs: in memory, and as files in $XDG_CACHE_HOME/epilogue (or ~/.cache/epilogue).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace epilogue::cuda {

// The folder of cached code; empty where neither variable is set: then nothing is kept.
std::string code_cache_folder();

// Machine code for the source: from its file, or by `compile`, whose result is then written. A file
// holds what it was made of and is not believed where that differs; what cannot be read or written
// only costs time. `key` says what else decides the code: architecture and compiler.
std::string cached_code(const std::string& folder, const std::string& key,
                        const std::string& source, const std::function<std::string()>& compile);

// The kernel `name` of the source on the device in use; compiled, cached and loaded where that was
// not done yet. Thread-safe. Throws Error as compile_source does.
cudaKernel_t load_kernel(const std::string& source, const std::string& name);

}  // namespace epilogue::cuda
