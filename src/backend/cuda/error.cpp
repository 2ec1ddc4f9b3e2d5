// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/error.h"

#include <string>

#include "epilogue/base/error.h"

namespace epilogue::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // one failure is reported once, where it can be
  throw Error(std::string("[cuda] ") + call + ": " + cudaGetErrorString(status) + " (" +
              cudaGetErrorName(status) + ")");
}

}  // namespace epilogue::cuda
