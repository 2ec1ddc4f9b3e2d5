// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/gemms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

// Limits that a trace's device properties lack; from the CUDA programming guide (technical
// specifications per compute capability) and CUDA's cuda_occupancy.h.
struct SmRules {
  int32_t major;
  int32_t minor;  // and above, up to the next entry
  int64_t max_blocks;
  int64_t sub_partitions;  // that share the register file out among them
  int64_t shared_memory_unit_bytes;
  int64_t reserved_shared_memory_bytes;  // of each block, for the system
};
constexpr SmRules kRules[] = {{6, 0, 32, 2, 256, 0},     {6, 1, 32, 4, 256, 0},
                              {7, 0, 32, 4, 256, 0},     {7, 5, 16, 4, 256, 0},
                              {8, 0, 32, 4, 128, 1024},  {8, 6, 16, 4, 128, 1024},
                              {8, 9, 24, 4, 128, 1024},  {9, 0, 32, 4, 128, 1024},
                              {10, 0, 32, 4, 128, 1024}, {12, 0, 24, 4, 128, 1024}};
constexpr int64_t kRegisterUnit = 256;  // registers are given to warps in these steps
constexpr int64_t kWarpSize = 32;       // of every NVIDIA GPU
constexpr int32_t kFirstUnknownMajor = 13;

const SmRules* rules_of(const DeviceProperties& device) {
  if (device.compute_major >= kFirstUnknownMajor || device.warp_size != kWarpSize) return nullptr;
  const SmRules* found = nullptr;
  for (const SmRules& rules : kRules)
    if (std::tie(rules.major, rules.minor) <= std::tie(device.compute_major, device.compute_minor))
      found = &rules;
  return found;
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Resources {
  int64_t threads;  // of a block
  int64_t registers;
  int64_t shared_bytes;
};

std::optional<Resources> resources_of(const KernelArgs& args, const DeviceProperties& device) {
  if (args.registers_per_thread <= 0 || args.shared_memory_bytes < 0 || !args.has_grid)
    return std::nullopt;
  const std::optional<int64_t> threads = product(args.block);
  if (!threads || *threads <= 0 || *threads > device.max_threads_per_block) return std::nullopt;
  // More than any device has would overflow below.
  if (args.shared_memory_bytes > device.shared_mem_per_multiprocessor_bytes) return std::nullopt;
  return Resources{*threads, args.registers_per_thread, args.shared_memory_bytes};
}

int64_t blocks_by_registers(const Resources& r, int64_t warps, const SmRules& rules,
                            const DeviceProperties& device) {
  const int64_t per_warp = round_up(r.registers * kWarpSize, kRegisterUnit);
  const int64_t per_partition = device.regs_per_multiprocessor / rules.sub_partitions;
  return per_partition / per_warp * rules.sub_partitions / warps;
}

int64_t blocks_by_shared_memory(const Resources& r, const SmRules& rules,
                                const DeviceProperties& device) {
  const int64_t per_block =
      round_up(r.shared_bytes + rules.reserved_shared_memory_bytes, rules.shared_memory_unit_bytes);
  return per_block == 0 ? std::numeric_limits<int64_t>::max()
                        : device.shared_mem_per_multiprocessor_bytes / per_block;
}

using Configuration = std::tuple<StringId, int32_t, std::array<int64_t, 3>, std::array<int64_t, 3>,
                                 int32_t, int64_t, int32_t>;

void explain(KernelOccupancy& k, const DeviceProperties& device) {
  if (!k.computed) {
    k.note = k.registers_per_thread <= 0
                 ? "not computed: the trace does not record its registers"
                 : "not computed: the launch does not fit what the trace says of the device";
    return;
  }
  if (const auto blocks = product(k.grid); blocks && device.num_sms > 0) {
    const double per_sm = static_cast<double>(*blocks) / device.num_sms;
    const auto fit = static_cast<double>(k.computed->blocks_per_sm);
    const auto threads = static_cast<double>(product(k.block).value_or(0));
    k.estimated_pct = std::min(fit, per_sm) * threads / device.max_threads_per_multiprocessor * 100;
  }
  k.is_recorded_zero_artefact = k.recorded_pct == 0 &&
                                k.shared_memory_bytes > device.shared_mem_per_block_bytes &&
                                std::lround(k.estimated_pct.value_or(0)) > 0;
  if (k.is_recorded_zero_artefact)
    k.note =
        "the recorded 0 % is an artefact: the kernel's shared memory is above the 48 KiB that a "
        "block gets without opting in, and the recorder's calculator does not opt in";
}

}  // namespace

std::string_view occupancy_limit_name(OccupancyLimit limit) {
  constexpr std::array<std::string_view, 4> kNames = {"threads", "blocks", "registers",
                                                      "shared memory"};
  return kNames[static_cast<size_t>(limit)];
}

const DeviceProperties* find_device(const Trace& trace, int32_t device) {
  const std::vector<DeviceProperties>& all = trace.devices;
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const DeviceProperties& d) { return d.id == device; });
  if (it != all.end()) return &*it;
  // ROCm counts devices otherwise in kernels than in the list: one like all others will do.
  const bool are_alike =
      !all.empty() && std::all_of(all.begin(), all.end(), [&](const DeviceProperties& d) {
        return d.name == all.front().name && d.num_sms == all.front().num_sms;
      });
  return are_alike ? &all.front() : nullptr;
}

std::optional<Occupancy> compute_occupancy(const KernelArgs& args, const DeviceProperties& device) {
  const SmRules* rules = rules_of(device);
  const std::optional<Resources> r = resources_of(args, device);
  if (rules == nullptr || !r || device.max_threads_per_multiprocessor <= 0 ||
      device.regs_per_multiprocessor <= 0)
    return std::nullopt;
  const int64_t warps = (r->threads + kWarpSize - 1) / kWarpSize;
  const std::array<std::pair<OccupancyLimit, int64_t>, 4> limits = {
      {{OccupancyLimit::threads, device.max_threads_per_multiprocessor / kWarpSize / warps},
       {OccupancyLimit::blocks, rules->max_blocks},
       {OccupancyLimit::registers, blocks_by_registers(*r, warps, *rules, device)},
       {OccupancyLimit::shared_memory, blocks_by_shared_memory(*r, *rules, device)}}};
  Occupancy result;
  result.blocks_per_sm = std::numeric_limits<int64_t>::max();
  for (const auto& [limit, blocks] : limits)
    if (blocks < result.blocks_per_sm) {
      result.blocks_per_sm = blocks;
      result.limit = limit;
    }
  if (result.blocks_per_sm <= 0) return std::nullopt;
  result.theoretical_pct = static_cast<double>(result.blocks_per_sm * warps * kWarpSize) /
                           device.max_threads_per_multiprocessor * 100;
  return result;
}

std::vector<KernelOccupancy> kernel_occupancies(const Trace& trace) {
  std::map<Configuration, KernelOccupancy> found;
  for (const Event& e : trace.events) {
    if (e.category != Category::kernel) continue;
    const KernelArgs* args = trace.kernel_args(e);
    if (args == nullptr || !args->has_grid) continue;
    const DeviceProperties* device = find_device(trace, args->device);
    if (device == nullptr || device->warp_size != kWarpSize) continue;
    KernelOccupancy& k =
        found[{e.name, args->device, args->grid, args->block, args->registers_per_thread,
               args->shared_memory_bytes, args->est_occupancy_pct}];
    k.count += 1;
    k.total_ns += e.dur_ns;
    if (k.count > 1) continue;
    k.kernel = std::string(trace.name(e));
    k.device = args->device;
    k.grid = args->grid;
    k.block = args->block;
    k.registers_per_thread = args->registers_per_thread;
    k.shared_memory_bytes = args->shared_memory_bytes;
    if (args->est_occupancy_pct >= 0) k.recorded_pct = args->est_occupancy_pct;
    k.computed = compute_occupancy(*args, *device);
    explain(k, *device);
  }
  std::vector<KernelOccupancy> list;
  list.reserve(found.size());
  for (auto& [configuration, k] : found) list.push_back(std::move(k));
  std::stable_sort(
      list.begin(), list.end(),
      [](const KernelOccupancy& a, const KernelOccupancy& b) { return a.total_ns > b.total_ns; });
  return list;
}

}  // namespace epilogue::trace
