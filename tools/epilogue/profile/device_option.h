// SPDX-License-Identifier: Apache-2.0
// --device, for every command that runs something.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epilogue/tensor.h"

namespace epilogue::tool {

void add_device_flag(CLI::App& app, std::string& device);

// Throws Error, one line that says what to do, for other names than cpu and cuda and where the
// device is not there.
Device require_device(const std::string& name);

// "2 threads, avx512", or the device's name.
std::string device_description(Device device);

}  // namespace epilogue::tool
