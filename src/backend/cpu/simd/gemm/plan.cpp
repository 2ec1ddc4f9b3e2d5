// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/gemm/plan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/targets.h"
#include "base/caches.h"
#include "base/ceil_div.h"
#include "base/cpu_features.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Read once: the answer lies in files.
int64_t l2_bytes() {
  static const int64_t bytes = [] {
    const long told = cpu_caches().l2_bytes;
    return told > 0 ? static_cast<int64_t>(told) : int64_t{512} << 10;
  }();
  return bytes;
}

// What a thread must have to do to be worth its waking. One that still spins costs handoff_ns.
constexpr double kLeastThreadNs = 2000;

double least_thread_ns(const MachineRates& rates) {
  return std::max(kLeastThreadNs, 2 * rates.handoff_ns);
}

// Elements of B that make a gemv's thread worth waking.
int64_t gemv_elements(const GemmCall& c) {
  const MachineRates rates = machine_rates();
  const auto element_bytes = static_cast<double>(size_of(c.b.type));
  const double bytes = static_cast<double>(c.k) * static_cast<double>(c.n) * element_bytes;
  const bool is_cached = bytes < static_cast<double>(l2_bytes());
  const double rate = is_cached ? kCachedBytesPerNs : rates.stream_bytes_per_ns;
  return static_cast<int64_t>(2 * least_thread_ns(rates) * rate / element_bytes);
}

// A's chunk, read once for each panel of B: a sixth of a common L3, with room for C and B.
constexpr int64_t kChunkABytes = 6 << 20;
// f32 partial sums of a 16-bit C, needed where k takes several chunks.
constexpr int64_t kPartialBytes = 32 << 20;
// B below this stays in L1 or near it, however often it is read.
constexpr int64_t kSmallBBytes = 32 << 10;

// A chunk of the pairs GEMM: a panel of 256 KiB; its rows' sums share L2 with it.
constexpr int64_t kPairsDepth = 2048;
constexpr int64_t kPairsRows = 1024;

bool n_contiguous(const GemmCall& c) { return c.b.col_stride == 1 || c.n == 1; }
bool k_contiguous(const GemmCall& c) { return c.b.row_stride == 1 || c.k == 1; }

// Rows times columns of threads: the cut whose largest piece is smallest; among equals the one with
// fewer row cuts, for each of those packs all of B again.
void split_threads(GemmStrategy& s, int threads, int64_t row_tiles, int64_t column_panels) {
  int64_t best = -1;
  for (int rows = 1; rows <= std::min<int64_t>(threads, row_tiles); ++rows) {
    const auto columns = static_cast<int>(std::min<int64_t>(threads / rows, column_panels));
    const int64_t piece = ceil_div(row_tiles, rows) * ceil_div(column_panels, columns);
    if (best >= 0 && piece >= best) continue;
    best = piece;
    s.pieces_m = rows;
    s.pieces_n = columns;
  }
}

void choose_blocks(GemmStrategy& s, const GemmCall& c, const GemmKernels& kernels) {
  constexpr int64_t float_bytes = sizeof(float);
  const int64_t deepest =
      std::clamp<int64_t>(l2_bytes() / 4 / (kernels.nr * float_bytes), 128, 1024);
  s.kc = even_chunk(c.k, deepest, 8);
  int64_t rows = kChunkABytes / (s.kc * float_bytes);
  if (s.kc < c.k && c.c_type != FloatType::f32)
    rows = std::min(rows, std::max(kPartialBytes / (c.n * float_bytes), int64_t{16} * kernels.mr));
  s.m_chunk = even_chunk(c.m, rows, kernels.mr);
}

// f32 rows of A are read as they are: the kernel wants them so. B is packed unless too few rows use
// it to earn that back, or it is so small that its layout does not matter.
void choose_packing(GemmStrategy& s, const GemmCall& c, const GemmKernels& kernels) {
  s.pack_a = !(c.a.type == FloatType::f32 && (c.a.col_stride == 1 || c.k == 1));
  const bool b_as_is = c.b.type == FloatType::f32 && n_contiguous(c);
  const bool small = c.k * c.n * static_cast<int64_t>(sizeof(float)) <= kSmallBBytes;
  s.pack_b = !(b_as_is && (small || c.m <= 3 * kernels.mr));
}

bool runs_on_pairs(const GemmCall& c) {
  constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
  return c.a.type == FloatType::bf16 && c.b.type == FloatType::bf16 &&
         packed_kernels().one[pairs] != nullptr;
}

}  // namespace

int64_t even_chunk(int64_t total, int64_t most, int64_t multiple) {
  const int64_t chunks = std::max<int64_t>(1, ceil_div(total, std::max(most, multiple)));
  return std::max<int64_t>(1, ceil_div(ceil_div(total, chunks), multiple)) * multiple;
}

GemmStrategy choose_strategy(const GemmCall& c, const GemmKernels& kernels) {
  GemmStrategy s;
  if (c.k == 0) {
    s.path = GemmPath::no_sum;
    return s;
  }
  if (c.m <= kGemvRows && (n_contiguous(c) || k_contiguous(c))) {
    s.path = n_contiguous(c) ? GemmPath::gemv_n : GemmPath::gemv_k;
    const int64_t grain = std::max<int64_t>(gemv_elements(c) / c.k, 16);
    s.pieces_n = parallel_pieces(c.n, grain);
    return s;
  }
  if (runs_on_pairs(c)) {
    s.path = GemmPath::pairs;
    s.kc = kPairsDepth;
    s.m_chunk = even_chunk(c.m, kPairsRows * num_threads(), kernels.mr);
  } else {
    choose_blocks(s, c, kernels);
    choose_packing(s, c, kernels);
  }
  const double flops =
      2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  const MachineRates rates = machine_rates();
  const bool is_bf16 = s.path == GemmPath::pairs;
  const double alone_ns = flops / (is_bf16 ? rates.bf16_flops_per_ns : rates.f32_flops_per_ns) +
                          static_cast<double>(c.m) * static_cast<double>(c.n) * kElementNs;
  const auto wanted = static_cast<int>(std::min(alone_ns / least_thread_ns(rates), 4096.0));
  const int threads = std::clamp(wanted, 1, num_threads());
  split_threads(s, threads, ceil_div(std::min(s.m_chunk, c.m), kernels.mr),
                ceil_div(c.n, kernels.nr));
  return s;
}

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

// What the instructions of a product are called: those of pairs are beyond the targets' levels.
const char* level_name(const GemmCall& c, bool gemv) {
  if (gemv || c.k == 0 || !runs_on_pairs(c)) return target_name(active_target());
  return cpu_has(CpuFeature::amx_bf16) ? "amx" : "avx512bf16";
}

std::string build_name(const GemmCall& c, bool gemv, const GemmKernels& kernels) {
  const int64_t rows = gemv ? kGemvRows : kernels.mr;
  const int64_t columns = gemv ? kGemvColumns : kernels.nr;
  constexpr const char* addends[] = {"", "_bias", "_add"};
  return std::string("epi_") + level_name(c, gemv) + (gemv ? "_gemv_" : "_gemm_") + types_name(c) +
         "_" + std::to_string(rows) + "x" + std::to_string(columns) + "_" +
         (b_is_t(c) ? "t" : "n") + (a_is_t(c) ? "t" : "n") +
         addends[static_cast<size_t>(addend_of(c))];
}

// One slot for every name there can be, filled at its first use and kept: a trace holds pointers.
const char* interned_name(const GemmCall& c, bool gemv, const GemmKernels& kernels) {
  constexpr size_t slots =
      std::size(kIsas) * 2 * 2 * 2 * 3 * kFloatTypes * kFloatTypes * kFloatTypes;
  static std::array<std::atomic<const std::string*>, slots> names{};
  auto index = static_cast<size_t>(active_isa());
  index = index * 2 + (gemv ? 1 : 0);
  index = index * 2 + (b_is_t(c) ? 1 : 0);
  index = index * 2 + (a_is_t(c) ? 1 : 0);
  index = index * 3 + static_cast<size_t>(addend_of(c));
  for (FloatType type : {c.a.type, c.b.type, c.c_type})
    index = index * kFloatTypes + static_cast<size_t>(type);
  const std::string* name = names[index].load(std::memory_order_acquire);
  if (name == nullptr) {
    const auto* fresh = new std::string(build_name(c, gemv, kernels));
    if (names[index].compare_exchange_strong(name, fresh, std::memory_order_acq_rel)) {
      name = fresh;
    } else {
      delete fresh;
    }
  }
  return name->c_str();
}

}  // namespace

GemmPlan describe_gemm(const GemmCall& c) {
  const GemmKernels& kernels = gemm_kernels();
  GemmPlan plan = {nullptr, {0, 0, 0}, {0, 0, 0}, 1};
  if (c.m == 0 || c.n == 0) {
    plan.name = interned_name(c, false, kernels);
    return plan;
  }
  const GemmStrategy s = choose_strategy(c, kernels);
  const bool gemv = s.path == GemmPath::gemv_n || s.path == GemmPath::gemv_k;
  plan.name = interned_name(c, gemv, kernels);
  plan.threads = s.pieces_m * s.pieces_n;
  const int64_t rows = gemv ? kGemvRows : kernels.mr;
  const int64_t columns = gemv ? kGemvColumns : kernels.nr;
  const int64_t depth = gemv ? c.k : std::min(s.kc, c.k);
  plan.block[0] = columns;
  plan.block[1] = rows;
  plan.block[2] = depth;
  plan.grid[0] = ceil_div(c.n, columns);
  plan.grid[1] = ceil_div(c.m, rows);
  plan.grid[2] = depth == 0 ? 1 : ceil_div(c.k, depth);
  return plan;
}

}  // namespace epilogue::simd
