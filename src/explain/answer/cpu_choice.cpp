// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/cpu_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/caches.h"
#include "base/cpu_features.h"
#include "base/machine.h"
#include "base/text/nearest.h"
#include "explain/index/trace_metadata.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kHere = "here";
constexpr size_t kMostMeant = 3;

// 0 says that there are no instructions for bf16, which only x86 is asked for here.
std::optional<double> measured_bf16(const MachineFigures& figures) {
  if (figures.bf16_gflops > 0) return figures.bf16_gflops;
  const CpuFeatures found = detected_features();
  const bool is_known = found.has(CpuFeature::avx2);
  const bool has_some = found.has(CpuFeature::avx512_bf16) || found.has(CpuFeature::amx_bf16);
  return is_known && !has_some ? std::optional(0.0) : std::nullopt;
}

CpuPeaks peaks_here(int threads) {
  const std::optional<MachineFigures> figures = machine_figures();
  if (!figures || figures->f32_gflops <= 0 || figures->threads < 1)
    throw Error(
        "[--cpu] expected figures of this machine, found none for this instruction set and number "
        "of threads: epilogue info --measure measures them");
  CpuPeaks peaks;
  peaks.cpu = "measured on this machine";
  peaks.is_estimate = false;
  peaks.threads = threads > 0 ? threads : figures->threads;
  if (const long l2 = cpu_caches().l2_bytes; l2 > 0) peaks.l2_bytes = l2;
  // One thread may clock higher than all of them; none is sure for the numbers between.
  const double share = static_cast<double>(peaks.threads) / figures->threads;
  const double all = figures->f32_gflops;
  const double one = figures->f32_gflops_one_thread;
  peaks.f32 = peaks.threads == 1 && one > 0 ? one : all * share;
  peaks.f64 = *peaks.f32 / 2;
  peaks.bf16 = measured_bf16(*figures);
  if (peaks.bf16) *peaks.bf16 *= share;
  return peaks;
}

}  // namespace

std::optional<CpuPeaks> peaks_of_choice(const CpuChoice& choice) {
  if (choice.threads < 0)
    throw Error(
        fmt::format("[--cpu-threads] expected a number of threads, got {}", choice.threads));
  if (choice.name.empty()) {
    if (choice.threads != 0) throw Error("[--cpu-threads] expected --cpu beside it, got none");
    return std::nullopt;
  }
  if (choice.name == kHere) return peaks_here(choice.threads);
  const Result<CpuPeaks> peaks = estimate_cpu_peaks(choice.name, choice.threads);
  if (peaks) return peaks.value();
  std::vector<std::string> names = cpu_families();
  names.emplace_back(kHere);
  throw Error("[--cpu] " + peaks.failure().message +
              did_you_mean(nearest(choice.name, names, kMostMeant)));
}

void refuse_for_ranks(const CpuChoice& choice, const TraceInput& folder, size_t traces) {
  if (!choice.name.empty())
    throw Error(fmt::format("[--cpu] expected one trace, got {} with {}", folder.path, traces));
}

void warn_if_unused(const CpuChoice& choice, const Trace& trace, const Explanation& e,
                    const AnswerHooks& hooks) {
  if (choice.name.empty() || (e.host && !e.host->products.empty())) return;
  const char* why = "is of a run with a device: products are compared with the device's peak";
  if (e.host) why = "has no matrix products with sizes (record_shapes=True records them)";
  if (e.ops == 0) why = "has no ops";
  if (is_own_cpu_trace(trace))
    why = "is epilogue's own: it carries what was measured (profile --measure)";
  warn(hooks, e.path + ": --cpu is not used: the trace " + why);
}

}  // namespace epilogue::trace
