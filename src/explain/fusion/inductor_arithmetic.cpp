// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/inductor_arithmetic.h"

#include <algorithm>
#include <array>

namespace epilogue::trace {
namespace {

// How many times as long as the op Inductor's kernel of it alone takes, where that is not about 1.
struct Factor {
  std::string_view name;
  double f32;
  double reduced;  // bf16, f16
};

// Measured with PyTorch 2.15 on CPUs of Intel and AMD with AVX-512, tensors of 512 x 1024. Eager
// gelu has a shorter exp; norms take all sums in one pass.
constexpr std::array<Factor, 2> kFactors = {
    {{"aten::gelu", 1.5, 1.8}, {"aten::native_layer_norm", 0.5, 1.0}}};

// Ops that are as fast as memory, or slower for another reason: eager f32 takes these from MKL's
// vector math, whose speed depends on the CPU's maker, and its elu works on whole vectors.
// Inductor's kernels take SLEEF's and, for elu, expm1. Their arithmetic, as a multiple of what
// moving the op's bytes in a cache takes, is about the same on the CPUs above. 0: as the op's.
constexpr std::array<Factor, 8> kMultiplesOfBytes = {{{"aten::tanh", 4.0, 0},
                                                      {"aten::elu", 5.1, 7.4},
                                                      {"aten::log", 1.2, 0},
                                                      {"aten::exp", 0.5, 0},
                                                      {"aten::erf", 1.5, 0},
                                                      {"aten::sin", 0.6, 0},
                                                      {"aten::cos", 0.6, 0},
                                                      {"aten::sqrt", 0.1, 0}}};

// The exact form of gelu takes less than so many times its bytes; the one with tanh, which traces
// do not tell apart, more, and as long in either kernel.
constexpr double kExactGelu = 3;

// The table's number for the op; 0 without one.
template <size_t N>
double number_of(const std::array<Factor, N>& table, const OpRun& run) {
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Factor& f) { return f.name == run.name; });
  if (row == table.end()) return 0;
  return run.element_bytes == 2 ? row->reduced : row->f32;
}

}  // namespace

double fused_arithmetic_ns(const OpRun& run) {
  if (const double multiple = number_of(kMultiplesOfBytes, run); multiple > 0)
    return run.cached_ns * multiple;
  double factor = number_of(kFactors, run);
  const bool has_tanh = run.name == "aten::gelu" && run.ns > kExactGelu * run.bytes_ns;
  if (factor == 0 || has_tanh) factor = 1;
  return std::max(0.0, run.ns * factor - run.bytes_ns);
}

}  // namespace epilogue::trace
