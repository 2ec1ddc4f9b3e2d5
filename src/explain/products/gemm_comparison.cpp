// SPDX-License-Identifier: Apache-2.0
// Why one product is faster than another of the same FLOPs: the facts that differ in its favour.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "explain/kernel_name/text.h"
#include "explain/products/gemm_rates.h"

namespace epilogue::trace {
namespace {

constexpr double kLeastRatio = 1.05;  // below, noise
constexpr double kLeastPoints = 5;    // of percentages: below, no reason
constexpr size_t kMostComparisons = 20;
constexpr int64_t kLeastRuns = 3;  // of fewer there is no spread to tell a difference from
constexpr double kLeastIntensityRatio = 1.2;

std::string sizes_text(const GemmShape& s) {
  return s.batch == 1 ? fmt::format("{}x{}x{}", s.m, s.n, s.k)
                      : fmt::format("{} x {}x{}x{}", s.batch, s.m, s.n, s.k);
}

// More work per element loaded: M N / (M + N), for tiles of the same depth.
double tile_reuse(const GemmFacts& g) {
  const auto m = static_cast<double>(*g.tile_m);
  const auto n = static_cast<double>(*g.tile_n);
  return m * n / (m + n);
}

void add_type_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  if (fast.uses_tensor_cores == true && slow.uses_tensor_cores == false) {
    reasons.push_back("it runs on tensor cores and the other does not" +
                      (slow.tensor_core_note.empty() ? "" : " (" + slow.tensor_core_note + ")"));
  } else if (!fast.math_type.empty() && !slow.math_type.empty() &&
             fast.math_type != slow.math_type) {
    reasons.push_back(fast.math_type + " instead of " + slow.math_type);
  }
}

void add_tile_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  const auto& a = fast.name.gemm;
  const auto& b = slow.name.gemm;
  if (a && b && a->tile_m && a->tile_n && b->tile_m && b->tile_n && tile_reuse(*a) > tile_reuse(*b))
    reasons.push_back(fmt::format("larger tiles ({}x{} against {}x{}), which load less per FLOP",
                                  *a->tile_m, *a->tile_n, *b->tile_m, *b->tile_n));
  if (!fast.tiling || !slow.tiling) return;
  const GemmTiling& x = *fast.tiling;
  const GemmTiling& y = *slow.tiling;
  if (x.wave_efficiency_pct && y.wave_efficiency_pct &&
      *x.wave_efficiency_pct > *y.wave_efficiency_pct + kLeastPoints)
    reasons.push_back(
        fmt::format("fuller waves ({:.2f} waves, {:.0f} % of whole ones, against {:.2f}, {:.0f} %)",
                    *x.waves, *x.wave_efficiency_pct, *y.waves, *y.wave_efficiency_pct));
  if (y.padding_pct > x.padding_pct + kLeastPoints)
    reasons.push_back(
        fmt::format("less padding ({:.0f} % against {:.0f} %)", x.padding_pct, y.padding_pct));
}

void add_shape_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  if (slow.side == RooflineSide::memory && fast.side == RooflineSide::compute) {
    reasons.push_back("the other is limited by memory");
  } else if (fast.intensity && slow.intensity && slow.side == RooflineSide::memory &&
             *fast.intensity > *slow.intensity * kLeastIntensityRatio) {
    reasons.push_back(fmt::format("more FLOPs per byte ({:.0f} against {:.0f})", *fast.intensity,
                                  *slow.intensity));
  }
  if (fast.shape->k > slow.shape->k)
    reasons.push_back(fmt::format(
        "a longer sum (K {} against {}), over which starting and storing a tile is spread",
        fast.shape->k, slow.shape->k));
  if (contains(slow.op, "add") && !contains(fast.op, "add"))
    reasons.push_back("the other also adds a bias or a matrix");
  if (slow.reduction_ns > 0 && fast.reduction_ns == 0)
    reasons.push_back("the other splits K and needs a reduction");
}

// "aten::mm 8x8x8", with the kernel where others of `gemms` are called so, too.
std::string name_of(const Gemm& g, const std::vector<Gemm>& gemms) {
  const auto is_same = [&](const Gemm& other) {
    return other.op == g.op && other.shape == g.shape;
  };
  const bool is_shared = std::count_if(gemms.begin(), gemms.end(), is_same) > 1;
  return g.op + " " + sizes_text(*g.shape) + (is_shared ? " (" + g.kernel + ")" : "");
}

// Whether even the best run of `slow` took longer than `fast` mostly does, by more than the clock
// can miss of two times.
bool is_clearly_faster(const Gemm& fast, const Gemm& slow, int64_t clock_step_ns) {
  if (std::min(fast.time.count, slow.time.count) < kLeastRuns) return false;
  const double best_ns = static_cast<double>(slow.time.min_ns) + slow.reduction_ns_per_launch();
  return best_ns - fast.rate_time_ns() > 2 * static_cast<double>(clock_step_ns);
}

std::string sentence_of(const std::vector<Gemm>& gemms, const GemmComparison& c) {
  const Gemm& fast = gemms[c.faster];
  const Gemm& slow = gemms[c.slower];
  std::vector<std::string> reasons;
  add_type_reasons(fast, slow, reasons);
  add_tile_reasons(fast, slow, reasons);
  add_shape_reasons(fast, slow, reasons);
  std::string text = fmt::format(
      "{} runs {:.2f} times as fast as {} ({:.3g} against {:.3g} TFLOP/s, the same FLOPs)",
      name_of(fast, gemms), c.ratio, name_of(slow, gemms), *fast.tflops, *slow.tflops);
  if (reasons.empty()) return text + "; nothing that the trace says explains it.";
  return text + ", likely for " + (reasons.size() == 1 ? "this reason" : "these reasons") + ": " +
         join(reasons, "; ") + ".";
}

}  // namespace

std::vector<GemmComparison> compare_gemms(const std::vector<Gemm>& gemms, int64_t clock_step_ns) {
  std::map<std::pair<int32_t, double>, std::vector<size_t>> groups;
  for (size_t i = 0; i < gemms.size(); ++i)
    if (gemms[i].tflops && gemms[i].shape) groups[{gemms[i].device, *gemms[i].flops}].push_back(i);
  std::vector<GemmComparison> list;
  for (auto& [key, members] : groups) {
    const auto fastest = *std::max_element(members.begin(), members.end(), [&](size_t a, size_t b) {
      return *gemms[a].tflops < *gemms[b].tflops;
    });
    for (const size_t other : members) {
      const double ratio = *gemms[fastest].tflops / *gemms[other].tflops;
      if (other != fastest && ratio >= kLeastRatio &&
          is_clearly_faster(gemms[fastest], gemms[other], clock_step_ns))
        list.push_back({fastest, other, ratio, {}});
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const GemmComparison& a, const GemmComparison& b) {
    return a.ratio > b.ratio;
  });
  if (list.size() > kMostComparisons) list.resize(kMostComparisons);
  for (GemmComparison& c : list) c.sentence = sentence_of(gemms, c);
  return list;
}

}  // namespace epilogue::trace
