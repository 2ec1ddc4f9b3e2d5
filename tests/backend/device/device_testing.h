// SPDX-License-Identifier: Apache-2.0
// What the tests of devices share. They run over a device without hardware (guarded_device.cpp),
// and over CUDA, where they skip, visibly, if none is there.
#pragma once

#include "core/backend.h"
#include "core/tensor_impl.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::test {

inline constexpr Device kCuda{DeviceType::cuda, 0};

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend() == nullptr) GTEST_SKIP() << cuda_status();
  }
  void TearDown() override {
    if (cuda_backend() != nullptr) cuda_backend()->synchronize();
  }
};

// The same values on the device, with the same strides.
inline Tensor on_device(const Tensor& t) {
  if (!t.defined()) return t;
  const NoGrad no_grad;
  if (t.is_contiguous()) return t.to(kCuda);
  int64_t last = 0;
  for (int d = 0; d < t.dim(); ++d) last += (t.sizes()[d] - 1) * t.strides()[d];
  const Tensor memory = empty({t.numel() == 0 ? 0 : last + 1}, t.dtype(), kCuda);
  const Tensor view = detail::make_view(memory, t.sizes(), t.strides());
  copy_(view, contiguous(t).to(kCuda));
  return view;
}

inline Tensor on_host(const Tensor& t) {
  const NoGrad no_grad;
  return t.to(Device{});
}

}  // namespace epilogue::test
