// SPDX-License-Identifier: Apache-2.0
// Products of a few queries, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/few_queries.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <algorithm>

#include "backend/cpu/simd/fetch_line.h"
#include "backend/cpu/simd/few_queries.h"
#include "backend/cpu/simd/rows-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

constexpr auto kStep = static_cast<int64_t>(kLanes);
static_assert(kFewQueriesColumns % kStep == 0);

// Queries that share what is read of keys and values: four keys' sums with each fill half of the
// registers.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 4 : 2;
// Of one sum over keys: short ones round less.
constexpr int64_t kSumDepth = 32;
// Vectors of columns of a sum of values.
constexpr int kColumns = 4;

// Rows that are read some time later: a core's own prefetcher begins anew on each page and each
// block, and one core alone then reads at two thirds of what it can.
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kLineBytes = 64;

class Ahead {
 public:
  // `is_first`: nobody has fetched these rows yet.
  Ahead(const KeyRows& rows, int64_t element_bytes, bool is_first)
      : row_bytes_(rows.columns * element_bytes),
        stride_(rows.stride * element_bytes),
        from_(static_cast<const char*>(rows.data) +
              std::max<int64_t>(kAheadBytes / std::max<int64_t>(row_bytes_, 1), 1) * stride_) {
    if (!is_first) row_bytes_ = 0;
  }
  // Of row j, when it is read.
  HWY_INLINE void fetch(int64_t j) const {
    const char* const row = from_ + j * stride_;
    if (into_l1_) {
      for (int64_t at = 0; at < row_bytes_; at += kLineBytes) fetch_line<kIntoL1>(row + at);
    } else {
      for (int64_t at = 0; at < row_bytes_; at += kLineBytes) fetch_line<kIntoL2>(row + at);
    }
  }

 private:
  int64_t row_bytes_;
  int64_t stride_;
  const char* from_;
  bool into_l1_ = fetches_into_l1();
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums_of_four(const Vf* v, float* to) {
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(v[i]);
}
#else
// The sum of each 128 bits of `v`'s blocks, lane by lane.
template <class D, class V>
HWY_INLINE auto sum_of_blocks(D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// to[i] = the sum of v[i]'s lanes: with half of the shuffles that four sums by themselves take.
HWY_INLINE void store_sums_of_four(const Vf* v, float* to) {
  const Df d;
  const hn::Repartition<uint64_t, Df> pairs;
  const auto fold = [&](Vf a, Vf b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto low = hn::BitCast(pairs, fold(v[0], v[1]));
  const auto high = hn::BitCast(pairs, fold(v[2], v[3]));
  const Vf sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                          hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  hn::StoreU(sum_of_blocks(d, sums), hn::FixedTag<float, 4>(), to);
}
#endif

// Scores of kCount queries and kKeys keys. Lane by lane first: a score is the sum of a vector.
template <FloatType kType, int kCount, int kKeys>
HWY_INLINE void score(const float* q, int64_t q_stride, const Storage<kType>* k, int64_t k_stride,
                      int64_t columns, float* s, int64_t s_stride) {
  Vf sums[kCount][kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) sums[i][j] = set(0.0F);
  const auto add = [&](const auto& keys_at, int64_t c) HWY_ATTR {
    Vf keys[kKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) keys[j] = keys_at(k + j * k_stride + c);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const Vf query = load(q + i * q_stride + c);
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) sums[i][j] = hn::MulAdd(query, keys[j], sums[i][j]);
    }
  };
  int64_t c = 0;
  for (; c + kStep <= columns; c += kStep)
    add([](const Storage<kType>* p) HWY_ATTR { return load_as_f32<kType>(Df(), p); }, c);
  const auto left = static_cast<size_t>(columns - c);
  if (left != 0)
    add([left](const Storage<kType>* p) HWY_ATTR { return load_tail<kType>(Df(), p, left); }, c);
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kKeys == 4) {
      store_sums_of_four(sums[i], s + i * s_stride);
    } else {
      s[i * s_stride] = sum_of_lanes(sums[i][0]);
    }
  }
}

// Of kCount queries: what Scores and Add do. `is_first`: nobody has fetched these rows yet.
using OfCount = void (*)(const float* in, int64_t in_stride, const KeyRows& rows, bool is_first,
                         float* out, int64_t out_stride);

// By number of queries, less one; a last group has fewer.
void in_groups(const OfCount* by_count, const FloatRows& in, int64_t queries, const KeyRows& rows,
               const FloatRows& out) {
  for (int64_t i = 0; i < queries; i += kRows)
    by_count[std::min<int64_t>(queries - i, kRows) - 1](
        in.data + i * in.stride, in.stride, rows, i == 0, out.data + i * out.stride, out.stride);
}

template <FloatType kType, int kCount>
void scores_of(const float* q, int64_t q_stride, const KeyRows& k, bool is_first, float* s,
               int64_t s_stride) {
  const Ahead ahead(k, size_of(kType), is_first);
  constexpr int kKeys = 4;
  const auto* const keys = static_cast<const Storage<kType>*>(k.data);
  int64_t j = 0;
  for (; j + kKeys <= k.rows; j += kKeys) {
    for (int key = 0; key < kKeys; ++key) ahead.fetch(j + key);
    score<kType, kCount, kKeys>(q, q_stride, keys + j * k.stride, k.stride, k.columns, s + j,
                                s_stride);
  }
  for (; j < k.rows; ++j) {
    ahead.fetch(j);
    score<kType, kCount, 1>(q, q_stride, keys + j * k.stride, k.stride, k.columns, s + j, s_stride);
  }
}

template <FloatType kType>
void scores(const FloatRows& q, int64_t queries, const KeyRows& k, const FloatRows& s) {
  static constexpr OfCount by_count[] = {scores_of<kType, 1>, scores_of<kType, 2>,
                                         scores_of<kType, std::min(3, kRows)>,
                                         scores_of<kType, kRows>};
  in_groups(by_count, q, queries, k, s);
}

// kVectors vectors of columns of kCount queries.
template <int kCount, int kVectors, class Load>
HWY_INLINE void add_some(const Load& values_at, const Ahead& ahead, int64_t begin, int64_t end,
                         const float* p, int64_t p_stride, float* o, int64_t o_stride) {
  Vf sums[kCount][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) sums[i][c] = set(0.0F);
  for (int64_t j = begin; j < end; ++j) {
    ahead.fetch(j);
    Vf values[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) values[c] = values_at(j, c * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const Vf weight = set(p[i * p_stride + j]);
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) sums[i][c] = hn::MulAdd(weight, values[c], sums[i][c]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      float* const to = o + i * o_stride + c * kStep;
      store(hn::Add(load(to), sums[i][c]), to);
    }
}

template <int kCount, int kVectors, class Load>
HWY_INLINE void add_columns(const Load& values_at, const Ahead& ahead, int64_t rows, const float* p,
                            int64_t p_stride, float* o, int64_t o_stride) {
  for (int64_t j = 0; j < rows; j += kSumDepth)
    add_some<kCount, kVectors>(values_at, ahead, j, std::min(j + kSumDepth, rows), p, p_stride, o,
                               o_stride);
}

template <FloatType kType, int kCount>
void add_values(const float* p, int64_t p_stride, const KeyRows& v, bool is_first, float* o,
                int64_t o_stride) {
  const auto* const values = static_cast<const Storage<kType>*>(v.data);
  const auto from = [&](int64_t column) HWY_ATTR {
    return [at = values + column, stride = v.stride](int64_t j, int64_t c)
               HWY_ATTR { return load_as_f32<kType>(Df(), at + j * stride + c); };
  };
  const auto ahead = [&](int64_t column) {
    return Ahead(v, size_of(kType), is_first && column == 0);
  };
  int64_t c = 0;
  for (; c + kColumns * kStep <= v.columns; c += kColumns * kStep)
    add_columns<kCount, kColumns>(from(c), ahead(c), v.rows, p, p_stride, o + c, o_stride);
  for (; c + kStep <= v.columns; c += kStep)
    add_columns<kCount, 1>(from(c), ahead(c), v.rows, p, p_stride, o + c, o_stride);
  const auto left = static_cast<size_t>(v.columns - c);
  if (left != 0)
    add_columns<kCount, 1>([at = values + c, stride = v.stride, left](int64_t j, int64_t)
                               HWY_ATTR { return load_tail<kType>(Df(), at + j * stride, left); },
                           ahead(c), v.rows, p, p_stride, o + c, o_stride);
}

template <FloatType kType>
void add(const FloatRows& p, int64_t queries, const KeyRows& v, const FloatRows& o) {
  static constexpr OfCount by_count[] = {add_values<kType, 1>, add_values<kType, 2>,
                                         add_values<kType, std::min(3, kRows)>,
                                         add_values<kType, kRows>};
  in_groups(by_count, p, queries, v, o);
}

}  // namespace

static_assert(static_cast<int>(FloatType::f32) == 0 && static_cast<int>(FloatType::bf16) == 1 &&
              static_cast<int>(FloatType::f16) == 2);
constexpr FewQueriesKernels few_queries_table = {
    .target = kTargetName,
    .scores = {scores<FloatType::f32>, scores<FloatType::bf16>, scores<FloatType::f16>},
    .add = {add<FloatType::f32>, add<FloatType::bf16>, add<FloatType::f16>},
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const FewQueriesKernels& few_queries_kernels() { return EPILOGUE_PICK(few_queries_table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
