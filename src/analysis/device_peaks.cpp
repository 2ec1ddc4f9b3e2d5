// SPDX-License-Identifier: Apache-2.0
#include "analysis/device_peaks.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "analysis/kernel_name_text.h"
#include "epilogue/trace/occupancy.h"

namespace epilogue::trace {
namespace {

struct Entry {
  std::array<std::string_view, 3> words;  // all must be words of the device's name; "" is none
  int32_t num_sms;                        // 0: any
  DevicePeaks peaks;
};

// Words that make it another product, or a part of one.
constexpr std::string_view kOtherProducts[] = {"MIG", "Laptop", "Mobile", "Max",
                                               "Ti",  "D",      "SUPER",  "NVL"};

// Dense rates of the vendors' data sheets; where a sheet gives rates with sparsity, half of them.
// clang-format off
constexpr Entry kEntries[] = {
    //                                                                  f64   f32    tf32   f16     fp8    fp4    i8     GB/s   bf16
    {{"V100", "SXM2", ""}, 0,     {"V100 SXM2", "NVIDIA V100 data sheet",         7.8,  15.7,  0,     125,    0,     0,     0,     900,   false}},
    {{"V100", "PCIE", ""}, 0,     {"V100 PCIe", "NVIDIA V100 data sheet",         7.0,  14.0,  0,     112,    0,     0,     0,     900,   false}},
    {{"V100S", "PCIE", ""}, 0,    {"V100S PCIe", "NVIDIA V100 data sheet",        8.2,  16.4,  0,     130,    0,     0,     0,     1134,  false}},
    {{"T4", "", ""}, 0,           {"T4", "NVIDIA T4 data sheet",                  0,    8.1,   0,     65,     0,     0,     130,   320,   false}},
    {{"A100", "SXM4", "40GB"}, 0, {"A100 SXM 40 GB", "NVIDIA A100 data sheet",    9.7,  19.5,  156,   312,    0,     0,     624,   1555,  true}},
    {{"A100", "SXM4", "80GB"}, 0, {"A100 SXM 80 GB", "NVIDIA A100 data sheet",    9.7,  19.5,  156,   312,    0,     0,     624,   2039,  true}},
    {{"A100", "PCIE", "40GB"}, 0, {"A100 PCIe 40 GB", "NVIDIA A100 data sheet",   9.7,  19.5,  156,   312,    0,     0,     624,   1555,  true}},
    {{"A100", "PCIE", "80GB"}, 0, {"A100 PCIe 80 GB", "NVIDIA A100 data sheet",   9.7,  19.5,  156,   312,    0,     0,     624,   1935,  true}},
    {{"A10", "", ""}, 0,          {"A10", "NVIDIA A10 data sheet",                0,    31.2,  62.5,  125,    0,     0,     250,   600,   true}},
    {{"L4", "", ""}, 0,           {"L4", "NVIDIA L4 data sheet",                  0,    30.3,  60,    121,    242.5, 0,     242.5, 300,   true}},
    {{"L40S", "", ""}, 0,         {"L40S", "NVIDIA L40S data sheet",              0,    91.6,  183,   362,    733,   0,     733,   864,   true}},
    {{"RTX", "3090", ""}, 0,      {"RTX 3090", "NVIDIA GA102 white paper",        0.56, 35.6,  35.6,  71,     0,     0,     284,   936,   true}},
    {{"RTX", "4090", ""}, 0,      {"RTX 4090", "NVIDIA Ada white paper",          1.29, 82.6,  82.6,  165.2,  330.3, 0,     660.6, 1008,  true}},
    {{"H100", "80GB", "HBM3"}, 0, {"H100 SXM", "NVIDIA H100 data sheet",          34,   67,    494.7, 989.4,  1978.9, 0,    1978.9, 3352, true}},
    {{"H100", "PCIE", ""}, 0,     {"H100 PCIe", "NVIDIA H100 data sheet",         26,   51,    378,   756,    1513,  0,     1513,  2039,  true}},
    {{"H200", "", ""}, 0,         {"H200 SXM", "NVIDIA H200 data sheet",          34,   67,    494.7, 989.4,  1978.9, 0,    1978.9, 4800, true}},
    {{"B200", "", ""}, 0,         {"B200", "NVIDIA HGX B200 data sheet",          37,   75,    1125,  2250,   4500,  9000,  4500,  8000,  true}},
    {{"B300", "", ""}, 0,         {"B300", "NVIDIA HGX B300 data sheet",          1.25, 75,    1125,  2250,   4500,  13500, 0,     8000,  true}},
    {{"MI210", "", ""}, 0,        {"MI210", "AMD Instinct MI210 data sheet",      45.3, 45.3,  0,     181,    0,     0,     181,   1638,  true}},
    {{"MI250X", "", ""}, 110,     {"MI250X, one of two dies", "AMD Instinct MI250X data sheet", 47.9, 47.9, 0, 191.5, 0, 0, 191.5, 1638,  true}},
    {{"MI300X", "", ""}, 304,     {"MI300X", "AMD Instinct MI300X data sheet",    163.4, 163.4, 653.7, 1307.4, 2614.9, 0,  2614.9, 5300, true}},
    {{"MI325X", "", ""}, 304,     {"MI325X", "AMD Instinct MI325X data sheet",    163.4, 163.4, 653.7, 1307.4, 2614.9, 0,  2614.9, 6000, true}},
};
// clang-format on

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// "NVIDIA A100-SXM4-40GB" -> NVIDIA, A100, SXM4, 40GB.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  for (const std::string_view part : split(name, ' '))
    for (const std::string_view word : split(part, '-')) words.push_back(upper(word));
  return words;
}

// A number of the metadata; empty where the key is not there or no plain number.
std::optional<double> metadata_number(const Trace& trace, std::string_view key) {
  for (const auto& [name, json] : trace.metadata) {
    if (name != key) continue;
    double value = 0;
    const auto [end, error] = std::from_chars(json.data(), json.data() + json.size(), value);
    if (error == std::errc() && end == json.data() + json.size() && value > 0) return value;
  }
  return std::nullopt;
}

}  // namespace

bool is_amd(const DeviceProperties& device) {
  return device.warp_size == 64 || device.name.starts_with("AMD");
}

std::optional<DevicePeaks> find_device_peaks(const DeviceProperties& device) {
  const std::vector<std::string> words = words_of(device.name);
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), upper(word)) != words.end();
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
  if (trace.device_label != "KERNEL") return find_device_peaks(*device);
  const std::optional<double> gflops = metadata_number(trace, "f32_peak_gflops");
  const std::optional<double> memory = metadata_number(trace, "memory_read_gb_per_s");
  if (!gflops) return std::nullopt;
  DevicePeaks peaks;
  peaks.device = "this CPU";
  peaks.source = "measured, in the trace's metadata";
  peaks.f32 = peaks.f16 = *gflops / kGigaPerTera;  // 16-bit types are multiplied as f32
  peaks.memory_gb_per_s = memory.value_or(0);
  return peaks;
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
