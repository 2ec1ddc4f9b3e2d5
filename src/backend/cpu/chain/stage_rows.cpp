// SPDX-License-Identifier: Apache-2.0
// Rows that a stage reads: as they flow, and as its kernel wants them.
#include <algorithm>
#include <cstring>

#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/chain/sum_depth.h"
#include "backend/cpu/chain/tile_stage.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/group_columns.h"
#include "backend/cpu/simd/panels/integer_rows.h"
#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/ceil_div.h"
#include "base/thread_pool.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PanelLayout;

constexpr int64_t kLineBytes = 64;
// Rows at such a distance compete for the same places of L1.
constexpr int64_t kAliasBytes = 4096;

thread_local simd::Scratch integer_scratch;
thread_local simd::Scratch strip_scratch;
thread_local simd::Scratch byte_scratch;  // some rows on their way to tiles

}  // namespace

FloatType rows_type(const StageCall& stage) {
  const PanelLayout& layout = stage.kernel->layout;
  // What bf16 loses is nothing beside 8 bits, and tile products write it line by line.
  const bool may_be_short = layout.quantise_rows != nullptr && stage.kernel->tiles != nullptr &&
                            stage.stage->weights_type() == FloatType::bf16;
  return may_be_short ? FloatType::bf16 : layout.rows;
}

namespace {

// 0: its weights have none.
int64_t steps_of_groups(const StageCall& stage) {
  if (!stage.weights->layout().has_groups) return 0;
  return simd::group_unit(stage.weights->groups(), stage.kernel->layout.row_bytes);
}

// Integers are tiled when they are made.
bool takes_tiles(const StageCall& stage, int64_t m) {
  return reads_tiles(stage, m) && stage.kernel->layout.quantise_rows == nullptr;
}

}  // namespace

int64_t rows_stride(const StageCall& stage) {
  const auto bytes = static_cast<int64_t>(size_of(rows_type(stage)));
  const int64_t stride = stage.padded_k;
  return stride * bytes % kAliasBytes == 0 ? stride + kLineBytes / bytes : stride;
}

int64_t rows_floats(const StageCall& stage, int64_t m) {
  const int64_t bytes =
      takes_tiles(stage, m)
          ? simd::TiledRows::bytes_of(m, stage.padded_k / simd::kTileK)
          : rows_stride(stage) * m * static_cast<int64_t>(size_of(rows_type(stage)));
  return (bytes + kLineBytes - 1) / kLineBytes * (kLineBytes / int64_t{sizeof(float)});
}

StageRows rows_at(const StageCall& stage, int64_t m, float* memory) {
  if (!takes_tiles(stage, m)) return {memory, rows_stride(stage)};
  return {.tiles = tiled_rows(m, stage.padded_k, memory, steps_of_groups(stage))};
}

void set_row(const StageCall& stage, const StageRows& rows, int64_t row, FloatType type,
             const void* from) {
  const FloatType want = rows_type(stage);
  const int64_t k = stage.stage->k();
  if (rows.tiles.data != nullptr)
    return rows.tiles.set_row(row, static_cast<const uint16_t*>(from), k);
  const auto n = static_cast<size_t>(k);
  auto* const to =
      static_cast<char*>(simd::advance(const_cast<void*>(rows.data), want, row * rows.stride));
  if (type == want) {
    std::memcpy(to, from, n * size_of(want));
  } else {
    simd::to_f32(type, from, reinterpret_cast<float*>(to), n);
  }
  std::memset(to + n * size_of(want), 0, static_cast<size_t>(stage.padded_k - k) * size_of(want));
}

StageFlow stage_flow(const StageCall& stage, const StageCall& next, int64_t m, float* memory) {
  // Padding: weights are zero there, and 0 times garbage may be NaN.
  const int64_t columns = stage.stage->flowing_columns();
  const StageRows rows = rows_at(next, m, memory);
  if (rows.tiles.data != nullptr) {
    rows.tiles.clear_from(columns);
    return {.tiles = rows.tiles};
  }
  const FloatType type = rows_type(next);
  const auto bytes = static_cast<int64_t>(size_of(type));
  if (next.padded_k > columns)
    for (int64_t r = 0; r < m; ++r)
      std::memset(reinterpret_cast<char*>(memory) + (r * rows.stride + columns) * bytes, 0,
                  static_cast<size_t>((next.padded_k - columns) * bytes));
  return {.rows = {memory, type == FloatType::bf16 ? DType::bf16 : DType::f32, rows.stride, 1}};
}

namespace {

// Rows [begin, end) as integers into `out`, of `stride` bytes a row, and their scales.
void quantise(const StageCall& stage, const StageRows& rows, int64_t begin, int64_t end, void* out,
              float* scales) {
  const int64_t k = stage.stage->k();
  const FloatType type = rows_type(stage);
  const void* const in = simd::advance(rows.data, type, begin * rows.stride);
  if (type == FloatType::bf16) {
    EPI_ASSERT(stage.kernel->layout.row_bytes == 1, "rows of bf16 become bytes");
    return simd::quantise_kernels().bf16_to_i8(static_cast<const uint16_t*>(in), rows.stride,
                                               end - begin, k, stage.padded_k,
                                               static_cast<int8_t*>(out), stage.padded_k, scales);
  }
  stage.kernel->layout.quantise_rows(static_cast<const float*>(in), rows.stride, end - begin, k,
                                     stage.padded_k, out, stage.padded_k, scales);
}

// In tiles, some rows at a time, which stay in L1.
StageRows quantised_tiles(const StageCall& stage, const StageRows& rows, int64_t m, int threads) {
  constexpr int64_t kSome = 4;
  constexpr int64_t kElementsPerThread = 64 << 10;
  const int64_t words = stage.padded_k / 2;
  const int64_t row_floats =
      simd::TiledRows::bytes_of(m, ceil_div(words, simd::kTileK)) / int64_t{sizeof(float)};
  float* const memory = integer_scratch.get(static_cast<size_t>(row_floats + m));
  StageRows out;
  out.tiles = tiled_rows(m, words, memory, steps_of_groups(stage));
  float* const scales = memory + row_floats;
  out.scales = scales;
  const auto some_rows = [&](int64_t begin, int64_t end) {
    float* const bytes = byte_scratch.get(static_cast<size_t>(kSome * words / 2));
    for (int64_t i = begin; i < end; i += kSome) {
      const int64_t last = std::min(i + kSome, end);
      quantise(stage, rows, i, last, bytes, scales + i);
      for (int64_t row = i; row < last; ++row)
        out.tiles.set_row(row, reinterpret_cast<const uint16_t*>(bytes) + (row - i) * words, words);
    }
  };
  if (threads == 1 || m * stage.padded_k < 2 * kElementsPerThread) {
    some_rows(0, m);
  } else {
    parallel_for(m, std::max<int64_t>(kSome, kElementsPerThread / stage.padded_k), some_rows);
  }
  return out;
}

StageRows strips_of(const StageCall& stage, const StageRows& rows, int64_t m, int threads) {
  constexpr int64_t kElementsPerThread = 64 << 10;
  const int64_t mr = stage.kernel->mr;
  const int64_t strips = ceil_div(m, mr);
  const int64_t k = stage.padded_k;
  const int64_t chunk = chunk_of_k(stage, m);
  const bool by_sums = stage.kernel->strips.by_sums;
  float* const memory = strip_scratch.get(static_cast<size_t>(strips * mr * k));
  const auto some_strips = [&](int64_t begin, int64_t end) {
    const auto* const from = static_cast<const float*>(rows.data) + begin * mr * rows.stride;
    const int64_t mine = std::min(end * mr, m) - begin * mr;
    for (int64_t first = 0; first < k; first += chunk) {
      const int64_t last = std::min(first + chunk, k);
      const int64_t most =
          by_sums ? sum_depth(*stage.weights, *stage.kernel, m, last - first) : chunk;
      for (int64_t c = first; c < last; c += most) {
        const int64_t columns = std::min(most, last - c);
        stage.kernel->strips.pack(from + c, rows.stride, mine, columns,
                                  memory + (c * strips + begin * columns) * mr);
      }
    }
  };
  if (threads == 1) {
    some_strips(0, strips);
  } else {
    parallel_for(strips, std::max<int64_t>(1, kElementsPerThread / (mr * k)), some_strips);
  }
  return {.data = memory, .stride = strips * mr, .in_strips = true};
}

}  // namespace

StageRows rows_for_kernel(const StageCall& stage, const StageRows& rows, int64_t m, int threads) {
  const simd::PanelLayout& layout = stage.kernel->layout;
  if (reads_strips(stage, m)) return strips_of(stage, rows, m, threads);
  if (layout.quantise_rows == nullptr) return rows;
  if (reads_tiles(stage, m)) return quantised_tiles(stage, rows, m, threads);
  const int64_t stride = stage.padded_k;
  const int64_t unit = !layout.has_groups    ? layout.sum_unit
                       : layout.sum_unit > 0 ? simd::w4a8_sum_unit(stage.weights->groups())
                                             : stage.weights->k_unit();
  const int64_t sums_stride = unit > 0 ? stride / unit + 1 : 0;
  // Rows first: they begin at a cache line.
  const int64_t row_floats = (stride * m * layout.row_bytes + 3) / int64_t{sizeof(float)};
  float* const out = integer_scratch.get(static_cast<size_t>(row_floats + m + sums_stride * m));
  float* const scales = out + row_floats;
  quantise(stage, rows, 0, m, out, scales);
  if (unit == 0) return {out, stride, scales};
  auto* const sums = reinterpret_cast<int32_t*>(scales + m);
  if (layout.row_bytes == 1) {
    simd::running_sums(reinterpret_cast<const int8_t*>(out), stride, m, stride, unit, sums);
  } else {
    simd::running_sums(reinterpret_cast<const int16_t*>(out), stride, m, stride, unit, sums);
  }
  if (layout.arrange_rows != nullptr) layout.arrange_rows(out, m * stride);
  return {out, stride, scales, sums, sums_stride, unit};
}

}  // namespace epilogue::cpu
