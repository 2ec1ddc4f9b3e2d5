// SPDX-License-Identifier: Apache-2.0
// Shared by tensors: counted memory. Not for users; epilogue/tensor.h needs it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "epilogue/memory.h"

#pragma GCC visibility push(default)

namespace epilogue {
class DeviceMemory;
}

namespace epilogue::detail {

// An intrusive pointer to a class with retain() and release().
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* adopted) : ptr_(adopted) {}
  Ref(const Ref& o) : ptr_(o.ptr_) {
    if (ptr_ != nullptr) ptr_->retain();
  }
  Ref(Ref&& o) noexcept : ptr_(std::exchange(o.ptr_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(ptr_, o.ptr_);
    return *this;
  }
  ~Ref() {
    if (ptr_ != nullptr) ptr_->release();
  }
  T* get() const { return ptr_; }
  T* operator->() const { return ptr_; }
  explicit operator bool() const { return ptr_ != nullptr; }

 private:
  T* ptr_ = nullptr;
};

// Storage for small objects that live and die with every op: a list of free ones per thread.
void* allocate_object(size_t bytes);
void free_object(void* object, size_t bytes) noexcept;

// Bytes with an owner: a caching allocator, or the caller of from_blob (`deleter`).
class Storage {
 public:
  using Deleter = std::function<void(void*)>;
  // Memory of the device's caching allocator, 64-byte aligned, not initialised. Throws Error where
  // the device or its memory is not there.
  static Ref<Storage> allocate(size_t bytes, Device device = {});
  static Ref<Storage> borrow(void* data, size_t bytes, Deleter deleter);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // There is one device with memory of its own.
  Device device() const { return memory_ != nullptr ? Device{DeviceType::cuda, 0} : Device{}; }
  // Counts in-place writes: autograd compares it to find saved tensors that changed.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  void set_version(uint32_t version) { version_.store(version, std::memory_order_relaxed); }
  MemoryCategory category() const { return category_.load(std::memory_order_relaxed); }
  void set_category(MemoryCategory category);

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (refs_.load(std::memory_order_acquire) == 1 ||
        refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      destroy();
  }
  static void* operator new(size_t bytes) { return allocate_object(bytes); }
  static void operator delete(void* p, size_t bytes) noexcept { free_object(p, bytes); }
  uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }
  // The owner of borrowed memory lets it be read only.
  bool is_read_only() const { return is_read_only_; }
  void set_read_only() { is_read_only_ = true; }
  bool is_borrowed() const { return deleter_ != nullptr; }

 private:
  Storage(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void destroy();
  void* data_;
  size_t bytes_;
  DeviceMemory* memory_ = nullptr;  // that data_ came from; null: the host's
  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> version_{0};
  std::atomic<MemoryCategory> category_{MemoryCategory::unknown};
  bool is_read_only_ = false;
  std::unique_ptr<Deleter> deleter_;
};

}  // namespace epilogue::detail

#pragma GCC visibility pop
