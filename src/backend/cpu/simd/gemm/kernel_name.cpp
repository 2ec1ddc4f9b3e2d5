// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/gemm/plan.h"
#include "backend/cpu/simd/targets.h"
#include "base/ceil_div.h"

namespace epilogue::simd {
namespace {

const char* type_name(FloatType type) {
  constexpr const char* names[kFloatTypes] = {"f32", "bf16", "f16"};
  return names[static_cast<size_t>(type)];
}

std::string types_name(const GemmCall& c) {
  if (c.a.type == c.b.type && c.b.type == c.c_type) return type_name(c.c_type);
  return std::string(type_name(c.a.type)) + type_name(c.b.type) + type_name(c.c_type);
}

enum class Addend : uint8_t { none, row, matrix };
Addend addend_of(const GemmCall& c) {
  if (c.bias.data == nullptr || c.beta == 0.0F) return Addend::none;
  return c.bias.row_stride == 0 && c.bias.col_stride != 0 ? Addend::row : Addend::matrix;
}

// The letters that a column-major library would be given: t where k is contiguous in B (n in A).
bool b_is_t(const GemmCall& c) { return c.b.col_stride != 1 && c.b.row_stride == 1; }
bool a_is_t(const GemmCall& c) { return c.a.col_stride != 1 && c.a.row_stride == 1; }

bool is_gemv(const GemmPlan& plan) {
  return plan.path == GemmPath::gemv_n || plan.path == GemmPath::gemv_k;
}

// Rows and columns of a block: of a gemv, or of the target's register tile.
std::array<int64_t, 2> block_of(const GemmPlan& plan) {
  if (is_gemv(plan)) return {kGemvRows, kGemvColumns};
  const PanelKernel& f32 = panel_kernels().back().kernel();
  return {f32.mr, f32.layout.width};
}

// What the instructions of a product are called where they are beyond the target's; else null.
const char* level_beyond_target(const GemmPlan& plan) {
  return plan.kernel == nullptr ? nullptr : plan.kernel->level;
}

std::string build_name(const GemmCall& c, const GemmPlan& plan) {
  constexpr const char* addends[] = {"", "_bias", "_add"};
  const auto [rows, columns] = block_of(plan);
  const char* const beyond = level_beyond_target(plan);
  const char* const level = beyond != nullptr ? beyond : target_name(active_target());
  return std::string("epi_") + level + (is_gemv(plan) ? "_gemv_" : "_gemm_") + types_name(c) + "_" +
         std::to_string(rows) + "x" + std::to_string(columns) + "_" + (b_is_t(c) ? "t" : "n") +
         (a_is_t(c) ? "t" : "n") + addends[static_cast<size_t>(addend_of(c))];
}

// Levels that names may have: targets, and panel kernels beyond them.
constexpr size_t kLevels = kTargets + kPanelKernels;
size_t level_index(const GemmPlan& plan) {
  if (level_beyond_target(plan) == nullptr) return static_cast<size_t>(active_target());
  return kTargets + static_cast<size_t>(plan.entry - panel_kernels().data());
}

}  // namespace

// One slot for every name there can be, filled at its first use and kept: a trace holds pointers.
const char* kernel_name(const GemmCall& c, const GemmPlan& plan) {
  constexpr size_t slots = kLevels * 2 * 2 * 2 * 3 * kFloatTypes * kFloatTypes * kFloatTypes;
  static std::array<std::atomic<const std::string*>, slots> names{};
  size_t index = level_index(plan);
  index = index * 2 + (is_gemv(plan) ? 1 : 0);
  index = index * 2 + (b_is_t(c) ? 1 : 0);
  index = index * 2 + (a_is_t(c) ? 1 : 0);
  index = index * 3 + static_cast<size_t>(addend_of(c));
  for (FloatType type : {c.a.type, c.b.type, c.c_type})
    index = index * kFloatTypes + static_cast<size_t>(type);
  const std::string* name = names[index].load(std::memory_order_acquire);
  if (name == nullptr) {
    const auto* fresh = new std::string(build_name(c, plan));
    if (names[index].compare_exchange_strong(name, fresh, std::memory_order_acq_rel)) {
      name = fresh;
    } else {
      delete fresh;
    }
  }
  return name->c_str();
}

GemmGrid grid_of(const GemmCall& c, const GemmPlan& plan) {
  if (plan.path == GemmPath::nothing) return {};
  const auto [rows, columns] = block_of(plan);
  const int64_t depth = is_gemv(plan) ? c.k : std::min(plan.kc, c.k);
  return {{ceil_div(c.n, columns), ceil_div(c.m, rows), depth == 0 ? 1 : ceil_div(c.k, depth)},
          {columns, rows, depth}};
}

}  // namespace epilogue::simd
