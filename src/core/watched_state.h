// SPDX-License-Identifier: Apache-2.0
// A captured function's inputs beside tensors and their values: training modes, which tensor
// a layer's weight is, numbers that a module holds. Watched byte by byte, which costs next to
// nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace epilogue {

// Whether an object is still there: its destructor says that it is not.
using Life = std::shared_ptr<const std::atomic<bool>>;

class WatchedState {
 public:
  // Notes the bytes of `at`, which lies within an object that lives as long as this is asked or
  // has a life that is watched.
  void watch(const void* at, size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(at);
    for (const Range& known : ranges_)  // a member of what is watched already
      if (known.at <= from && from + bytes <= known.at + known.bytes) return;
    ranges_.push_back({from, bytes, kept_.size()});
    kept_.insert(kept_.end(), from, from + bytes);
  }
  // False where the object is watched already.
  bool watch_life(Life life) {
    for (const Life& known : lives_)
      if (known == life) return false;
    lives_.push_back(std::move(life));
    return true;
  }

  bool is_unchanged() const {
    for (const Life& life : lives_)
      if (!life->load(std::memory_order_relaxed)) return false;
    for (const Range& range : ranges_)
      if (std::memcmp(range.at, kept_.data() + range.kept, range.bytes) != 0) return false;
    return true;
  }

 private:
  struct Range {
    const std::byte* at;
    size_t bytes;
    size_t kept;  // where kept_ has them
  };
  std::vector<Range> ranges_;
  std::vector<std::byte> kept_;
  std::vector<Life> lives_;
};

}  // namespace epilogue
