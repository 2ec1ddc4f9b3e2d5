// SPDX-License-Identifier: Apache-2.0
// What tests of kernels outside the ops share.
#pragma once

#include "core/program_kernel.h"
#include "epilogue/runtime.h"
#include "epilogue/tensor.h"

namespace epilogue::testing {

// A tensor of one or two dimensions as programs and chains read it.
inline MatrixView matrix(const Tensor& t) {
  return {t.data(), t.dtype(), t.dim() == 2 ? t.strides()[0] : 0, t.strides()[t.dim() - 1]};
}

// Restores the number of threads.
class ThreadScope {
 public:
  ThreadScope() : before_(num_threads()) {}
  ~ThreadScope() { set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace epilogue::testing
