// SPDX-License-Identifier: Apache-2.0
// Tensor: a strided view of counted storage, the one value type of the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "epilogue/base/error.h"
#include "epilogue/dtype.h"

namespace epilogue {

class DeviceMemory;

inline constexpr int kMaxRank = 8;

// Up to kMaxRank numbers without a heap allocation: sizes, strides or a list of dimensions.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}
  explicit Dims(std::span<const int64_t> values) : Dims(values.data(), values.size()) {}
  static Dims filled(int rank, int64_t value) {
    Dims d;
    for (int i = 0; i < rank; ++i) d.push_back(value);
    return d;
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + rank_; }
  // Throws Error beyond kMaxRank.
  void push_back(int64_t value);
  bool operator==(const Dims& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }

 private:
  Dims(const int64_t* values, size_t n) {
    for (size_t i = 0; i < n; ++i) push_back(values[i]);
  }
  std::array<int64_t, kMaxRank> values_;  // those beyond rank_ are never read
  uint8_t rank_ = 0;
};

// The product; 1 for rank 0. Throws Error when it does not fit int64_t.
int64_t element_count(const Dims& sizes);
// "[64, 128]".
std::string to_string(const Dims& dims);

enum class DeviceType : uint8_t { cpu, cuda };
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(Device device);
// "cpu", "cuda" or "cuda:0"; throws Error on anything else.
Device parse_device(std::string_view name);

// Who holds memory, in torch.profiler's names and order. The profiler finds temporary, activation
// and autograd_detail itself; the others are said by set_memory_category().
enum class MemoryCategory : uint8_t {
  parameter,
  optimizer_state,
  input,
  temporary,
  activation,
  gradient,
  autograd_detail,
  unknown
};

namespace detail {

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
  std::unique_ptr<Deleter> deleter_;
};

// What autograd hangs on a tensor; opaque here.
struct AutogradMeta {
  virtual ~AutogradMeta() = default;
  virtual bool is_leaf() const = 0;
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

}  // namespace detail

// A handle: copies share data. Default-constructed (or moved from) it is undefined: an absent
// optional argument. All but defined(), is_same() and impl() then throw Error. Reading from several
// threads is safe; writing needs the caller's own ordering.
class Tensor {
 public:
  Tensor() = default;

  // A view of the caller's memory, no copy. `deleter` (may be empty) is called with `data` when the
  // last tensor over it dies, on that thread. Strides are in elements, empty means row-major.
  // Writes are counted per call (version()): two tensors made of one memory do not hear of each
  // other's.
  // Throws Error on a null pointer with elements, negative sizes or a rank mismatch.
  static Tensor from_blob(void* data, Dims sizes, DType dtype = DType::f32,
                          std::function<void(void*)> deleter = {}, Dims strides = {});

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }

  const Dims& sizes() const { return get().sizes; }
  const Dims& strides() const { return get().strides; }
  // Negative dimensions count from the end. Throws Error out of range.
  int64_t size(int dim) const;
  int dim() const { return get().sizes.rank(); }
  int64_t numel() const { return get().numel; }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  size_t bytes() const { return static_cast<size_t>(numel()) * dtype_bytes(dtype()); }
  bool is_contiguous() const { return get().is_contiguous; }

  // The address of the first element, in the device's memory. The typed form throws Error on
  // another dtype, and where a function that is being compiled asks for an input's or a result's:
  // no kernel has written these. Who writes elements without ops calls increment_version().
  void* data() const { return get().data; }
  template <class T>
  T* data_as() const {
    require_elements(DTypeOf<T>::value);
    return reinterpret_cast<T*>(impl_->data);
  }

  // The only element of a one-element tensor, as double. Throws Error otherwise.
  double item() const;
  // All elements in row-major order, converted.
  std::vector<double> to_vector() const;

  // This tensor, or a contiguous copy of its values on `device`, outside the autograd graph. To a
  // device the call may return before the copy is done (work on that device waits for it); to the
  // host it waits. Throws Error where a gradient would be lost (use no_grad) or while a function is
  // compiled.
  Tensor to(Device device) const;

  bool requires_grad() const { return get().requires_grad; }

  // The functions below are autograd's (epilogue/autograd.h says more).
  Tensor& set_requires_grad(bool on);
  // The gradient that backward() accumulated; undefined when there is none.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  // Gradients of this one-element tensor into the leaves that require them.
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const;
  bool is_leaf() const;
  // Same data, outside the graph.
  Tensor detach() const;

  // Identity: true when both handles name the same tensor (not equal values).
  bool is_same(const Tensor& other) const { return impl_.get() == other.impl_.get(); }
  // How often the memory was written in place, by ops on any tensor that shares it. Autograd sees
  // by it that a saved tensor changed, compiled plans and fused ops that a weight is to be packed
  // anew.
  uint32_t version() const { return get().storage ? impl_->storage->version() : 0; }
  // After a write to data() without an op. (torch.autograd.graph.increment_version.)
  void increment_version() const;

  detail::TensorImpl* impl() const { return impl_.get(); }
  explicit Tensor(detail::Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  // Throws Error where the tensor is undefined.
  const detail::TensorImpl& get() const {
    if (!impl_) [[unlikely]]
      detail::fail_undefined();
    return *impl_.get();
  }
  void require_elements(DType wanted) const;
  detail::Ref<detail::TensorImpl> impl_;
};

// "f32[64, 128]"; "undefined" for an undefined tensor.
std::string to_string(const Tensor& tensor);

// Factories. The result is contiguous. Sizes must not be negative.
Tensor empty(Dims sizes, DType dtype = DType::f32, Device device = {});
Tensor full(Dims sizes, double value, DType dtype = DType::f32, Device device = {});
Tensor zeros(Dims sizes, DType dtype = DType::f32, Device device = {});
Tensor ones(Dims sizes, DType dtype = DType::f32, Device device = {});
Tensor empty_like(const Tensor& like);
// 0, 1, ..., n - 1.
Tensor arange(int64_t n, DType dtype = DType::i64);
// A copy of `values`, rounded to dtype.
Tensor from_values(std::span<const double> values, Dims sizes, DType dtype = DType::f32);
Tensor from_values(std::initializer_list<double> values, Dims sizes, DType dtype = DType::f32);
// A 0-dim tensor that promotes like a Python number: f64 or i64 by category only.
Tensor scalar(double value);
Tensor scalar(int64_t value);

// Random factories draw from one seeded counter-based generator (Philox4x32-10): the same seed and
// the same sequence of calls give the same numbers for every number of threads. (Not PyTorch's
// stream.) Thread-safe.
void manual_seed(uint64_t seed);
// The generator's state, to save and restore.
struct RngState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};
RngState rng_state();
void set_rng_state(RngState state);
Tensor rand(Dims sizes, DType dtype = DType::f32);                              // U[0, 1)
Tensor uniform(Dims sizes, double low, double high, DType dtype = DType::f32);  // U[low, high)
Tensor randn(Dims sizes, DType dtype = DType::f32);                             // N(0, 1)
Tensor randint(int64_t low, int64_t high, Dims sizes);  // i64 in [low, high)

// Names with their tensors, in order: what a state is made of and a checkpoint holds.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Says what a tensor's storage is for, to a profiler that records memory. Modules say it of their
// parameters, optimizers of their state, autograd of gradients; inputs are the caller's to name.
void set_memory_category(const Tensor& tensor, MemoryCategory category);

// The caching allocator behind every tensor. Freed blocks are kept for reuse.
struct MemoryStats {
  int64_t allocated_bytes = 0;       // live, as requested
  int64_t peak_allocated_bytes = 0;  // the most since start or reset_peak_memory()
  int64_t reserved_bytes = 0;        // held from the system, live or cached
  int64_t allocations = 0;           // calls since start
  int64_t system_allocations = 0;    // calls that had to ask the system
};
MemoryStats memory_stats(Device device = {});
void reset_peak_memory(Device device = {});
// Returns cached blocks to the system (on the host: those of this thread and of the shared lists).
void release_cached_memory(Device device = {});

}  // namespace epilogue
