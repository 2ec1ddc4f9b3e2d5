// SPDX-License-Identifier: Apache-2.0
#include "core/host_elements.h"

#include "core/backend.h"

namespace epilogue {

HostElements::HostElements(const Tensor& tensor) : data_(tensor.data()) {
  if (tensor.device().type == DeviceType::cpu || tensor.numel() == 0) return;
  int64_t last = 0;
  for (int d = 0; d < tensor.dim(); ++d) last += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  copy_.resize(static_cast<size_t>(last + 1) * dtype_bytes(tensor.dtype()));
  device_backend(tensor.device()).memory()->copy_to_host(copy_.data(), tensor.data(), copy_.size());
  data_ = copy_.data();
}

}  // namespace epilogue
