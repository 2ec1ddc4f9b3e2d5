// SPDX-License-Identifier: Apache-2.0
// Weights of 8 and 4 bits, and 8-bit rows, beside our own bf16 and f32: a SwiGLU MLP as one fused
// kernel each, in turns, with a plain read of as many bytes as the memory's share of the bound.
// Each result is first held to the same product of its own rounded weights in double, as far as
// rounding to the dtype allows. With --layers each call is of the next of several MLPs, which lie
// in memory of their own: no weights are left in the caches when their turn comes again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/large_memory.h"
#include "base/thread_pool.h"
#include "bench/agreement.h"
#include "bench/harness.h"
#include "bench/model.h"
#include "bench/pairs.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"

namespace epilogue::bench {
namespace {

struct Options {
  int64_t k = 2048;
  int64_t h = 8192;
  std::vector<int64_t> rows = {1, 4, 8, 64, 512};
  double seconds = 20;
  int threads = 0;
  int layers = 1;
  std::string isa;
  std::string over = "bf16";
  std::vector<std::string> only;
};

struct Choice {
  const char* name;
  DType dtype;
  Quantisation bits;
  double bytes_per_weight;
  double allowed;  // relative L2 error against the unrounded product in double
};
constexpr double kHeaderOf128 = 2.0 / 128;
constexpr double kHeaderOf32 = 2.0 / 32;
const Choice kChoices[] = {
    {"bf16", DType::bf16, {}, 2, 0.01},
    {"f32", DType::f32, {}, 4, 1e-5},
    {"int8", DType::bf16, {.weights = WeightBits::int8}, 1, 0.03},
    {"w8a8", DType::bf16, {WeightBits::int8, ActivationBits::int8}, 1, 0.06},
    {"int4 g128", DType::bf16, {.weights = WeightBits::int4}, 0.5 + kHeaderOf128, 0.25},
    {"int4 g32", DType::bf16, {.weights = WeightBits::int4, .group = 32}, 0.5 + kHeaderOf32, 0.25},
    {"int4 g128 zeros",
     DType::bf16,
     {.weights = WeightBits::int4, .zero_points = true},
     0.5 + 1.5 * kHeaderOf128,
     0.25},
    {"w4a8 g128", DType::bf16, {WeightBits::int4, ActivationBits::int8}, 0.5 + kHeaderOf128, 0.25},
    {"w4a8 g32",
     DType::bf16,
     {WeightBits::int4, ActivationBits::int8, 32},
     0.5 + kHeaderOf32,
     0.25},
};

// Sums `bytes` of memory on all threads: what a kernel that only reads could do. Each time the next
// of so many pieces of memory.
class Reader {
 public:
  Reader(int64_t bytes, int pieces)
      : words_(bytes / 8),
        count_(pieces),
        memory_(allocate_large(static_cast<size_t>(bytes * pieces))) {
    auto* const p = static_cast<uint64_t*>(memory_.get());
    parallel_for(words_ * count_, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) p[i] = static_cast<uint64_t>(i);
    });
  }
  void operator()() const {
    const auto* const p = static_cast<const uint64_t*>(memory_.get()) + turn_++ % count_ * words_;
    const int64_t pieces = 8 * num_threads();
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      uint64_t sums[8] = {};
      for (int64_t i = words_ * begin / pieces; i + 64 <= words_ * end / pieces; i += 64) {
        // Into L2 and far ahead, as the kernels read: a processor's own fetching ends at each page.
        for (int64_t line = 0; line < 64; line += 8) __builtin_prefetch(p + i + 512 + line, 0, 2);
        for (int64_t j = 0; j < 64; j += 8)
          for (int64_t s = 0; s < 8; ++s) sums[s] += p[i + j + s];
      }
      for (const uint64_t s : sums) sink_.fetch_add(s, std::memory_order_relaxed);
    });
  }

 private:
  int64_t words_;
  int64_t count_;
  LargeMemory memory_;
  mutable int64_t turn_ = 0;
  mutable std::atomic<uint64_t> sink_{0};
};

struct Weights {
  Tensor gate;
  Tensor up;
  Tensor down;
};

int run(const Options& o) {
  const NoGrad no_grad;
  if (o.threads > 0) set_num_threads(o.threads);
  const auto weight = [](int64_t n, int64_t k) {
    return mul(randn({n, k}, DType::f32), 1 / std::sqrt(static_cast<double>(k)));
  };
  const Weights f32 = {weight(o.h, o.k), weight(o.h, o.k), weight(o.k, o.h)};
  const Weights bf16 = {to(f32.gate, DType::bf16), to(f32.up, DType::bf16),
                        to(f32.down, DType::bf16)};
  // The one that others are compared with comes first.
  std::vector<Choice> choices;
  for (const bool first : {true, false})
    for (const Choice& c : kChoices) {
      const bool is_wanted =
          o.only.empty() || std::find(o.only.begin(), o.only.end(), c.name) != o.only.end();
      if ((c.name == o.over) == first && (first || is_wanted)) choices.push_back(c);
    }
  if (choices.empty() || choices[0].name != o.over) {
    fmt::print("--over: expected one of the choices, got {}\n", o.over);
    return 2;
  }
  const auto count = static_cast<double>(3 * o.h * o.k);
  Model model;
  model.stages.push_back(
      {.weight = bf16.gate, .activation = nn::Activation::swiglu, .up = bf16.up});
  model.stages.push_back({.weight = bf16.down});
  const Reader reader(static_cast<int64_t>(2 * count), o.layers);
  fmt::print(
      "SwiGLU MLP {} x {}, {:.0f} M weights, {} in turn: {}\nnoise probe: {:.2f}x; ratio: {}'s "
      "time over this one's, median of pairs [95 %], quartiles of the pairs; read: bytes of "
      "weights "
      "over the time of a plain read of as many\n\n",
      o.k, o.h, count / 1e6, o.layers, machine_line(), noise_probe(), o.over);
  fmt::print("{:>5}  {:<16}{:>12}{:>22}{:>14}{:>10}{:>8}   {}\n", "rows", "", "median us", "ratio",
             "quartiles", "GB/s", "read", "error");
  bool ok = true;
  for (const int64_t m : o.rows) {
    const Tensor x = randn({m, o.k}, DType::bf16);
    const Tensor x32 = to(x, DType::f32);
    const std::vector<int64_t> checked = checked_rows(m);
    const Tensor expected = exact_rows(model, x, checked);
    std::vector<Contender> contenders;
    std::vector<double> errors;
    for (const Choice& c : choices) {
      const bool is_f32 = c.dtype == DType::f32;
      const Weights& w = is_f32 ? f32 : bf16;
      const Tensor& in = is_f32 ? x32 : x;
      auto mlps = std::make_shared<std::vector<FusedMlp>>();
      for (int i = 0; i < o.layers; ++i) {
        // Packed copies are shared by address. Those of fewer bits need no originals.
        const auto own = [&](const Tensor& t) { return o.layers == 1 ? t : clone(t); };
        mlps->push_back(FusedMlp::gated(own(w.gate), own(w.up), own(w.down), nn::Activation::swiglu,
                                        {.bits = c.bits}));
        mlps->back()(in);
      }
      const Tensor y = (*mlps)[0](in);
      errors.push_back(relative_l2(rows_of(y, checked), expected));
      const double allowed = is_f32 ? 0.02 : c.allowed;  // f32's weights are not bf16's
      if (!(errors.back() <= allowed)) {
        fmt::print("{} rows, {}: error {:.1e}, expected at most {:.1e}\n", m, c.name, errors.back(),
                   allowed);
        ok = false;
      }
      contenders.emplace_back(c.name, [mlps, in, y, turn = size_t{0}]() mutable {
        (*mlps)[turn++ % mlps->size()].run_into(in, y);
      });
    }
    contenders.emplace_back("read", [&reader] { reader(); });
    const std::vector<PairTiming> times = time_pairs(contenders, o.seconds, 12, 20);
    const double read_gbs = 2 * count / times.back().median_ns;
    for (size_t i = 0; i < times.size(); ++i) {
      const bool is_read = i + 1 == times.size();
      const double bytes = is_read ? 2 * count : choices[i].bytes_per_weight * count;
      const PairTiming& t = times[i];
      const std::string ratio =
          i == 0 ? ""
                 : fmt::format("{:.2f} [{:.2f}, {:.2f}]", t.ratio.value, t.ratio.low, t.ratio.high);
      const std::string quartiles =
          i == 0 ? "" : fmt::format("{:.2f} to {:.2f}", t.lower_quartile, t.upper_quartile);
      const double gbs = bytes / t.median_ns;
      fmt::print("{:>5}  {:<16}{:>12.0f}{:>22}{:>14}{:>10.1f}{:>7.0f}%   {}\n", m, t.name,
                 t.median_ns / 1e3, ratio, quartiles, gbs, gbs / read_gbs * 100,
                 is_read ? "" : fmt::format("{:.1e}", errors[i]));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  epilogue::bench::Options options;
  CLI::App app("Fewer bits beside bf16 and f32, with the bandwidth of the same run");
  app.add_option("--dim", options.k, "columns of x");
  app.add_option("--hidden", options.h, "hidden columns");
  app.add_option("--rows", options.rows, "numbers of rows");
  app.add_option("--seconds", options.seconds, "of timing for each number of rows");
  app.add_option("--threads", options.threads, "threads; all by default");
  app.add_option("--layers", options.layers, "MLPs that take turns, each with memory of its own");
  app.add_option("--isa", options.isa, "instruction set, as EPILOGUE_ISA names it");
  app.add_option("--over", options.over, "what the others are compared with");
  app.add_option("--only", options.only, "names of those that are timed");
  CLI11_PARSE(app, argc, argv);
  if (!options.isa.empty()) setenv("EPILOGUE_ISA", options.isa.c_str(), 1);
  return epilogue::bench::run(options);
}
