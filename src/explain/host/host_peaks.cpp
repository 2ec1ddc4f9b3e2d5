// SPDX-License-Identifier: Apache-2.0
#include "explain/host/host_peaks.h"

#include <algorithm>

namespace epilogue::trace {

void compare_with_peaks(const CpuPeaks& peaks, HostTime& host) {
  host.peaks = peaks;
  for (HostProduct& p : host.products) {
    p.peak_gflops = peaks.gflops_of(p.type);
    if (p.peak_gflops && !p.is_dispatch) p.peak_pct = p.gflops / *p.peak_gflops * 100;
  }
}

bool is_peak_too_low(const HostTime& host) {
  constexpr double kAll = 100;
  return std::ranges::any_of(host.products,
                             [](const HostProduct& p) { return p.peak_pct.value_or(0) > kAll; });
}

}  // namespace epilogue::trace
