// SPDX-License-Identifier: Apache-2.0
// The object that a Tensor points to. Not for users; epilogue/tensor.h needs it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "epilogue/detail/storage.h"
#include "epilogue/dims.h"
#include "epilogue/dtype.h"

#pragma GCC visibility push(default)

namespace epilogue::detail {

// Autograd's part of a tensor; opaque here.
struct AutogradMeta {
  virtual ~AutogradMeta() = default;
  virtual bool is_leaf() const = 0;
  virtual std::string grad_fn_name() const = 0;  // "AddBackward0"; of a leaf: empty
};

struct TensorImpl {
  Ref<Storage> storage;
  std::byte* data = nullptr;  // the first element: storage data plus the view's offset
  Dims sizes;
  Dims strides;  // in elements
  int64_t numel = 0;
  DType dtype = DType::f32;
  Device device;
  bool requires_grad = false;
  bool is_contiguous = true;
  bool is_wrapped_number = false;  // a scalar argument: does not take part in promotion in full
  std::unique_ptr<AutogradMeta> autograd;

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    // The last owner needs no locked instruction: nobody else can touch the count.
    if (refs_.load(std::memory_order_acquire) == 1 ||
        refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete this;
  }
  static void* operator new(size_t bytes) { return allocate_object(bytes); }
  static void operator delete(void* p, size_t bytes) noexcept { free_object(p, bytes); }
  uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> refs_{1};
};

[[noreturn]] void fail_undefined();

}  // namespace epilogue::detail

#pragma GCC visibility pop
