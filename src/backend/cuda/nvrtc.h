// SPDX-License-Identifier: Apache-2.0
// NVRTC, found at run time: CUDA source to machine code. Needs no device.
#pragma once

#include <string>

#include "base/dynamic_library.h"

namespace epilogue::cuda {

// Throws Error where it is missing.
DynamicLibrary open_nvrtc();

struct Compiled {
  std::string cubin;
  std::string log;  // warnings, and ptxas's report of registers and spills where it was asked for
};

// Machine code for e.g. architecture 90. Throws Error with the compiler's log where the source does
// not compile, and where NVRTC is missing. Thread-safe.
Compiled compile_source(const std::string& source, int architecture, bool verbose = false);

// "13.0": part of what names compiled code. Throws Error where NVRTC is missing.
std::string nvrtc_version();

}  // namespace epilogue::cuda
