// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using epilogue::Tensor;

// Elements of each parameter that are looked at before a call.
constexpr int64_t kSamples = 32;

std::atomic<int64_t> steps{0};

// Weights of several handles may share memory, and packed copies are shared by memory and version:
// no two writes may have the same number.
uint32_t next_version() {
  static std::atomic<uint32_t> version{1};
  return ++version;
}

int64_t version_of(const Torch& tensor) {
  StableIValue stack[] = {torch::stable::detail::from(tensor)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::_version", "", stack, TORCH_ABI_VERSION));
  return torch::stable::detail::to<int64_t>(stack[0]);
}

uint64_t mix(uint64_t sum, uint64_t bits, uint64_t position) {
  return sum + (bits + 0x9e3779b97f4a7c15U) * (2 * position + 0x2545f4914f6cdd1dU);
}

// A parameter as it lies in memory.
struct View {
  explicit View(const Torch& t)
      : data(t.const_data_ptr()),
        dtype(t.scalar_type()),
        element(static_cast<int64_t>(t.element_size())),
        dim(t.dim()) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(t.get(), &sizes));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(t.get(), &strides));
  }
  const void* data;
  torch::headeronly::ScalarType dtype;
  int64_t element;  // bytes
  int64_t dim;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
};

uint64_t sample_of(const View& t) {
  int64_t count = 1;
  for (int64_t d = 0; d < t.dim; ++d) count *= t.sizes[d];
  if (count == 0 || t.data == nullptr) return 0;
  const auto* const data = static_cast<const std::byte*>(t.data);
  const int64_t taken = std::min(count, kSamples);
  uint64_t sum = 0;
  for (int64_t i = 0; i < taken; ++i) {
    // Spread over the whole, not all in one column.
    int64_t at = taken == count ? i : (count / taken) * i + (i * 37) % (count / taken);
    int64_t offset = 0;
    for (int64_t d = t.dim - 1; d >= 0; --d) {
      offset += at % t.sizes[d] * t.strides[d];
      at /= t.sizes[d];
    }
    uint64_t bits = 0;
    std::memcpy(&bits, data + offset * t.element, static_cast<size_t>(t.element));
    sum = mix(sum, bits, static_cast<uint64_t>(i));
  }
  return sum;
}

}  // namespace

void note_step() { steps.fetch_add(1, std::memory_order_relaxed); }

Tensor Weights::add(const Torch& tensor, const char* what, epilogue::DType dtype) {
  const Tensor view = view_of(tensor, what);
  const Tensor used = view.dtype() == dtype ? view : view.to(dtype);
  used.set_version(next_version());
  sources_.push_back({tensor, view, used});
  return used;
}

void Weights::watch(const std::vector<Torch>& parameters) {
  const std::lock_guard lock(mutex_);
  for (const Torch& p : parameters) {
    const View now(p);
    known_.push_back({now.data,
                      now.dtype,
                      {now.sizes, now.sizes + now.dim},
                      {now.strides, now.strides + now.dim},
                      version_of(p),
                      sample_of(now)});
  }
  steps_ = steps.load(std::memory_order_relaxed);
}

bool Weights::see(const std::vector<Torch>& parameters) {
  const std::lock_guard lock(mutex_);
  if (parameters.size() != known_.size()) return false;
  const int64_t now_steps = steps.load(std::memory_order_relaxed);
  bool written = now_steps != steps_;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const View now(parameters[i]);
    Known& known = known_[i];
    if (now.data != known.data || now.dtype != known.dtype ||
        !std::equal(now.sizes, now.sizes + now.dim, known.sizes.begin(), known.sizes.end()) ||
        !std::equal(now.strides, now.strides + now.dim, known.strides.begin(), known.strides.end()))
      return false;
    const int64_t version = version_of(parameters[i]);
    const uint64_t sample = sample_of(now);
    written = written || version != known.version || sample != known.sample;
    known.version = version;
    known.sample = sample;
  }
  steps_ = now_steps;
  if (written) write_again();
  return true;
}

void Weights::refresh() {
  const std::lock_guard lock(mutex_);
  write_again();
}

// What is converted is converted again; the rest gets a version that no weight had before.
void Weights::write_again() {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  for (const Source& s : sources_) {
    if (!s.tensor.is_same(s.used)) epilogue::copy_(s.used, s.tensor);
    s.used.set_version(next_version());
  }
}

}  // namespace epilogue_torch
