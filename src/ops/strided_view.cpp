// SPDX-License-Identifier: Apache-2.0
#include "ops/strided_view.h"

#include "core/tensor_impl.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {

int64_t storage_offset_of(const Tensor& t) {
  const auto* start = static_cast<const std::byte*>(t.impl()->storage->data());
  return (static_cast<const std::byte*>(t.data()) - start) /
         static_cast<int64_t>(dtype_bytes(t.dtype()));
}

Tensor strided_view(const Tensor& self, const Dims& sizes, const Dims& strides, int64_t offset) {
  return run_op(kAsStrided, args(self), {sizes, strides, storage_offset_of(self) + offset});
}

void copy_in_order(const Tensor& source, const Tensor& result) {
  const Elements from(source);
  const Elements to(result);
  for (int64_t i = 0; i < result.numel(); ++i) to.copy(i, from, i);
}

void gather_reference(const Call& call, const Dims& strides, int64_t offset) {
  const Tensor& out = call.out[0];
  copy_in_order(detail::make_view(call.in[0], out.sizes(), strides, offset), out);
}

}  // namespace epilogue
