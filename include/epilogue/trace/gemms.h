// SPDX-License-Identifier: Apache-2.0
// The matrix products of a trace, and how well its kernels fill the device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/kernel_name.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Matrix products ----------------------------------------------------------------------------
// The matrix products of a trace: their sizes, rates, place on the roofline, and how their tiles
// fit the device.

// `batch` products [m, k] x [k, n] -> [m, n], row-major.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;

  // Of all batches: 2 m n k each.
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batch);
  }
  auto operator<=>(const GemmShape&) const = default;
};

// Which side of the roofline's ridge a product lies on, by its arithmetic intensity.
enum class RooflineSide : uint8_t { memory, compute };

// How the kernel's blocks cover the result, and how the blocks fill the device.
struct GemmTiling {
  int64_t tiles = 0;       // blocks of the result, all batches
  int64_t split_k = 1;     // blocks that share a tile's sum, read off the grid
  double padding_pct = 0;  // of the computed elements: outside the result, in ragged tiles
  // Tiles that run at once: SMs x blocks that fit on one, or the blocks of a persistent kernel.
  // Empty: the trace does not describe the device.
  std::optional<int64_t> tiles_per_wave;
  bool assumes_one_block_per_sm = false;      // what fits on an SM could not be computed
  std::optional<double> waves;                // tiles / tiles_per_wave
  std::optional<double> wave_efficiency_pct;  // waves over whole waves: 1.1 waves take 2
  std::optional<double> last_wave_fill_pct;
};

// All launches of one kernel for one op with the same shapes.
struct Gemm {
  std::string op;  // "aten::addmm"; empty if no op gives the shapes
  std::string kernel;
  KernelName name;
  int32_t device = 0;
  std::optional<GemmShape> shape;
  // The shapes come from an op further out than the one that launched the kernel.
  bool is_shape_of_enclosing_op = false;
  std::string a_type;  // of the op's inputs; if they are not recorded, of the kernel's name
  std::string b_type;
  std::string c_type;
  Distribution time;
  int64_t reduction_ns = 0;  // kernels that add up its split K, all launches

  // FLOPs of one launch. Empty if the shapes are not known, or the op launches several products,
  // unless the kernel states them itself (a fused kernel of this project: of all its ops).
  std::optional<double> flops;
  std::optional<double> bytes;      // A, B and C once each
  std::optional<double> intensity;  // flops per byte
  // Over rate_time_ns().
  std::optional<double> tflops;
  std::optional<double> gb_per_s;
  std::string math_type;  // of the multipliers; empty: not known
  std::string peak_of;    // the device and the source of its rates; empty: not in the table
  std::optional<double> peak_tflops;
  std::optional<double> peak_pct;
  std::optional<double> attainable_tflops;  // min(peak, intensity x memory bandwidth)
  std::optional<double> attainable_pct;     // achieved over attainable
  std::optional<RooflineSide> side;

  std::optional<bool> uses_tensor_cores;
  std::string tensor_core_note;    // why not, as far as it shows; empty if they are used
  std::string tensor_core_advice;  // what would change that; empty: nothing is known to
  std::optional<GemmTiling> tiling;
  std::optional<int64_t> grid_blocks;

  // Mean time per launch of the kernels that add up its split K. 0 without one.
  double reduction_ns_per_launch() const {
    return time.count > 0 ? static_cast<double>(reduction_ns) / static_cast<double>(time.count) : 0;
  }
  // Time that rates are computed over: the median, and the reduction beside it.
  double rate_time_ns() const {
    return static_cast<double>(time.median_ns) + reduction_ns_per_launch();
  }
};

// Two products of the same FLOPs, and what sets the faster apart, as positions in `gemms`. Both ran
// several times, and the slower one's best run took longer than the faster one's median.
struct GemmComparison {
  size_t faster = 0;
  size_t slower = 0;
  double ratio = 1;  // of their rates
  std::string sentence;
};

struct GemmReport {
  std::vector<Gemm> gemms;  // by total time, longest first
  int64_t kernels = 0;      // GEMM kernels in the trace
  int64_t total_ns = 0;
  int64_t kernels_with_shape = 0;
  std::vector<GemmComparison> comparisons;  // the biggest ratio first
};

// Kernels below a convolution are left out: they are part of it.
GemmReport gemm_report(const Trace& trace, const Links& links);

// --- Rooflines of other ops ---------------------------------------------------------------------
// Work and traffic of convolutions, attention, norms, softmax, elementwise ops and reductions,
// and how near that comes to what the device can do.

enum class RooflineKind : uint8_t { convolution, attention, norm, softmax, elementwise, reduction };
std::string_view roofline_kind_name(RooflineKind kind);  // "convolution"

// All runs on a device of one op with the same inputs.
struct OpRoofline {
  RooflineKind kind = RooflineKind::elementwise;
  std::string op;      // "aten::native_layer_norm"
  std::string shapes;  // "[4, 197, 768] bf16, [768] bf16"
  std::string type;    // of the first tensor
  std::string kernel;  // the longest of the first run
  int32_t device = 0;
  int64_t kernels = 0;  // of all runs; fills count, copies do not
  Distribution time;    // of its kernels, for each run of the op

  // FLOPs of one run. Convolution: 2 for each weight and output element that meet. Attention: two
  // products (five in the backward pass), half of them if it is causal. Norms and softmax 5 for
  // each element (RMSNorm 4). Elementwise ops and reductions 1.
  std::optional<double> flops;  // empty: no count is agreed on
  double bytes = 0;             // what it must read and write, each tensor once
  std::optional<double> intensity;
  std::optional<double> tflops;  // over the median
  std::optional<double> gb_per_s;
  std::string peak_of;  // as Gemm::peak_of
  std::optional<double> peak_tflops;
  std::optional<double> peak_gb_per_s;
  // Time at the device's peaks over the median. Above 100: caches held the data.
  std::optional<double> attainable_pct;
  std::optional<RooflineSide> side;
};

// By total time, longest first. Without shapes in the trace, and without a device: empty.
std::vector<OpRoofline> op_rooflines(const Trace& trace, const Links& links);

// --- Occupancy ----------------------------------------------------------------------------------
// How many warps of a kernel an SM can hold: what the trace recorded, and what its registers,
// shared memory and block size give.

enum class OccupancyLimit : uint8_t { threads, blocks, registers, shared_memory };
std::string_view occupancy_limit_name(OccupancyLimit limit);  // "registers", "shared memory"

// How an NVIDIA SM holds blocks of one kernel.
struct Occupancy {
  int64_t blocks_per_sm = 0;   // that fit at once
  double theoretical_pct = 0;  // their threads over the SM's
  OccupancyLimit limit = OccupancyLimit::threads;
};

// By the rules of CUDA's occupancy calculator, with the shared memory limit that a kernel can opt
// in to (more than 48 KiB needs that). Empty if something needed is not known: registers (ROCm
// records none), the device's sizes, a compute capability without rules here; or if the block
// does not fit at all, so that the numbers contradict the launch.
std::optional<Occupancy> compute_occupancy(const KernelArgs& args, const DeviceProperties& device);

// One kernel with one launch configuration.
struct KernelOccupancy {
  std::string kernel;
  int32_t device = 0;
  int64_t count = 0;
  int64_t total_ns = 0;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int64_t, 3> block = {1, 1, 1};
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;
  std::optional<int32_t> recorded_pct;  // "est. achieved occupancy %"
  std::optional<Occupancy> computed;
  // As Kineto defines its estimate, with the blocks that really fit: min(blocks that fit, blocks of
  // the grid per SM) x threads over the SM's threads. A small grid keeps it low.
  std::optional<double> estimated_pct;
  // The trace says 0 % and the kernel fits all the same: above 48 KiB of shared memory Kineto's
  // calculator finds that no block fits, because it uses the limit without the opt-in.
  bool is_recorded_zero_artefact = false;
  std::string note;  // one sentence, or empty
};

// All kernels with a recorded grid and block, by total time, longest first. Empty for
// devices that are no NVIDIA GPU.
std::vector<KernelOccupancy> kernel_occupancies(const Trace& trace);

// The device of that index, or, if all that the trace lists are alike, one of those; else null.
const DeviceProperties* find_device(const Trace& trace, int32_t device);

}  // namespace epilogue::trace

#pragma GCC visibility pop
