// SPDX-License-Identifier: Apache-2.0
#include "explain/products/device_peaks.h"

#include <algorithm>
#include <array>

#include "epilogue/trace/gemms.h"
#include "explain/index/trace_metadata.h"
#include "explain/kernel_name/text.h"

namespace epilogue::trace {
namespace {

struct Entry {
  std::array<std::string_view, 3> words;  // all must be words of the device's name; "" is none
  DevicePeaks peaks;
  int32_t num_sms = 0;  // 0: any
};

// Words that make it another product, or a part of one.
constexpr std::string_view kOtherProducts[] = {"MIG", "Laptop", "Mobile", "Max",
                                               "Ti",  "D",      "SUPER",  "NVL"};

constexpr std::string_view kNvidia = "NVIDIA data sheet";
constexpr std::string_view kWhitePaper = "NVIDIA white paper";  // GA102, Ada
constexpr std::string_view kAmd = "AMD data sheet";

// Dense rates of the vendors' data sheets; where a sheet gives rates with sparsity, half of them.
// clang-format off
constexpr Entry kEntries[] = {
    // words of the name, device, source, f64, f32, tf32, f16, fp8, fp4, i8, GB/s, has bf16, SMs
    {{"V100", "SXM2"}, {"V100 SXM2", kNvidia, 7.8, 15.7, 0, 125, 0, 0, 0, 900, false}},
    {{"V100", "PCIE"}, {"V100 PCIe", kNvidia, 7.0, 14.0, 0, 112, 0, 0, 0, 900, false}},
    {{"V100S", "PCIE"}, {"V100S PCIe", kNvidia, 8.2, 16.4, 0, 130, 0, 0, 0, 1134, false}},
    {{"T4"}, {"T4", kNvidia, 0, 8.1, 0, 65, 0, 0, 130, 320, false}},
    {{"A100", "SXM4", "40GB"}, {"A100 SXM 40GB", kNvidia, 19.5, 19.5, 156, 312, 0, 0, 624, 1555}},
    {{"A100", "SXM4", "80GB"}, {"A100 SXM 80GB", kNvidia, 19.5, 19.5, 156, 312, 0, 0, 624, 2039}},
    {{"A100", "PCIE", "40GB"}, {"A100 PCIe 40GB", kNvidia, 19.5, 19.5, 156, 312, 0, 0, 624, 1555}},
    {{"A100", "PCIE", "80GB"}, {"A100 PCIe 80GB", kNvidia, 19.5, 19.5, 156, 312, 0, 0, 624, 1935}},
    {{"A10"}, {"A10", kNvidia, 0, 31.2, 62.5, 125, 0, 0, 250, 600}},
    {{"L4"}, {"L4", kNvidia, 0, 30.3, 60, 121, 242.5, 0, 242.5, 300}},
    {{"L40S"}, {"L40S", kNvidia, 0, 91.6, 183, 362, 733, 0, 733, 864}},
    {{"RTX", "3090"}, {"RTX 3090", kWhitePaper, 0.56, 35.6, 35.6, 71, 0, 0, 284, 936}},
    {{"RTX", "4090"}, {"RTX 4090", kWhitePaper, 1.29, 82.6, 82.6, 165.2, 330.3, 0, 660.6, 1008}},
    {{"H100", "80GB", "HBM3"}, {"H100 SXM", kNvidia, 67, 67, 494.7, 989.4, 1979, 0, 1979, 3352}},
    {{"H100", "PCIE"}, {"H100 PCIe", kNvidia, 51, 51, 378, 756, 1513, 0, 1513, 2039}},
    {{"H200"}, {"H200 SXM", kNvidia, 67, 67, 494.7, 989.4, 1979, 0, 1979, 4800}},
    {{"B200"}, {"B200", kNvidia, 37, 75, 1125, 2250, 4500, 9000, 4500, 8000}},
    {{"B300"}, {"B300", kNvidia, 1.25, 75, 1125, 2250, 4500, 13500, 0, 8000}},
    {{"MI210"}, {"MI210", kAmd, 45.3, 45.3, 0, 181, 0, 0, 181, 1638}},
    {{"MI250X"}, {"MI250X, one of two dies", kAmd, 47.9, 47.9, 0, 191.5, 0, 0, 191.5, 1638}, 110},
    {{"MI300X"}, {"MI300X", kAmd, 163.4, 163.4, 653.7, 1307.4, 2614.9, 0, 2614.9, 5300}, 304},
    {{"MI325X"}, {"MI325X", kAmd, 163.4, 163.4, 653.7, 1307.4, 2614.9, 0, 2614.9, 6000}, 304},
};
// clang-format on

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// "NVIDIA A100-SXM4-40GB" -> NVIDIA, A100, SXM4, 40GB.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  for (const std::string_view part : split(name, ' '))
    for (const std::string_view word : split(part, '-')) words.push_back(upper_case(word));
  return words;
}

}  // namespace

bool is_amd(const DeviceProperties& device) {
  return device.warp_size == 64 || device.name.starts_with("AMD");
}

std::optional<DevicePeaks> find_device_peaks(const DeviceProperties& device) {
  const std::vector<std::string> words = words_of(device.name);
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), upper_case(word)) != words.end();
  };
  for (const std::string_view other : kOtherProducts)
    if (has(other)) return std::nullopt;
  for (const Entry& entry : kEntries) {
    const bool fits = std::all_of(entry.words.begin(), entry.words.end(),
                                  [&](std::string_view word) { return word.empty() || has(word); });
    if (fits && (entry.num_sms == 0 || entry.num_sms == device.num_sms)) return entry.peaks;
  }
  return std::nullopt;
}

std::optional<DevicePeaks> find_device_peaks(const Trace& trace, int32_t index) {
  constexpr double kGigaPerTera = 1e3;
  const DeviceProperties* device = find_device(trace, index);
  if (device == nullptr) return std::nullopt;
  if (!is_own_cpu_trace(trace)) return find_device_peaks(*device);
  const std::optional<double> f32 = metadata_number(trace, "f32_peak_gflops");
  if (!f32) return std::nullopt;
  DevicePeaks peaks;
  peaks.device = "this CPU";
  peaks.source = "measured, in the trace's metadata";
  peaks.f32 = *f32 / kGigaPerTera;
  peaks.f16 = metadata_number(trace, "bf16_peak_gflops").value_or(0) / kGigaPerTera;
  peaks.memory_gb_per_s = metadata_number(trace, "memory_read_gb_per_s").value_or(0);
  return peaks;
}

std::string own_math_type(const Trace& trace, const KernelName& kernel) {
  if (!kernel.gemm) return {};
  const std::string& type = kernel.gemm->a_type;
  const KernelField* operation = kernel.find("operation");
  const bool is_chain = operation != nullptr && operation->value == "row_chain";
  const std::string_view isa = find_metadata(trace, "isa_used").value_or("");
  if (type == "bf16" && is_chain) {
    if (isa.empty()) return {};
    if (contains(isa, "bf16") || contains(isa, "amx")) return type;
  }
  return type == "bf16" || type == "f16" ? "f32" : type;
}

std::optional<double> peak_tflops(const DevicePeaks& peaks, std::string_view type) {
  double rate = 0;
  if (type == "f64") rate = peaks.f64;
  if (type == "f32") rate = peaks.f32;
  if (type == "tf32" || type == "xf32") rate = peaks.tf32;
  if (type == "f16" || (type == "bf16" && peaks.has_bf16)) rate = peaks.f16;
  if (type == "e4m3" || type == "e5m2" || type == "mxfp8_e4m3" || type == "mxfp8_e5m2")
    rate = peaks.fp8;
  if (type == "e2m1" || type == "mxfp4" || type == "nvfp4") rate = peaks.fp4;
  if (type == "i8" || type == "u8") rate = peaks.i8;
  return rate > 0 ? std::optional<double>(rate) : std::nullopt;
}

}  // namespace epilogue::trace
