// SPDX-License-Identifier: Apache-2.0
// Peaks of a CPU, by its name: the ceiling for products of a trace that does not name the
// CPU which recorded it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// Rates of `threads` threads together, one on each core, in GFLOP/s (GOP/s of i8). Empty: not
// known. 0: the CPU has no instructions for the type.
struct CpuPeaks {
  std::string cpu;     // as it was named
  std::string family;  // "Zen 3"; empty if the rates were measured
  bool is_estimate = true;
  int threads = 1;
  bool is_threads_assumed = false;  // nobody said how many: one
  double ghz = 0;                   // 0: not known
  bool is_ghz_assumed = false;      // the family's; the name gives none
  std::optional<int64_t> l2_bytes;  // of a core's own cache (L2). Empty: not known
  std::optional<double> f64;
  std::optional<double> f32;
  std::optional<double> bf16;
  std::optional<double> f16;
  std::optional<double> i8;

  // Peak of products of that type ("f32", "bf16"). Without instructions for it, 16-bit types are
  // computed as f32.
  std::optional<double> gflops_of(std::string_view type) const;
  // Known to have no instructions for it.
  bool lacks(std::string_view type) const;
  // Known to have them, at whatever rate.
  bool has(std::string_view type) const;

  // "estimated from the CPU's name: Zen 3, 8 cores, 2.5 GHz, 640 GFLOP/s f32"
  std::string text() const;
  // Assumptions, as sentences; "" if there are none.
  std::string assumptions() const;

 private:
  std::optional<double> rate_of(std::string_view type) const;
};

// By the product's name, as /proc/cpuinfo has it ("AMD EPYC 7763 64-Core Processor", "Intel(R)
// Xeon(R) Platinum 8375C CPU @ 2.90GHz"), or the family's ("Zen 3", "Neoverse-V1"). A clock in the
// name ("@ 2.90GHz") counts, else the family's. `threads` of 0: one, and it is said. Fails with one
// line that names the families where no row of the table fits.
Result<CpuPeaks> estimate_cpu_peaks(std::string_view name, int threads = 0);

// The families of the table: "Haswell", "Zen 3", ...
std::vector<std::string> cpu_families();

}  // namespace epilogue::trace

#pragma GCC visibility pop
