// SPDX-License-Identifier: Apache-2.0
// How many warps of a kernel an SM can hold: what the trace recorded, and what its registers,
// shared memory and block size give.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

enum class OccupancyLimit : uint8_t { kThreads, kBlocks, kRegisters, kSharedMemory };
std::string_view occupancy_limit_name(OccupancyLimit limit);  // "registers", "shared memory"

// How an NVIDIA SM holds blocks of one kernel.
struct Occupancy {
  int64_t blocks_per_sm = 0;   // that fit at once
  double theoretical_pct = 0;  // their threads over the SM's
  OccupancyLimit limit = OccupancyLimit::kThreads;
};

// By the rules of CUDA's occupancy calculator, with the shared memory limit that a kernel can opt
// in to (more than 48 KiB needs that). Empty where something needed is not known: registers (ROCm
// records none), the device's sizes, a compute capability without rules here; or where the block
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

// Of all kernels whose trace gives a grid and a block, by total time, longest first. Empty for
// devices that are no NVIDIA GPU.
std::vector<KernelOccupancy> kernel_occupancies(const Trace& trace);

// The device of that index, or, where all that the trace lists are alike, one of those; else null.
const DeviceProperties* find_device(const Trace& trace, int32_t device);

}  // namespace epilogue::trace
