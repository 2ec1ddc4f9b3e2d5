// SPDX-License-Identifier: Apache-2.0
// What of CUDA this machine has, device or not.
#include <cuda_runtime_api.h>

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/products/cublaslt.h"
#include "core/backend.h"
#include "epilogue/base/error.h"

namespace epilogue {
namespace {

// CUDA's numbers: 13020 is 13.2.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaPart driver() {
  int version = 0;
  const bool is_there = cudaDriverGetVersion(&version) == cudaSuccess && version != 0;
  return {"driver", is_there, is_there ? "for CUDA " + version_text(version) : "not found"};
}

CudaPart library(const char* name, DynamicLibrary (*open)()) {
  try {
    return {name, true, open().name()};
  } catch (const Error& e) {
    return {name, false, e.what()};
  }
}

}  // namespace

std::vector<CudaPart> cuda_parts() {
  return {{"toolkit", true, "of the build: " + version_text(CUDART_VERSION)},
          driver(),
          library("cuBLASLt", cuda::open_cublaslt),
          library("NVRTC", cuda::open_nvrtc)};
}

}  // namespace epilogue
