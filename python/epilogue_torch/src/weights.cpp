// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>

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

// One of a tensor that has none, because it was made in inference mode, is of this call alone: it
// may have been written since any other.
int64_t version_of(const Torch& tensor) {
  try {
    return ask<int64_t>("aten::_version", tensor);
  } catch (const std::exception&) {
    static std::atomic<int64_t> calls{0};
    return -1 - calls.fetch_add(1, std::memory_order_relaxed);
  }
}

uint64_t mix(uint64_t sum, uint64_t bits, uint64_t position) {
  return sum + (bits + 0x9e3779b97f4a7c15U) * (2 * position + 0x2545f4914f6cdd1dU);
}

// Where the samples of a tensor lie, in bytes from its start: spread over the whole, not all in one
// column.
std::vector<int64_t> places_of(const Layout& t, int64_t element) {
  int64_t count = 1;
  for (const int64_t size : t.sizes) count *= size;
  std::vector<int64_t> places;
  if (count == 0 || t.data == nullptr) return places;
  const int64_t taken = std::min(count, kSamples);
  for (int64_t i = 0; i < taken; ++i) {
    int64_t at = taken == count ? i : (count / taken) * i + (i * 37) % (count / taken);
    int64_t offset = 0;
    for (size_t d = t.sizes.size(); d-- > 0;) {
      offset += at % t.sizes[d] * t.strides[d];
      at /= t.sizes[d];
    }
    places.push_back(offset * element);
  }
  return places;
}

template <class Bits>
uint64_t sum_of(const std::byte* data, const std::vector<int64_t>& places) {
  uint64_t sum = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    Bits bits = 0;
    std::memcpy(&bits, data + places[i], sizeof(Bits));
    sum = mix(sum, bits, i);
  }
  return sum;
}

uint64_t sample_of(const void* memory, const std::vector<int64_t>& places, int64_t element) {
  const auto* const data = static_cast<const std::byte*>(memory);
  switch (element) {
    case 1: return sum_of<uint8_t>(data, places);
    case 2: return sum_of<uint16_t>(data, places);
    case 4: return sum_of<uint32_t>(data, places);
    default: return sum_of<uint64_t>(data, places);
  }
}

// Whether some of its memory is the parameter's.
bool lies_in(const Tensor& tensor, const Layout& parameter, int64_t element) {
  int64_t last = 0;
  for (size_t d = 0; d < parameter.sizes.size(); ++d)
    last += std::max<int64_t>(parameter.sizes[d] - 1, 0) * parameter.strides[d];
  const auto* const begin = static_cast<const std::byte*>(parameter.data);
  const auto* const at = static_cast<const std::byte*>(tensor.data());
  return at >= begin && at <= begin + last * element;
}

// The engine's tensors of all handles, by address. Handles keep the memory, or go with it, so that
// an address is of one weight while it is listed.
class SharedTensors {
 public:
  Tensor take(const Tensor& view) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = by_address_.equal_range(view.data());
    for (auto it = first; it != last; ++it) {
      const Tensor& known = it->second.tensor;
      if (known.dtype() != view.dtype() || !(known.sizes() == view.sizes()) ||
          !(known.strides() == view.strides()))
        continue;
      known.set_version(next_version());  // written, it may be, since others looked
      ++it->second.users;
      return known;
    }
    view.set_version(next_version());
    return by_address_.emplace(view.data(), Entry{view, 1})->second.tensor;
  }

  void let_go(const Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = by_address_.equal_range(tensor.data());
    for (auto it = first; it != last; ++it) {
      if (!it->second.tensor.is_same(tensor)) continue;
      if (--it->second.users == 0) by_address_.erase(it);
      return;
    }
  }

 private:
  struct Entry {
    Tensor tensor;
    int users;
  };
  std::mutex mutex_;
  std::unordered_multimap<const void*, Entry> by_address_;
};
// Never destroyed: Python may release handles while the process ends.
SharedTensors& shared_tensors() {
  static auto* const all = new SharedTensors;
  return *all;
}

}  // namespace

void note_step() { steps.fetch_add(1, std::memory_order_relaxed); }

Tensor Weights::add(const Torch& tensor, const char* what, epilogue::DType dtype, int64_t group) {
  const Tensor view = shared_tensors().take(view_of(tensor, what));
  const Tensor used = view.dtype() == dtype ? view : view.to(dtype);
  sources_.push_back({borrows_ ? Torch() : tensor, view, used, group});
  return used;
}

Weights::~Weights() {
  for (const Source& s : sources_) shared_tensors().let_go(s.tensor);
}

void Weights::watch(const std::vector<Torch>& parameters, bool keeps) {
  const std::lock_guard lock(mutex_);
  if (keeps) parameters_ = parameters;
  for (const Torch& p : parameters) {
    const Layout now(p);
    const auto element = static_cast<int64_t>(aoti_torch_dtype_element_size(now.dtype));
    Known known{now.data,
                now.dtype,
                element,
                {now.sizes.begin(), now.sizes.end()},
                {now.strides.begin(), now.strides.end()},
                version_of(p),
                places_of(now, element),
                0,
                {}};
    known.sample = sample_of(now.data, known.places, element);
    const size_t number = known_.size();
    bool has_group = true;
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (!lies_in(sources_[i].tensor, now, element)) continue;
      known.sources.push_back(i);
      has_group = has_group && sources_[i].group >= 0;
    }
    if (known.sources.empty() || !has_group) {
      of_all_.push_back(number);
    } else {
      for (const size_t i : known.sources) {
        const auto group = static_cast<size_t>(sources_[i].group);
        if (of_group_.size() <= group) of_group_.resize(group + 1);
        of_group_[group].push_back(number);
      }
    }
    known_.push_back(std::move(known));
  }
  steps_ = steps.load(std::memory_order_relaxed);
}

bool Weights::see(const std::vector<Torch>& parameters, const std::vector<int64_t>* groups) {
  const std::lock_guard lock(mutex_);
  const std::vector<Torch>& now = parameters.empty() ? parameters_ : parameters;
  if (now.size() != known_.size()) return false;
  const int64_t now_steps = steps.load(std::memory_order_relaxed);
  if (groups == nullptr || now_steps != steps_) {
    // One that was moved makes the whole useless: what others know does not matter then.
    for (size_t i = 0; i < now.size(); ++i)
      if (!see_one(now[i], known_[i])) return false;
  } else {
    for (const size_t i : of_all_)
      if (!see_one(now[i], known_[i])) return false;
    for (const int64_t group : *groups)
      if (static_cast<size_t>(group) < of_group_.size())
        for (const size_t i : of_group_[static_cast<size_t>(group)])
          if (!see_one(now[i], known_[i])) return false;
  }
  if (now_steps != steps_) write_again();
  steps_ = now_steps;
  return true;
}

bool Weights::see_one(const Torch& parameter, Known& known) {
  const Layout now(parameter);
  if (now.data != known.data || now.dtype != known.dtype ||
      !std::ranges::equal(now.sizes, known.sizes) ||
      !std::ranges::equal(now.strides, known.strides))
    return false;
  // Each is on a page of its own, which nobody read since the last call: they come while torch says
  // the version.
  for (const int64_t place : known.places)
    __builtin_prefetch(static_cast<const std::byte*>(now.data) + place);
  const int64_t version = version_of(parameter);
  const uint64_t sample = sample_of(now.data, known.places, known.element);
  if (version == known.version && sample == known.sample) return true;
  known.version = version;
  known.sample = sample;
  if (known.sources.empty()) {
    write_again();
  } else {
    for (const size_t i : known.sources) write_again(sources_[i]);
  }
  return true;
}

void Weights::refresh() {
  const std::lock_guard lock(mutex_);
  write_again();
}

void Weights::write_again() {
  for (const Source& s : sources_) write_again(s);
}

// What is converted is converted again; the rest gets a version that no weight had before.
void Weights::write_again(const Source& source) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  if (!source.tensor.is_same(source.used)) epilogue::copy_(source.used, source.tensor);
  source.used.set_version(next_version());
}

}  // namespace epilogue_torch
