// SPDX-License-Identifier: Apache-2.0
#include "explain/products/gemm_rates.h"

#include <algorithm>
#include <cmath>

#include "epilogue/trace/gemms.h"
#include "explain/index/trace_metadata.h"
#include "explain/kernel_name/text.h"
#include "explain/products/device_peaks.h"
#include "explain/products/gemm_shape.h"
#include "explain/products/grid.h"

namespace epilogue::trace {
namespace {

constexpr int32_t kFirstTensorCoreMajor = 7;  // Volta
constexpr int32_t kFirstTf32Major = 8;        // Ampere
constexpr int64_t kTensorCoreMultiple = 8;    // 16-bit elements in 16 bytes

double element_bytes(std::string_view type, double otherwise) {
  const std::optional<int64_t> twice = element_bytes_x2(type);
  return twice ? static_cast<double>(*twice) / 2 : otherwise;
}

// A [M, K], B [K, N], C [M, N], each moved once: the least that can be.
std::optional<double> bytes_of_product(const Gemm& g) {
  const double a = element_bytes(g.a_type, 0);
  const double b = element_bytes(g.b_type, a);
  const double c = element_bytes(g.c_type, 0);
  if (a == 0 || b == 0 || c == 0) return std::nullopt;
  const auto m = static_cast<double>(g.shape->m);
  const auto n = static_cast<double>(g.shape->n);
  const auto k = static_cast<double>(g.shape->k);
  return static_cast<double>(g.shape->batch) * (m * k * a + k * n * b + m * n * c);
}

// What the multipliers take: the kernel's word before the op's. f32 without one of them is known
// only where the kernel says whether it runs on tensor cores.
std::string math_type_of(const Gemm& g, bool amd) {
  const std::optional<GemmFacts>& facts = g.name.gemm;
  if (facts && !facts->math_type.empty()) return facts->math_type;
  std::string type = facts && !facts->a_type.empty() ? facts->a_type : g.a_type;
  const bool known_cores = facts && facts->uses_tensor_cores.has_value();
  if (type == "f32") {
    if (amd) return type;
    return known_cores ? (*facts->uses_tensor_cores ? "tf32" : "f32") : std::string();
  }
  // There is no published rate for 16-bit products off the tensor cores.
  if (known_cores && !*facts->uses_tensor_cores && type != "f64") return {};
  return type;
}

void add_roofline(Gemm& g, const DevicePeaks& peaks) {
  g.peak_of = std::string(peaks.device) + ", " + std::string(peaks.source);
  g.peak_tflops = peak_tflops(peaks, g.math_type);
  if (g.tflops && g.peak_tflops) g.peak_pct = *g.tflops / *g.peak_tflops * 100;
  if (!g.intensity || peaks.memory_gb_per_s <= 0) return;
  const double by_memory = *g.intensity * peaks.memory_gb_per_s * 1e-3;  // TFLOP/s
  // A vector's product has too few operations for any ceiling: the lowest will do.
  const double ceiling = g.peak_tflops ? *g.peak_tflops : peaks.f32;
  if (by_memory < ceiling) {
    g.side = RooflineSide::memory;
    g.attainable_tflops = by_memory;
  } else if (g.peak_tflops) {
    g.side = RooflineSide::compute;
    g.attainable_tflops = g.peak_tflops;
  }
  if (g.tflops && g.attainable_tflops) g.attainable_pct = *g.tflops / *g.attainable_tflops * 100;
}

std::string odd_size(const GemmShape& shape) {
  for (const auto& [name, size] : {std::pair("M", shape.m), {"N", shape.n}, {"K", shape.k}})
    if (size % kTensorCoreMultiple != 0)
      return std::string(name) + " = " + std::to_string(size) + " is not a multiple of 8";
  return {};
}

struct TensorCoreMiss {
  std::string note;
  std::string advice;
};

TensorCoreMiss why_no_tensor_cores(const Gemm& g, const DeviceProperties* device) {
  const int32_t major = device != nullptr && !is_amd(*device) ? device->compute_major : 0;
  if (major > 0 && major < kFirstTensorCoreMajor) return {"the device has no tensor cores", ""};
  if (g.a_type == "f32") {
    if (major > 0 && major < kFirstTf32Major)
      return {"f32, which tensor cores take (as TF32) only from compute capability 8.0 on",
              "this device's take f16: mixed precision (torch.autocast) would use them"};
    return {"f32 without TF32",
            major == 0 ? "" : "torch.set_float32_matmul_precision('high') would allow TF32"};
  }
  if (g.a_type == "f64") return {"f64 on ordinary multiply-adds", ""};
  if (g.shape && (g.shape->m == 1 || g.shape->n == 1))
    return {"a matrix times a vector, which memory limits anyway", ""};
  if (const std::string odd = g.shape ? odd_size(*g.shape) : std::string(); !odd.empty())
    return {odd + " (16-byte rows of 16-bit elements)", "pad it to a multiple of 8"};
  return {};
}

// A split-K kernel starts a whole multiple of its tiles.
int64_t split_of(const Gemm& g, int64_t tiles) {
  const bool splits = g.reduction_ns > 0 || g.name.gemm->splits_k.value_or(false);
  if (!splits || !g.grid_blocks || *g.grid_blocks <= tiles || *g.grid_blocks % tiles != 0) return 1;
  return *g.grid_blocks / tiles;
}

// SMs x blocks of it that fit; a persistent kernel starts fewer blocks than it has tiles.
std::optional<int64_t> tiles_per_wave(const Gemm& g, const KernelArgs* args,
                                      const DeviceProperties* device, int64_t blocks,
                                      bool& assumes_one) {
  if (device == nullptr || device->num_sms <= 0) return std::nullopt;
  const auto fit = args == nullptr ? std::nullopt : compute_occupancy(*args, *device);
  assumes_one = !fit;
  int64_t capacity = device->num_sms * (fit ? fit->blocks_per_sm : 1);
  if (g.grid_blocks && *g.grid_blocks > 0 && *g.grid_blocks < blocks)
    capacity = std::min(capacity, *g.grid_blocks);
  return capacity;
}

}  // namespace

void add_rates(Gemm& g, const Trace& trace) {
  const DeviceProperties* device = find_device(trace, g.device);
  g.math_type = is_own_trace(trace) ? own_math_type(trace, g.name)
                                    : math_type_of(g, device != nullptr && is_amd(*device));
  if (g.flops) {
    if (g.shape) g.bytes = bytes_of_product(g);
    if (g.bytes && *g.bytes > 0) g.intensity = *g.flops / *g.bytes;
    if (const double time_ns = g.rate_time_ns(); time_ns > 0) {
      g.tflops = *g.flops / time_ns * 1e-3;
      if (g.bytes) g.gb_per_s = *g.bytes / time_ns;
    }
  }
  if (const auto peaks = find_device_peaks(trace, g.device)) add_roofline(g, *peaks);
}

void add_tensor_cores(Gemm& g, const DeviceProperties* device) {
  if (!g.name.gemm) return;
  g.uses_tensor_cores = g.name.gemm->uses_tensor_cores;
  if (g.uses_tensor_cores != false) return;
  TensorCoreMiss miss = why_no_tensor_cores(g, device);
  g.tensor_core_note = std::move(miss.note);
  g.tensor_core_advice = std::move(miss.advice);
}

void add_tiling(Gemm& g, const KernelArgs* args, const DeviceProperties* device) {
  // ROCm gives the grid in threads, not in blocks.
  if (args != nullptr && args->has_grid && (device == nullptr || !is_amd(*device)))
    g.grid_blocks = product(args->grid);
  if (!g.shape || !g.name.gemm || !g.name.gemm->tile_m || !g.name.gemm->tile_n) return;
  const GemmFacts& facts = *g.name.gemm;
  const int64_t rows = facts.is_column_major ? *facts.tile_n : *facts.tile_m;
  const int64_t columns = facts.is_column_major ? *facts.tile_m : *facts.tile_n;
  const int64_t down = ceil_div(g.shape->m, rows);
  const int64_t across = ceil_div(g.shape->n, columns);
  const std::optional<int64_t> tiles =
      product(std::array<int64_t, 3>{down, across, g.shape->batch});
  if (!tiles || *tiles <= 0) return;
  GemmTiling t;
  t.tiles = *tiles;
  const double computed = static_cast<double>(down) * static_cast<double>(rows) *
                          static_cast<double>(across) * static_cast<double>(columns);
  const double wanted = static_cast<double>(g.shape->m) * static_cast<double>(g.shape->n);
  t.padding_pct = (1 - wanted / computed) * 100;
  t.split_k = split_of(g, *tiles);
  const int64_t blocks = *tiles * t.split_k;
  t.tiles_per_wave = tiles_per_wave(g, args, device, blocks, t.assumes_one_block_per_sm);
  if (t.tiles_per_wave && *t.tiles_per_wave > 0) {
    t.waves = static_cast<double>(blocks) / static_cast<double>(*t.tiles_per_wave);
    t.wave_efficiency_pct = *t.waves / std::ceil(*t.waves) * 100;
    const int64_t rest = blocks % *t.tiles_per_wave;
    t.last_wave_fill_pct =
        rest == 0 ? 100 : static_cast<double>(rest) / static_cast<double>(*t.tiles_per_wave) * 100;
  }
  g.tiling = t;
}

}  // namespace epilogue::trace
