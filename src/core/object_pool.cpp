// SPDX-License-Identifier: Apache-2.0
// Free lists for TensorImpl and Storage objects: malloc and free would be a third of a dispatch.
#include <array>
#include <cstddef>
#include <new>

#include "epilogue/tensor.h"

namespace epilogue::detail {
namespace {

constexpr size_t kStep = 64;  // sizes are rounded up to it
constexpr size_t kSizes = 6;
constexpr int kMostFree = 512;  // per size and thread

struct Free {
  Free* next;
};

// Objects that this thread may use again; one freed on another thread joins the list there. Trivial
// to construct and destroy, so that access needs no guard; the sweeper empties it at the end.
struct Lists {
  std::array<Free*, kSizes> heads;
  std::array<int, kSizes> counts;
  bool ended;
};
constinit thread_local Lists lists{};

struct Sweeper {
  bool armed = false;
  ~Sweeper() {
    lists.ended = true;
    for (Free*& head : lists.heads) {
      while (head != nullptr) {
        Free* next = head->next;
        ::operator delete(head);
        head = next;
      }
    }
  }
};
thread_local Sweeper sweeper;

}  // namespace

void* allocate_object(size_t bytes) {
  const size_t i = (bytes + kStep - 1) / kStep - 1;
  if (i >= kSizes) return ::operator new(bytes);
  if (Free* f = lists.heads[i]; f != nullptr) [[likely]] {
    lists.heads[i] = f->next;
    --lists.counts[i];
    return f;
  }
  return ::operator new((i + 1) * kStep);
}

void free_object(void* object, size_t bytes) noexcept {
  const size_t i = (bytes + kStep - 1) / kStep - 1;
  if (i >= kSizes || lists.ended || lists.counts[i] >= kMostFree) return ::operator delete(object);
  if (lists.heads[i] == nullptr) sweeper.armed = true;  // its first use registers its destructor
  auto* f = static_cast<Free*>(object);
  f->next = lists.heads[i];
  lists.heads[i] = f;
  ++lists.counts[i];
}

}  // namespace epilogue::detail
