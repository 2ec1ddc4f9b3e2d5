// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a build without CUDA: there is none, and this is why.
#include "core/backend.h"

namespace epilogue {

Backend* cuda_backend() { return nullptr; }

std::string cuda_status() {
  return "CUDA is not available: this build has no CUDA backend; configure it with "
         "-DEPILOGUE_CUDA=ON where a CUDA toolkit is, or use --device cpu";
}

std::vector<DeviceInfo> cuda_devices() { return {}; }

std::vector<CudaPart> cuda_parts() {
  return {{"toolkit", false, "this build has none (EPILOGUE_CUDA)"}};
}

}  // namespace epilogue
