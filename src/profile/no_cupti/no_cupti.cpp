// SPDX-License-Identifier: Apache-2.0
// The tracer of a build without CUDA: there is none.
#include "profile/device_tracer.h"

namespace epilogue::profiler {

DeviceTracer* device_tracer() { return nullptr; }
std::string device_tracer_status() { return "this build has no CUDA backend"; }

}  // namespace epilogue::profiler
