// SPDX-License-Identifier: Apache-2.0
// A tensor's elements where the host can read them.
#pragma once

#include <cstddef>
#include <vector>

#include "epilogue/tensor.h"

namespace epilogue {

// In place, or, of a device, a copy of all bytes from the first element to the last: the tensor's
// strides hold for it. Valid while both this and the tensor live; waits for the device.
class HostElements {
 public:
  explicit HostElements(const Tensor& tensor);
  HostElements(const HostElements&) = delete;
  HostElements& operator=(const HostElements&) = delete;
  // The first element; null where there is none.
  const void* data() const { return data_; }

 private:
  const void* data_;
  std::vector<std::byte> copy_;
};

}  // namespace epilogue
