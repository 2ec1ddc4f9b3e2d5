// SPDX-License-Identifier: Apache-2.0
#include "core/backend.h"

namespace epilogue {

Backend& backend_of(Device device) {
  return device.type == DeviceType::cpu ? cpu_backend() : device_backend(device);
}

}  // namespace epilogue
