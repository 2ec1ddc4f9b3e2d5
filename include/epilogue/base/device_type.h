// SPDX-License-Identifier: Apache-2.0
// Kinds of devices, for tensors and for what traces say.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

namespace epilogue {

// c10::DeviceType, with its values. Tensors live on the first two; traces name the others too.
enum class DeviceType : int32_t {
  cpu = 0,
  cuda = 1,
  mkldnn = 2,
  ideep = 5,
  hip = 6,
  xpu = 12,
  private_use1 = 20,
};

}  // namespace epilogue

#pragma GCC visibility pop
