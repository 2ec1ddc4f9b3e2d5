// SPDX-License-Identifier: Apache-2.0
// The loops of VNNI's dot products of four 8-bit integers. `Unit` is a vector of 32-bit sums:
//
//   V, kLanes, zero(), set(int32_t), load_weights(p), dot(sum, weights, rows), to_float(v, scale),
//   F, load_scales(p), scale_of(float), add(F, F), mul(F, F), load(p), store(p, F)
//
// The instruction takes unsigned times signed integers: weights are moved by 128 (their top bit
// turned) and sums begin at -128 times the row's own sum. Nothing saturates: the instruction adds
// in 32 bits.
//
// `Columns` says where the vectors of a step of four k lie: vector(j), ahead(j, bytes) of the
// panel, next().
//
// Included inside a target region and a namespace of that region's own; no guard, no headers.

// [k / 4][columns][4].
template <int64_t kVectorBytes, int64_t kVectors>
struct QuadRows {
  explicit QuadRows(const PanelArgs& args) : at(static_cast<const int8_t*>(args.panel)) {}
  const int8_t* vector(int64_t j) const { return at + j * kVectorBytes; }
  const int8_t* ahead(int64_t j, int64_t bytes) const { return vector(j) + bytes; }
  void next() { at += kVectors * kVectorBytes; }

  const int8_t* at;
};

// Two halves of columns, one or both of a part.
template <class Unit, int64_t kRows, int64_t kVectors, int kParts, class Columns, Stream kStream>
void dots_tile(const PanelArgs& args, int64_t row) {
  constexpr int64_t width = kVectors * Unit::kLanes;
  constexpr int64_t part_vectors = kVectors / kParts;
  constexpr int64_t part_width = width / kParts;
  constexpr int64_t step_bytes = 4 * width;
  const int8_t* a[kRows];
  typename Unit::V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    a[i] = static_cast<const int8_t*>(args.a) + (row + i) * args.a_stride;
    const int32_t* const before = args.row_sums + (row + i) * args.row_sums_stride;
    const auto moved = static_cast<uint32_t>(before[(args.k + kQuadsK - 1) / kQuadsK]) -
                       static_cast<uint32_t>(before[0]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j)
      sums[i][j] = Unit::set(static_cast<int32_t>(0U - 128U * moved));
  }
  Columns b(args);
  const int64_t pieces = args.m / kDotRows;
  const NextPanel next(next_of(args, pieces), pieces, row / kDotRows, args.k / 4, step_bytes, 1);
  const int64_t steps = args.k / 4;
  int64_t step = 0;
  for (int64_t group = 0; step < steps; ++group) {
    next.fetch(group);
    const int64_t end = std::min(steps, (group + 1) * next.group());
    for (; step < end; ++step, b.next()) {
      if constexpr (kStream == Stream::first) {
        constexpr Ahead ahead = ahead_of_stream(1);
#pragma GCC unroll 4
        for (int64_t at = 0; at < step_bytes; at += 64)
          fetch_line<ahead.into>(b.ahead(at / (4 * Unit::kLanes), ahead.bytes));
      }
      typename Unit::V columns[kVectors];
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) columns[j] = Unit::load_weights(b.vector(j));
#pragma GCC unroll 8
      for (int64_t i = 0; i < kRows; ++i) {
        int32_t four = 0;
        std::memcpy(&four, a[i] + 4 * step, sizeof four);
        const typename Unit::V factor = Unit::set(four);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kVectors; ++j)
          sums[i][j] = Unit::dot(sums[i][j], columns[j], factor);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    const typename Unit::F row_scale = Unit::scale_of(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) {
      float* const to =
          args.sums[j / part_vectors] + (row + i) * part_width + j % part_vectors * Unit::kLanes;
      const typename Unit::F scale =
          Unit::mul(row_scale, Unit::load(args.scales + j * Unit::kLanes));
      typename Unit::F value = Unit::mul(Unit::to_float(sums[i][j]), scale);
      if (args.accumulate) value = Unit::add(Unit::load(to), value);
      Unit::store(to, value);
    }
  }
}

template <class Unit, int64_t kVectors, int kParts,
          class Columns = QuadRows<4 * Unit::kLanes, kVectors>>
void dots_product(const PanelArgs& args) {
  all_rows<kDotRows>(args.m, [&args](auto rows, auto stream, int64_t row) {
    dots_tile<Unit, rows(), kVectors, kParts, Columns, stream()>(args, row);
  });
}
