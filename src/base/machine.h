// SPDX-License-Identifier: Apache-2.0
// The machine's figures, measured once (src/measure) and kept for every later process: peaks,
// bandwidths, what it costs to hand work to another thread. Cost models read the rates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue {

// Row chains of one product, with weights that stay in the caches:
//   time = FLOPs / rate(rows) + elements of the result x ns_per_element
struct ChainRates {
  std::string dtype;
  std::vector<std::pair<int64_t, double>> gflops;  // by the number of rows
  double ns_per_element = 0;
};

// Figures of one CPU at one instruction-set level and number of threads.
struct MachineFigures {
  std::string cpu;
  std::string isa;
  int threads = 0;

  double f32_gflops = 0;  // multiply-adds from registers, all threads
  double f32_gflops_one_thread = 0;
  double bf16_gflops = 0;  // bf16 products by instructions of their own; 0: none, or not known
  // Packed products out of L2, one thread, in GFLOP/s.
  double f32_product_gflops = 0;
  double bf16_product_gflops = 0;
  double memory_gb_per_s = 0;  // reading 256 MiB, all threads
  double memory_gb_per_s_one_thread = 0;
  double stream_gb_per_s_one_thread = 0;                  // reading 16 MiB: weights of few rows
  std::vector<std::pair<int64_t, double>> read_gb_per_s;  // by bytes: caches, then memory
  std::vector<ChainRates> chains;
  double chain_overhead_us = 0;  // of a row chain that computes next to nothing
  double handoff_us = 0;         // of a parallel_for whose pieces do nothing
};

// The rates that cost models choose by: of one core where nothing else is said.
struct MachineRates {
  double f32_flops_per_ns = 0;   // packed products
  double bf16_flops_per_ns = 0;  // the same of bf16
  double stream_bytes_per_ns = 0;
  double stream_bytes_per_ns_all = 0;  // all threads together
  double handoff_ns = 0;               // giving work to threads that wait for it, and their last
  bool is_measured = false;
  bool operator==(const MachineRates&) const = default;
};

// Where nothing was measured: one core of a server of 2023 with 512-bit vectors.
inline constexpr MachineRates kFallbackRates = {
    .f32_flops_per_ns = 100,
    .bf16_flops_per_ns = 200,
    .stream_bytes_per_ns = 12,
    .stream_bytes_per_ns_all = 24,
    .handoff_ns = 1000,
};

// Constants beside them, of one core. Weights or operands that stay in its L2, and what follows a
// product for each element: its sum stored, a program, its result.
inline constexpr double kCachedBytesPerNs = 50;
inline constexpr double kElementNs = 0.15;

MachineRates rates_of(const MachineFigures& figures);

// The rates at the level and the number of threads in use: those of set_machine_figures(), else of
// this user's file, else kFallbackRates. The file is read at the first call. Thread-safe; some
// nanoseconds.
MachineRates machine_rates();

// The figures that machine_rates() reads, where there are any.
std::optional<MachineFigures> machine_figures();

// Takes them for this process, and for later ones where there is a file: replaces what it says of
// this CPU, level and number of threads. Status: whether the file could be written; the process has
// them in any case.
Status set_machine_figures(const MachineFigures& figures);

// The folder that files of this user go to: EPILOGUE_CACHE_DIR, or user_cache_folder(). Empty where
// EPILOGUE_CACHE_DIR is "off", or where there is no home: nothing is kept.
std::string cache_folder();
// epilogue in XDG_CACHE_HOME, else in ~/.cache; empty where there is no home.
std::string user_cache_folder();
// machine.json in cache_folder(); empty where nothing is kept.
std::string machine_file();

// The CPU as files name it: model, family, stepping and caches. Virtual machines may all call it
// the same.
std::string cpu_identity();

// The file's form, one machine: what `epilogue info --measure --format json` prints.
std::string figures_json(const MachineFigures& figures);
Result<MachineFigures> parse_figures(const std::string& json);

}  // namespace epilogue
