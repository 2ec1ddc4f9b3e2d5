// SPDX-License-Identifier: Apache-2.0
#include "nn/parameter.h"

namespace epilogue::nn {

void set_parameter_data(const Tensor& parameter, const Tensor& value) {
  detail::TensorImpl& to = *parameter.impl();
  const detail::TensorImpl& from = *value.impl();
  to.storage = from.storage;
  to.data = from.data;
  to.sizes = from.sizes;
  to.strides = from.strides;
  to.numel = from.numel;
  to.dtype = from.dtype;
  to.device = from.device;
  to.is_contiguous = from.is_contiguous;
  epilogue::set_memory_category(parameter, MemoryCategory::parameter);
}

}  // namespace epilogue::nn
