// SPDX-License-Identifier: Apache-2.0
// Where a tensor's memory is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "epilogue/base/device_type.h"

#pragma GCC visibility push(default)

namespace epilogue {

// A device of type cpu or cuda.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(Device device);
// "cpu", "cuda" or "cuda:0"; throws Error on anything else.
Device parse_device(std::string_view name);

}  // namespace epilogue

#pragma GCC visibility pop
