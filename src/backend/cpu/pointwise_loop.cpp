// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pointwise_loop.h"

#include "backend/cpu/convert_elements.h"
#include "core/element.h"

namespace epilogue::cpu {
namespace {

// Room for what does not lie ready: strided or narrower elements. Not initialised.
template <class T>
struct Scratch {
  alignas(64) T values[kMostWalkInputs][kStridedTile];
  alignas(64) std::byte raw[kStridedTile * sizeof(T)];
};

template <class T>
T load_one(const StridedOperand& operand, const std::byte* address) {
  return static_cast<T>(load_element(operand.dtype, address, 0));
}

template <class T>
TileInput<T> load_operand(const StridedWalk& walk, const StridedOperand& operand, int64_t i,
                          int64_t n, bool takes_scalars, T* values, std::byte* raw) {
  const std::byte* one = nullptr;
  if (is_one_element(walk, operand, i, n, one)) {
    const T value = load_one<T>(operand, one);
    if (takes_scalars) return {nullptr, value};
    std::fill_n(values, n, value);
    return {values, {}};
  }
  const std::byte* from =
      read_tile(walk, operand, i, n,
                operand.dtype == DTypeOf<T>::value ? reinterpret_cast<std::byte*>(values) : raw);
  if (operand.dtype == DTypeOf<T>::value) return {reinterpret_cast<const T*>(from), {}};
  convert_elements(operand.dtype, from, DTypeOf<T>::value, values, static_cast<size_t>(n));
  return {values, {}};
}

template <class T>
void run_range(const StridedWalk& walk, size_t inputs, const TileFunction<T>& f, int64_t begin,
               int64_t end) {
  Scratch<T> scratch;
  const StridedOperand& out = walk.operands[0];
  const bool writes_t = out.dtype == DTypeOf<T>::value;
  for (int64_t i = begin; i < end;) {
    const int64_t n = walk.tile_length(i, end, kStridedTile);
    TileInput<T> in[kMostWalkInputs];
    for (size_t k = 0; k < inputs; ++k)
      in[k] = load_operand(walk, walk.operands[k + 1], i, n, f.takes_scalars, scratch.values[k],
                           scratch.raw);
    std::byte* target = tile_address(walk, out, i, n);
    // A tile of its own may take the place of the first input's: the function allows it.
    T* result = writes_t && target != nullptr ? reinterpret_cast<T*>(target) : scratch.values[0];
    f.run(in, result, static_cast<size_t>(n));
    if (!writes_t) {
      std::byte* narrow = target != nullptr ? target : scratch.raw;
      convert_elements(DTypeOf<T>::value, result, out.dtype, narrow, static_cast<size_t>(n));
      if (target == nullptr) write_tile(walk, out, i, n, narrow);
    } else if (target == nullptr) {
      write_tile(walk, out, i, n, reinterpret_cast<const std::byte*>(result));
    }
    i += n;
  }
}

// Nothing to gather or convert: the function runs on the tensors as they lie. This is the path of
// most calls, so it looks at no strides and builds no walk.
template <class T>
bool lies_ready(const Call& call, bool takes_scalars) {
  const Tensor& out = call.out[0];
  if (out.dtype() != DTypeOf<T>::value || !out.is_contiguous()) return false;
  for (const Tensor& t : call.in) {
    const bool same = t.numel() == out.numel() && t.is_contiguous() && t.dtype() == out.dtype();
    if (!same && !(takes_scalars && t.numel() == 1)) return false;
  }
  return true;
}

template <class T>
void run_ready(const Call& call, int64_t grain, const TileFunction<T>& f) {
  const Tensor& out = call.out[0];
  TileInput<T> in[kMostWalkInputs];
  for (size_t k = 0; k < call.in.size(); ++k) {
    const Tensor& t = call.in[k];
    if (t.numel() == out.numel() && t.dtype() == out.dtype()) {
      in[k].data = static_cast<const T*>(t.data());
    } else {
      in[k].value = static_cast<T>(load_element(t.dtype(), t.data(), 0));
    }
  }
  T* to = static_cast<T*>(out.data());
  const size_t inputs = call.in.size();
  parallel_for(out.numel(), grain, [&](int64_t begin, int64_t end) {
    TileInput<T> from[kMostWalkInputs];
    for (size_t k = 0; k < inputs; ++k) {
      from[k] = in[k];
      if (from[k].data != nullptr) from[k].data += begin;
    }
    f.run(from, to + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

template <class T>
void run_pointwise(const Call& call, int64_t grain, const TileFunction<T>& f) {
  if (lies_ready<T>(call, f.takes_scalars)) return run_ready(call, grain, f);
  const StridedWalk walk = make_walk(call.out[0], call.in);
  const size_t inputs = call.in.size();
  parallel_for(walk.numel, grain,
               [&](int64_t begin, int64_t end) { run_range(walk, inputs, f, begin, end); });
}

template void run_pointwise<float>(const Call&, int64_t, const TileFunction<float>&);
template void run_pointwise<double>(const Call&, int64_t, const TileFunction<double>&);

}  // namespace epilogue::cpu
