// SPDX-License-Identifier: Apache-2.0
// Device properties as real traces have them.
#pragma once

#include "epilogue/trace/event.h"

namespace epilogue::trace::testing {

inline DeviceProperties nvidia(std::string name, int32_t major, int32_t sms, int64_t shared_per_sm,
                               int64_t shared_optin) {
  return {.id = 0,
          .name = std::move(name),
          .compute_major = major,
          .compute_minor = 0,
          .max_threads_per_block = 1024,
          .max_threads_per_multiprocessor = 2048,
          .regs_per_block = 65536,
          .warp_size = 32,
          .shared_mem_per_block_bytes = 48 * 1024,
          .num_sms = sms,
          .regs_per_multiprocessor = 65536,
          .shared_mem_per_block_optin_bytes = shared_optin,
          .shared_mem_per_multiprocessor_bytes = shared_per_sm};
}
inline DeviceProperties v100() {
  return nvidia("Tesla V100-SXM2-32GB", 7, 80, 96 * 1024, 96 * 1024);
}
inline DeviceProperties a100() {
  return nvidia("NVIDIA A100-SXM4-80GB", 8, 108, 164 * 1024, 163 * 1024);
}
inline DeviceProperties h100() {
  return nvidia("NVIDIA H100 80GB HBM3", 9, 132, 228 * 1024, 227 * 1024);
}
inline DeviceProperties mi300x() {
  DeviceProperties d = nvidia("AMD Instinct MI300X", 9, 304, 0, 0);
  d.warp_size = 64;
  return d;
}

}  // namespace epilogue::trace::testing
