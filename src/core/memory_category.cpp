// SPDX-License-Identifier: Apache-2.0
#include "core/allocator.h"
#include "epilogue/tensor.h"

namespace epilogue {

void set_memory_category(const Tensor& tensor, MemoryCategory category) {
  if (!tensor.defined()) throw Error("[set_memory_category] expected a tensor, got undefined");
  tensor.impl()->storage->set_category(category);
}

void detail::Storage::set_category(MemoryCategory category) {
  category_.store(category, std::memory_order_relaxed);
  // Memory of others is no part of the allocator's totals.
  if (!is_borrowed()) announce_category(device(), data_, static_cast<int64_t>(bytes_), category);
}

}  // namespace epilogue
