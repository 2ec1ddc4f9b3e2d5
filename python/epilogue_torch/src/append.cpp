// SPDX-License-Identifier: Apache-2.0
// Rows written behind those of a cache of keys and values as one op of torch, where Python would
// make four views and two copies.
#include <torch/csrc/stable/library.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "tensors.h"

namespace epilogue_torch {
namespace {

// buffer [batch, heads, room, columns], rows `at` on = x [batch, heads, rows, columns].
void put_rows(const Torch& buffer, const Torch& x, int64_t at) {
  require_defined(buffer, "a buffer");
  require_defined(x, "rows");
  const int64_t bytes = element_bytes(x.scalar_type());
  const Layout to(buffer), from(x);
  const auto fits = [&] {
    return buffer.is_cpu() && x.is_cpu() && bytes != 0 && to.dtype == from.dtype &&
           to.sizes.size() == 4 && from.sizes.size() == 4 && to.sizes[0] == from.sizes[0] &&
           to.sizes[1] == from.sizes[1] && to.sizes[3] == from.sizes[3] && at >= 0 &&
           from.sizes[2] <= to.sizes[2] - at && (to.strides[3] == 1 || to.sizes[3] == 1) &&
           (from.strides[3] == 1 || from.sizes[3] == 1);
  };
  if (!fits())
    throw std::runtime_error(
        "append: expected a buffer [batch, heads, room, columns] and rows of its dtype (Float, "
        "Half or "
        "BFloat16), on the CPU, that fit from row " +
        std::to_string(at) + " on, with columns that lie one after the other; got " +
        describe(buffer) + " and " + describe(x));
  char* const base = static_cast<char*>(buffer.mutable_data_ptr());
  const auto* const first = static_cast<const char*>(from.data);
  const auto row_bytes = static_cast<size_t>(from.sizes[3] * bytes);
  for (int64_t b = 0; b < from.sizes[0]; ++b)
    for (int64_t h = 0; h < from.sizes[1]; ++h)
      for (int64_t r = 0; r < from.sizes[2]; ++r)
        std::memcpy(
            base + (b * to.strides[0] + h * to.strides[1] + (at + r) * to.strides[2]) * bytes,
            first + (b * from.strides[0] + h * from.strides[1] + r * from.strides[2]) * bytes,
            row_bytes);
}

void append(Torch keys, Torch values, Torch k, Torch v, int64_t at) {
  put_rows(keys, k, at);
  put_rows(values, v, at);
}

}  // namespace

// Not said to write: what a view of the buffers shows does not change, and their versions stay.
STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def("append(Tensor keys, Tensor values, Tensor k, Tensor v, int at) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) { m.impl("append", TORCH_BOX(&append)); }

}  // namespace epilogue_torch
