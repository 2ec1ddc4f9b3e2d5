// SPDX-License-Identifier: Apache-2.0
#include "epilogue/tensor.h"

#include "core/allocator.h"
#include "core/backend.h"
#include "core/element.h"
#include "core/host_elements.h"
#include "core/observer.h"
#include "core/tensor_impl.h"

namespace epilogue {

void Dims::push_back(int64_t value) {
  if (rank_ == kMaxRank)
    throw Error("[Dims] expected at most " + std::to_string(kMaxRank) + " dimensions, got more");
  values_[rank_++] = value;
}

// A zero does not excuse the other sizes: the strides of an empty tensor are products of them.
int64_t element_count(const Dims& sizes) {
  int64_t n = 1;
  bool is_empty = false;
  for (const int64_t d : sizes) {
    is_empty = is_empty || d == 0;
    if (__builtin_mul_overflow(n, d == 0 ? 1 : d, &n))
      throw Error("[sizes] expected a number of elements below 2^63, got sizes " +
                  to_string(sizes));
  }
  return is_empty ? 0 : n;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) text += (i != 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return std::string(dtype_name(tensor.dtype())) + to_string(tensor.sizes());
}

namespace detail {

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  if (device.type == DeviceType::cpu) [[likely]]
    return Ref<Storage>(new Storage(allocate_bytes(bytes), bytes));
  DeviceMemory* const memory = device_backend(device).memory();
  Ref<Storage> storage(new Storage(memory->allocate(bytes), bytes));
  storage->memory_ = memory;
  return storage;
}

Ref<Storage> Storage::borrow(void* data, size_t bytes, Deleter deleter) {
  Ref<Storage> storage(new Storage(data, bytes));
  // An empty deleter still marks the memory as borrowed.
  storage->deleter_ = std::make_unique<Deleter>(std::move(deleter));
  return storage;
}

void Storage::destroy() {
  if (!deleter_) {
    if (category() != MemoryCategory::unknown)
      announce_category(device(), data_, static_cast<int64_t>(bytes_), category());
    if (memory_ != nullptr) [[unlikely]] {
      memory_->free(data_);
    } else {
      free_bytes(data_, bytes_);
    }
  } else if (*deleter_) {
    (*deleter_)(data_);
  }
  delete this;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  int64_t step = 1;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

bool strides_are_contiguous(const Dims& sizes, const Dims& strides) {
  int64_t step = 1;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != step) return false;
    step *= sizes[i];
  }
  return true;
}

Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, int64_t offset) {
  Ref<TensorImpl> impl(new TensorImpl);
  const TensorImpl& from = *base.impl();
  impl->storage = from.storage;
  impl->data = from.data + offset * static_cast<int64_t>(dtype_bytes(from.dtype));
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = element_count(sizes);
  impl->dtype = from.dtype;
  impl->device = from.device;
  impl->is_contiguous = strides_are_contiguous(sizes, strides);
  return Tensor(std::move(impl));
}

}  // namespace detail

Tensor empty(Dims sizes, DType dtype, Device device) {
  detail::Ref<detail::TensorImpl> impl(new detail::TensorImpl);
  impl->sizes = sizes;
  impl->strides = sizes;
  // One loop, since every op comes here: strides, element count and all that may be wrong.
  int64_t n = 1;
  int64_t stride = 1;
  bool negative = false;
  bool overflow = false;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    impl->strides[i] = stride;
    negative |= sizes[i] < 0;
    overflow |= __builtin_mul_overflow(n, sizes[i], &n);
    overflow |= __builtin_mul_overflow(stride, std::max<int64_t>(sizes[i], 1), &stride);
  }
  if (negative) throw Error("[empty] expected sizes of 0 or more, got " + to_string(sizes));
  if (overflow) n = element_count(sizes);  // throws, with the message that views give too
  int64_t bytes = 0;
  if (__builtin_mul_overflow(n, static_cast<int64_t>(dtype_bytes(dtype)), &bytes))
    throw Error("[empty] expected fewer than 2^63 bytes, got " + std::string(dtype_name(dtype)) +
                to_string(sizes));
  impl->numel = n;
  impl->storage = detail::Storage::allocate(static_cast<size_t>(bytes), device);
  impl->data = static_cast<std::byte*>(impl->storage->data());
  impl->dtype = dtype;
  impl->device = device;
  Tensor result(std::move(impl));
  if (OpObserver* const capture = thread_state().capture; capture != nullptr) [[unlikely]]
    capture->on_new_tensor(result);
  return result;
}

Tensor Tensor::from_blob(void* data, Dims sizes, DType dtype, std::function<void(void*)> deleter,
                         Dims strides) {
  for (const int64_t d : sizes)
    if (d < 0) throw Error("[from_blob] expected sizes of 0 or more, got " + to_string(sizes));
  const int64_t n = element_count(sizes);
  if (strides.empty()) strides = detail::contiguous_strides(sizes);
  if (strides.rank() != sizes.rank())
    throw Error("[from_blob] expected one stride per dimension of " + to_string(sizes) + ", got " +
                to_string(strides));
  if (data == nullptr && n > 0)
    throw Error("[from_blob] expected an address for sizes " + to_string(sizes) + ", got null");
  int64_t span = 1;  // elements from the first to the last, both included; then bytes
  bool overflow = false;
  for (int i = 0; i < sizes.rank(); ++i) {
    if (strides[i] < 0)
      throw Error("[from_blob] expected strides of 0 or more, got " + to_string(strides));
    int64_t reach = 0;
    overflow = overflow ||
               __builtin_mul_overflow(std::max<int64_t>(sizes[i], 1) - 1, strides[i], &reach) ||
               __builtin_add_overflow(span, reach, &span);
  }
  if (overflow || __builtin_mul_overflow(span, static_cast<int64_t>(dtype_bytes(dtype)), &span))
    throw Error("[from_blob] expected fewer than 2^63 bytes, got sizes " + to_string(sizes) +
                " with strides " + to_string(strides));
  detail::Ref<detail::TensorImpl> impl(new detail::TensorImpl);
  impl->storage =
      detail::Storage::borrow(data, n == 0 ? 0 : static_cast<size_t>(span), std::move(deleter));
  impl->data = static_cast<std::byte*>(data);
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = n;
  impl->dtype = dtype;
  impl->is_contiguous = detail::strides_are_contiguous(sizes, strides);
  return Tensor(std::move(impl));
}

Tensor Tensor::from_read_only(const void* data, size_t count, Dims sizes, DType dtype) {
  if (static_cast<int64_t>(count) != element_count(sizes))
    throw Error("[from_blob] expected " + std::to_string(element_count(sizes)) +
                " values for sizes " + to_string(sizes) + ", got " + std::to_string(count));
  // Nobody writes: every in-place op asks the storage.
  Tensor t = from_blob(const_cast<void*>(data), sizes, dtype);
  t.impl()->storage->set_read_only();
  return t;
}

int64_t Tensor::size(int dim) const {
  const int rank = this->dim();
  if (rank == 0) throw Error("[size] expected a dimension, got a tensor without dimensions");
  const int d = dim < 0 ? dim + rank : dim;
  if (d < 0 || d >= rank)
    throw Error("[size] expected a dimension in [" + std::to_string(-rank) + ", " +
                std::to_string(rank - 1) + "], got " + std::to_string(dim));
  return sizes()[d];
}

void detail::fail_undefined() {
  throw Error("[Tensor] expected a defined tensor, got an undefined one");
}

void Tensor::increment_version() const {
  if (get().storage) impl_->storage->bump_version();
}

void Tensor::set_version(uint32_t version) const {
  if (get().storage) impl_->storage->set_version(version);
}

namespace {

[[noreturn]] void refuse_elements(const char* what) {
  throw Error(std::string("[") + what +
              "] expected a function that reads no elements while it is being compiled");
}

}  // namespace

// Under capture no kernel runs: the memory's contents mean nothing.
void Tensor::require_readable(const char* what) const {
  if (thread_state().skip_kernels) refuse_elements(what);
}

void Tensor::require_elements(DType wanted) const {
  if (dtype() != wanted)
    throw Error("[data_as] expected a tensor of " + std::string(dtype_name(wanted)) + ", got " +
                to_string(*this));
  const OpObserver* const capture = thread_state().capture;
  if (capture != nullptr && capture->is_unwritten(*this)) refuse_elements("data_as");
}

double Tensor::item() const {
  require_readable("item");
  if (!defined() || numel() != 1)
    throw Error("[item] expected a tensor with one element, got " + to_string(*this));
  return load_element(dtype(), HostElements(*this).data(), 0);
}

std::vector<double> Tensor::to_vector() const {
  require_readable("to_vector");
  std::vector<double> values;
  values.reserve(static_cast<size_t>(numel()));
  const HostElements host(*this);
  for_each_offset(sizes(), strides(), [&](int64_t offset) {
    values.push_back(load_element(dtype(), host.data(), offset));
  });
  return values;
}

}  // namespace epilogue
