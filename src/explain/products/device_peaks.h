// SPDX-License-Identifier: Apache-2.0
// Peaks of devices: published peak rates by device name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "epilogue/trace/event.h"
#include "epilogue/trace/kernel_name.h"

namespace epilogue::trace {

// Dense rates (no sparsity) in TFLOP/s (TOP/s for i8); 0: not published, or the device has none.
struct DevicePeaks {
  std::string_view device;  // what the entry is of: "H100 SXM"
  std::string_view source;
  double f64 = 0;   // tensor (matrix) cores where they take it
  double f32 = 0;   // ordinary multiply-adds; on AMD the matrix cores' rate
  double tf32 = 0;  // tensor cores
  double f16 = 0;   // tensor cores, f32 accumulation; bf16 has the same rate where there is one
  double fp8 = 0;
  double fp4 = 0;
  double i8 = 0;
  double memory_gb_per_s = 0;
  bool has_bf16 = true;
};

// By the name (and, for two of AMD's, the number of compute units) that the driver gives. Empty for
// a device that is not in the table or whose name fits several products: no guess is made. A CPU
// has the rates that its own trace measured (metadata), if it did.
std::optional<DevicePeaks> find_device_peaks(const DeviceProperties& device);
std::optional<DevicePeaks> find_device_peaks(const Trace& trace, int32_t device);

// The type that the multipliers take in this project's CPU kernels: 16-bit types are
// widened to f32, but for row chains of bf16 where the instruction set has products of its own.
// Empty where the trace does not tell.
std::string own_math_type(const Trace& trace, const KernelName& kernel);

// The rate for products of that type ("bf16", "tf32", "f32", "e4m3", ...); empty where there is
// none.
std::optional<double> peak_tflops(const DevicePeaks& peaks, std::string_view type);

bool is_amd(const DeviceProperties& device);

}  // namespace epilogue::trace
