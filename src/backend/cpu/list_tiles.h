// SPDX-License-Identifier: Apache-2.0
// Work over lists of tensors as tiles of at most kRowPiece elements: one index space for all
// tensors, so that threads share large and small ones evenly.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/rows.h"
#include "ops/list_call.h"

namespace epilogue::cpu {

struct ListTile {
  size_t tensor;
  int64_t begin;  // elements [begin, begin + size) of it
  int64_t size;
};

class ListTiles {
 public:
  // Tiles of the tensors of list 0.
  explicit ListTiles(const ListCall& lists) {
    ends_.reserve(lists.size());
    for (size_t i = 0; i < lists.size(); ++i) {
      numel_.push_back(lists.at(0, i).numel());
      count_ += (numel_.back() + kRowPiece - 1) / kRowPiece;
      ends_.push_back(count_);
    }
  }

  int64_t count() const { return count_; }
  // Tiles per thread so that each gets kGrain elements.
  static constexpr int64_t grain() { return kGrain / kRowPiece; }
  int threads() const { return threads_for(count_, grain()); }

  // Calls body(tile) for tiles [first, last), in order.
  template <class Body>
  void for_each(int64_t first, int64_t last, Body&& body) const {
    auto tensor =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (int64_t i = first; i < last; ++i) {
      while (ends_[tensor] <= i) ++tensor;
      const int64_t before = tensor == 0 ? 0 : ends_[tensor - 1];
      const int64_t begin = (i - before) * kRowPiece;
      body(ListTile{tensor, begin, std::min(kRowPiece, numel_[tensor] - begin)});
    }
  }
  // The same over all tiles, by all threads.
  template <class Body>
  void parallel_for_each(Body&& body) const {
    parallel_for(count_, grain(),
                 [&](int64_t first, int64_t last) { for_each(first, last, body); });
  }

 private:
  std::vector<int64_t> numel_;
  std::vector<int64_t> ends_;  // tiles of tensors [0, i]
  int64_t count_ = 0;
};

// Where element `begin` of a contiguous tensor lies; null for an absent one.
inline void* address_of(const Tensor& t, int64_t begin) {
  if (!t.defined()) return nullptr;
  return static_cast<std::byte*>(t.data()) + begin * static_cast<int64_t>(dtype_bytes(t.dtype()));
}

// As the trace shows such a kernel.
void describe_lists(const Call& call, KernelInfo& info, const char* what);

}  // namespace epilogue::cpu
