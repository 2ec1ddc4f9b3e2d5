// SPDX-License-Identifier: Apache-2.0
// Figures of this machine, as if they had been measured.
#pragma once

#include "base/cpu_features.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace epilogue::samples {

inline MachineFigures figures_of_now() {
  MachineFigures f;
  f.cpu = cpu_identity();
  f.isa = isa_name(active_isa());
  f.threads = num_threads();
  f.f32_gflops = 400;
  f.f32_gflops_one_thread = 200;
  f.bf16_gflops = 800;
  f.f32_product_gflops = 170;
  f.bf16_product_gflops = 340;
  f.memory_gb_per_s = 30;
  f.memory_gb_per_s_one_thread = 15;
  f.stream_gb_per_s_one_thread = 25;
  f.read_gb_per_s = {{int64_t{16} << 20, 60.5}, {int64_t{256} << 20, 30}};
  f.chains = {{"f32", {{1, 20}, {64, 150}}, 0.1}};
  f.chain_overhead_us = 0.5;
  f.handoff_us = 0.75;
  return f;
}

}  // namespace epilogue::samples
