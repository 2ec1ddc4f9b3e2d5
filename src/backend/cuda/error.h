// SPDX-License-Identifier: Apache-2.0
// Every CUDA call is checked: a failure becomes an Error that names the call.
#pragma once

#include <cuda_runtime_api.h>

namespace epilogue::cuda {

// Throws Error "[cuda] cudaMalloc: out of memory (cudaErrorMemoryAllocation)".
void check(cudaError_t status, const char* call);

}  // namespace epilogue::cuda
