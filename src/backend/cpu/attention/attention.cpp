// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/reduce.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {

// The maker of kAttention: cpu_backend.cpp lists it.
std::unique_ptr<FusedKernel> make_attention(const FusedSpec& spec) {
  const auto& attention = static_cast<const AttentionSpec&>(spec);
  if (!has_float_type(attention.dtype))
    throw Error("[attention] expected f32, bf16 or f16, got " +
                std::string(dtype_name(attention.dtype)));
  if (auto kernel = make_direct_attention(attention)) return kernel;
  if (auto kernel = make_tile_attention(attention)) return kernel;
  return make_panel_attention(attention);
}

char* row_address(const MatrixView& view, int64_t r) {
  int64_t offset = 0;
  for (size_t level = kRowLevels; level-- > 0;) {
    if (view.levels[level].rows == 0) continue;
    offset += r / view.levels[level].rows * view.levels[level].stride;
    r %= view.levels[level].rows;
  }
  return static_cast<char*>(view.data) +
         (offset + r * view.row_stride) * static_cast<int64_t>(dtype_bytes(view.dtype));
}

MatrixView matrix_from(const MatrixView& view, int64_t r) {
  MatrixView from = view;
  from.data = row_address(view, r);
  from.levels = {};
  return from;
}

void run_units(int threads, int64_t units, FunctionRef<void(int64_t)> body) {
  if (threads > 1) return parallel_blocks(units, body);
  for (int64_t unit = 0; unit < units; ++unit) body(unit);
}

Follow::Follow(float max, float found)
    : next(std::isnan(max) || found <= max ? max : found),
      shift(next == kMinusInfinity ? 0.0F : next),
      factor(next == max ? 1.0F : std::exp(max - shift)) {}

float make_probabilities(float* scores, int64_t keys, float& max, float& sum) {
  const simd::PointwiseKernels& pointwise = simd::pointwise_kernels();
  const simd::RowKernels& rows = simd::row_kernels();
  const auto count = static_cast<size_t>(keys);
  const Follow follow(max, rows.max(scores, count));
  pointwise.run(PointwiseFn::sub, {scores, follow.shift}, scores, count);
  pointwise.run(PointwiseFn::exp, {scores}, scores, count);
  max = follow.next;
  sum = sum * follow.factor + rows.sum(scores, count);
  return follow.factor;
}

void add_mask_row(DType dtype, const float* mask, int64_t keys, float* scores) {
  if (dtype == DType::boolean) {
    for (int64_t j = 0; j < keys; ++j) scores[j] = mask[j] != 0 ? scores[j] : kMinusInfinity;
  } else {
    simd::pointwise_kernels().run(PointwiseFn::add, {scores, mask}, scores,
                                  static_cast<size_t>(keys));
  }
}

int attention_threads(const AttentionSpec& spec, int64_t pieces, double flops_per_ns,
                      double score_ns) {
  constexpr double kLeastNs = 4000;  // of work, per thread
  const double scores = static_cast<double>(spec.batch) * static_cast<double>(spec.queries) *
                        static_cast<double>(spec.keys) / (spec.causal ? 2 : 1);
  const double flops = 2 * scores * static_cast<double>(spec.depth + spec.values);
  const double ns = flops / flops_per_ns + scores * score_ns;
  const auto wanted = static_cast<int64_t>(
      std::min(ns / std::max(kLeastNs, 2 * machine_rates().handoff_ns), 4096.0));
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, pieces), 1, num_threads()));
}

int64_t attention_groups(const AttentionSpec& spec, int64_t blocks, int threads) {
  // A thread that loses its core keeps the others waiting for one of these.
  constexpr int64_t kPerThread = 4;
  if (threads == 1) return 1;
  return std::clamp<int64_t>(ceil_div(kPerThread * threads, spec.batch), 1, blocks);
}

namespace {

using simd::KeysSeen;

// Of bytes that are 0 or 1.
KeysSeen seen_of(const uint8_t* mask, const MatrixView& view, int64_t rows, int64_t keys) {
  bool any = false;
  bool all = true;
  // Rows that are one row.
  if (view.row_stride == 0) rows = 1;
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* const row = mask + i * view.row_stride;
    if (view.col_stride == 1) {
      uint8_t ones = 1;
      uint8_t some = 0;
      for (int64_t j = 0; j < keys; ++j) {
        ones &= static_cast<uint8_t>(row[j] != 0);
        some |= row[j];
      }
      all &= ones != 0;
      any |= some != 0;
    } else {
      for (int64_t j = 0; j < keys; ++j) {
        const bool is_seen = row[j * view.col_stride] != 0;
        all &= is_seen;
        any |= is_seen;
      }
    }
    if (any && !all) return KeysSeen::some;
  }
  return any ? KeysSeen::all : KeysSeen::none;
}

}  // namespace

KeyMask::KeyMask(const AttentionSpec& spec, const MatrixView* mask, int64_t query_rows,
                 int64_t block_keys, int threads)
    : query_blocks_(ceil_div(spec.queries, query_rows)),
      key_blocks_(ceil_div(spec.keys, block_keys)) {
  if (mask == nullptr || mask->dtype != DType::boolean) return;
  std::vector<const uint8_t*> matrices;
  for (int64_t item = 0; item < spec.batch; ++item) {
    const auto* const at =
        reinterpret_cast<const uint8_t*>(row_address(*mask, item * spec.queries));
    if (matrices.empty() || matrices.back() != at) matrices.push_back(at);
    matrix_of_.push_back(static_cast<int64_t>(matrices.size()) - 1);
  }
  const auto blocks = static_cast<int64_t>(matrices.size()) * query_blocks_;
  seen_.resize(static_cast<size_t>(blocks * key_blocks_));
  const auto look = [&](int64_t block) {
    const int64_t row = block % query_blocks_ * query_rows;
    const uint8_t* const from =
        matrices[static_cast<size_t>(block / query_blocks_)] + row * mask->row_stride;
    const int64_t rows = std::min(query_rows, spec.queries - row);
    const int64_t seen = limit(spec, row, rows);
    for (int64_t b = 0; b < key_blocks_; ++b) {
      const int64_t key = b * block_keys;
      const int64_t keys = std::min(block_keys, seen - key);
      seen_[static_cast<size_t>(block * key_blocks_ + b)] =
          keys <= 0 ? KeysSeen::none : seen_of(from + key * mask->col_stride, *mask, rows, keys);
    }
  };
  run_units(threads, blocks, look);
}

const KeysSeen* KeyMask::blocks(int64_t item, int64_t query_block) const {
  if (seen_.empty()) return nullptr;
  const int64_t matrix = matrix_of_[static_cast<size_t>(item)];
  return seen_.data() + (matrix * query_blocks_ + query_block) * key_blocks_;
}

int64_t KeyMask::limit(const AttentionSpec& spec, int64_t row, int64_t rows) {
  return spec.causal ? std::min(spec.keys, row + rows) : spec.keys;
}

PackedKeys::Place PackedKeys::find(uint64_t run, const void* keys, const void* values,
                                   int64_t floats) {
  if (run == run_ && keys == keys_ && values == values_) return {memory_, true};
  memory_ = scratch_.get(static_cast<size_t>(floats));
  run_ = run;
  keys_ = keys;
  values_ = values;
  return {memory_, false};
}

PackedKeys& packed_keys() {
  static thread_local PackedKeys keys;
  return keys;
}

uint64_t next_attention_run() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace epilogue::cpu
