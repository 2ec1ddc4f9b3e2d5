// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/element.h"

namespace epilogue::cpu {
namespace {

bool contains(const Dims& dims, int d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

template <class Raw>
void gather(const Raw* from, int64_t step, int64_t n, Raw* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
}
template <class Raw>
void scatter(const Raw* from, int64_t n, Raw* to, int64_t step) {
  for (int64_t i = 0; i < n; ++i) to[i * step] = from[i];
}

uint16_t* raw_scratch(int64_t n) {
  return reinterpret_cast<uint16_t*>(scratch(Slot::raw, (n + 1) / 2));
}

}  // namespace

float* scratch(Slot slot, int64_t floats) {
  thread_local std::array<std::vector<float>, 8> buffers;
  std::vector<float>& buffer = buffers[static_cast<size_t>(slot)];
  if (buffer.size() < static_cast<size_t>(floats)) buffer.resize(static_cast<size_t>(floats));
  return buffer.data();
}

void Axes::push_back(Axis next) {
  if (next.size == 1) return;
  if (rank > 0) {
    Axis& last = axis[static_cast<size_t>(rank - 1)];
    if (last.stride == next.size * next.stride) {
      last = {last.size * next.size, next.stride};
      return;
    }
  }
  axis[static_cast<size_t>(rank++)] = next;
}

int64_t Axes::count() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= axis[static_cast<size_t>(i)].size;
  return n;
}

int64_t Axes::offset(int64_t i) const {
  int64_t o = 0;
  for (int d = rank - 1; d > 0; --d) {
    const Axis& a = axis[static_cast<size_t>(d)];
    o += i % a.size * a.stride;
    i /= a.size;
  }
  return rank == 0 ? 0 : o + i * axis[0].stride;
}

const float* read_line(simd::FloatType type, const void* data, int64_t step, int64_t n,
                       float* buffer) {
  if (type == simd::FloatType::f32) {
    const auto* from = static_cast<const float*>(data);
    if (step == 1) return from;
    gather(from, step, n, buffer);
    return buffer;
  }
  if (step != 1) {
    uint16_t* raw = raw_scratch(n);
    gather(static_cast<const uint16_t*>(data), step, n, raw);
    data = raw;
  }
  simd::to_f32(type, data, buffer, static_cast<size_t>(n));
  return buffer;
}

void write_line(simd::FloatType type, const float* values, void* data, int64_t step, int64_t n) {
  if (type == simd::FloatType::f32 && step != 1)
    return scatter(values, n, static_cast<float*>(data), step);
  if (step == 1) return simd::from_f32(type, values, data, static_cast<size_t>(n));
  uint16_t* raw = raw_scratch(n);
  simd::from_f32(type, values, raw, static_cast<size_t>(n));
  scatter(raw, n, static_cast<uint16_t*>(data), step);
}

Rows::Rows(const Tensor& t, const Dims& inner)
    : data_(static_cast<std::byte*>(t.data())),
      type_(float_type(t.dtype())),
      dtype_(t.dtype()),
      element_(dtype_bytes(t.dtype())) {
  for (int d = 0; d < t.dim(); ++d)
    (contains(inner, d) ? inner_ : outer_).push_back({t.sizes()[d], t.strides()[d]});
  count_ = outer_.count();
  size_ = inner_.count();
  step_ = inner_.rank == 0 ? 1 : inner_.rank == 1 ? inner_.axis[0].stride : 0;
  is_packed_ =
      step_ == 1 && (outer_.rank == 0 || (outer_.rank == 1 && outer_.axis[0].stride == size_));
}

// Rows that no single step describes: element by element.
template <bool kRead>
void Rows::move_scattered(int64_t row, int64_t begin, int64_t n, float* values) const {
  const int64_t first = outer_.offset(row);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t o = first + inner_.offset(begin + i);
    if constexpr (kRead) {
      values[i] = static_cast<float>(load_element(dtype_, data_, o));
    } else {
      store_element(dtype_, data_, o, static_cast<double>(values[i]));
    }
  }
}

const float* Rows::read(int64_t row, int64_t begin, int64_t n, float* buffer) const {
  if (inner_.rank <= 1) return read_line(type_, at(row, begin), step_, n, buffer);
  move_scattered<true>(row, begin, n, buffer);
  return buffer;
}

float* Rows::target(int64_t row, int64_t begin, float* buffer) const {
  return lies_in_rows(1) ? reinterpret_cast<float*>(at(row, begin)) : buffer;
}

void Rows::write(int64_t row, int64_t begin, int64_t n, const float* values) const {
  if (lies_in_rows(1)) return;
  if (inner_.rank <= 1) return write_line(type_, values, at(row, begin), step_, n);
  move_scattered<false>(row, begin, n, const_cast<float*>(values));
}

// k rows between memory and `raw`, element by element across the rows: neighbouring rows of a
// strided tensor share cache lines.
template <bool kRead, class Raw>
void Rows::move_rows(int64_t first, int64_t k, Raw* raw) const {
  std::array<Raw*, kStridedRows> row{};
  for (int64_t r = 0; r < k; ++r)
    row[static_cast<size_t>(r)] = reinterpret_cast<Raw*>(at(first + r, 0));
  for (int64_t j = 0; j < size_; ++j) {
    for (int64_t r = 0; r < k; ++r) {
      Raw& here = raw[r * pitch() + j];
      Raw& there = row[static_cast<size_t>(r)][j * step_];
      if constexpr (kRead) {
        here = there;
      } else {
        there = here;
      }
    }
  }
}

RowBlock<const float> Rows::read_rows(int64_t first, int64_t k, float* buffer) const {
  if (lies_in_rows(k)) return {reinterpret_cast<const float*>(at(first, 0)), size_};
  if (k == 1 || inner_.rank > 1) {
    const float* row = buffer;
    for (int64_t r = 0; r < k; ++r) row = read(first + r, 0, size_, buffer + r * pitch());
    return {k == 1 ? row : buffer, pitch()};
  }
  if (type_ == simd::FloatType::f32) {
    move_rows<true>(first, k, buffer);
  } else {
    uint16_t* raw = raw_scratch(k * pitch());
    move_rows<true>(first, k, raw);
    simd::to_f32(type_, raw, buffer, static_cast<size_t>(k * pitch()));
  }
  return {buffer, pitch()};
}

RowBlock<float> Rows::target_rows(int64_t first, int64_t k, float* buffer) const {
  if (lies_in_rows(k)) return {reinterpret_cast<float*>(at(first, 0)), size_};
  return {buffer, pitch()};
}

void Rows::write_rows(int64_t first, int64_t k, const RowBlock<float>& values) const {
  if (lies_in_rows(k)) return;
  if (k == 1 || inner_.rank > 1) {
    for (int64_t r = 0; r < k; ++r) write(first + r, 0, size_, values.row(r));
  } else if (type_ == simd::FloatType::f32) {
    move_rows<false>(first, k, values.data);
  } else {
    uint16_t* raw = raw_scratch(k * pitch());
    simd::from_f32(type_, values.data, raw, static_cast<size_t>(k * pitch()));
    move_rows<false>(first, k, raw);
  }
}

double ordered_sum(int64_t n, int64_t grain, FunctionRef<double(int64_t)> piece) {
  double sum = 0;
  if (parallel_pieces(n, grain) <= 1) {
    for (int64_t i = 0; i < n; ++i) sum += piece(i);
    return sum;
  }
  std::vector<double> parts(static_cast<size_t>(n));
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parts[static_cast<size_t>(i)] = piece(i);
  });
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace epilogue::cpu
