// SPDX-License-Identifier: Apache-2.0
// A device without hardware: its memory is the host's, but nobody may touch it outside copies and
// kernels. Whatever reads a device tensor as if it were the host's ends in a segmentation fault
// here as it would there. Defines the functions of core/backend.h that backend/cuda does.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "core/backend.h"
#include "ops/ops.h"

namespace epilogue {
namespace test {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;
constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;

// First fit over one range of addresses.
class GuardedMemory final : public DeviceMemory {
 public:
  GuardedMemory()
      : arena_(static_cast<std::byte*>(::mmap(
            nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (arena_ == MAP_FAILED) throw Error("[guarded device] expected 64 MiB of addresses");
  }
  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    size_t at = 0;
    for (const auto& [begin, length] : blocks_) {
      if (begin - at >= size) break;
      at = begin + length;
    }
    if (at + size > kArenaBytes) throw Error("[guarded device] out of memory");
    blocks_.emplace(at, size);
    // Memory that joins an open arena is as open.
    if (at + size > used_) {
      used_ = at + size;
      if (open_ > 0) protect();
    }
    allocated_ += static_cast<int64_t>(size);
    ++allocations_;
    return arena_ + at;
  }
  void free(void* address) noexcept override {
    if (address == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto block = blocks_.find(static_cast<size_t>(static_cast<std::byte*>(address) - arena_));
    allocated_ -= static_cast<int64_t>(block->second);
    blocks_.erase(block);
  }
  void copy_from_host(void* to, const void* from, size_t bytes) override {
    const Access access(*this);
    std::memcpy(to, from, bytes);
  }
  void clear(void* to, size_t bytes) override {
    const Access access(*this);
    std::memset(to, 0, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    const Access access(*this);
    std::memcpy(to, from, bytes);
  }
  MemoryStats stats() const override {
    return {.allocated_bytes = allocated_, .allocations = allocations_};
  }
  void reset_peak() override {}
  void release_cached() override {}

  // While one lives the memory may be read and written.
  class Access {
   public:
    explicit Access(GuardedMemory& memory) : memory_(memory) { memory_.open(+1); }
    ~Access() { memory_.open(-1); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedMemory& memory_;
  };

 private:
  void open(int change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ += change;
    protect();
  }
  // All that was ever given out, in whole pages. The mutex is held.
  void protect() {
    ::mprotect(arena_, (used_ + kPage - 1) / kPage * kPage,
               open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  std::byte* arena_;
  std::mutex mutex_;
  std::map<size_t, size_t> blocks_;  // begin, bytes
  size_t used_ = 0;
  int open_ = 0;
  int64_t allocated_ = 0;
  int64_t allocations_ = 0;
};

GuardedMemory& guarded_memory() {
  static auto* memory = new GuardedMemory;  // tensors may outlive static objects
  return *memory;
}

// The host's clock: kernels here are done when their launch returns.
class GuardedTimer final : public DeviceTimer {
 public:
  void start() override {
    marks_.clear();
    is_on_ = true;
  }
  int64_t mark() override {
    if (!is_on_) return -1;
    marks_.push_back(realtime_ns());
    return static_cast<int64_t>(marks_.size()) - 1;
  }
  std::vector<int64_t> stop() override {
    is_on_ = false;
    return std::move(marks_);
  }

 private:
  std::vector<int64_t> marks_;
  bool is_on_ = false;
};

class GuardedProgram final : public ProgramKernel {
 public:
  explicit GuardedProgram(std::unique_ptr<ProgramKernel> host) : host_(std::move(host)) {}
  void run(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
           std::span<const MatrixView> outputs) const override {
    const GuardedMemory::Access access(guarded_memory());
    host_->run(rows, cols, inputs, outputs);
  }
  int threads(int64_t rows, int64_t cols) const override { return host_->threads(rows, cols); }
  std::string kernel_prefix() const override { return "epi_guarded"; }

 private:
  std::unique_ptr<ProgramKernel> host_;
};

class GuardedChain final : public RowChain {
 public:
  explicit GuardedChain(const RowChainSpec& spec) {
    const GuardedMemory::Access access(guarded_memory());
    host_ = cpu_backend().make_row_chain(spec);
  }
  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           std::span<const MatrixView> outputs) const override {
    if (outputs.size() != 1)
      throw Error("[row chain] expected one output, got " + std::to_string(outputs.size()));
    const GuardedMemory::Access access(guarded_memory());
    host_->run(rows, x, operands, outputs);
  }
  RowChainPlan plan(int64_t rows) const override { return host_->plan(rows); }
  std::string kernel_name() const override { return "epi_guarded_row_chain"; }

 private:
  std::unique_ptr<RowChain> host_;
};

void run_reference(const Call& call) {
  const GuardedMemory::Access access(guarded_memory());
  call.op.reference(call);
}
void describe(const Call&, KernelInfo& info) { info.name = "epi_guarded"; }
constexpr Kernel kReference[] = {
    {"guarded", [](const Call&) -> const char* { return nullptr; }, run_reference, describe}};

class GuardedBackend final : public Backend {
 public:
  std::string_view name() const override { return "guarded"; }
  Capabilities capabilities() const override { return {}; }
  // Strided copies, which the way to the host stands on; all else takes that way.
  const std::span<const Kernel>& kernels(const OpDef& op) const override {
    static constexpr std::span<const Kernel> kCopies = kReference;
    static constexpr std::span<const Kernel> kNone;
    return &op == &kClone || &op == &kCopy_ ? kCopies : kNone;
  }
  std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) const override {
    return std::make_unique<GuardedChain>(spec);
  }
  std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) const override {
    return std::make_unique<GuardedProgram>(cpu_backend().make_program(program));
  }
  DeviceMemory* memory() const override { return &guarded_memory(); }
  DeviceTimer* timer() const override {
    static GuardedTimer timer;
    return &timer;
  }
};

}  // namespace

}  // namespace test

Backend* cuda_backend() {
  static test::GuardedBackend backend;
  return &backend;
}
std::string cuda_status() { return "a device without hardware"; }
std::vector<CudaPart> cuda_parts() { return {}; }
std::vector<DeviceInfo> cuda_devices() {
  return {{.name = "guarded", .memory_bytes = static_cast<int64_t>(test::kArenaBytes)}};
}

}  // namespace epilogue
