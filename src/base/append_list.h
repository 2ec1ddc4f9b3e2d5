// SPDX-License-Identifier: Apache-2.0
// A list that many threads read and now and then one appends to. Readers never wait.
#pragma once

#include <atomic>
#include <utility>

namespace epilogue {

// Entries stay where they are for the list's life. find() and push() are safe from several threads;
// moving the list is not.
template <class T>
class AppendList {
 public:
  AppendList() = default;
  AppendList(AppendList&& o) noexcept : head_(o.head_.exchange(nullptr)) {}
  AppendList& operator=(AppendList&&) = delete;
  ~AppendList() {
    for (Node* node = head_.load(); node != nullptr;) delete std::exchange(node, node->next);
  }

  // The first entry, the last one appended first, for which `fits` says true; null where none does.
  template <class Fits>
  const T* find(Fits&& fits) const {
    for (const Node* node = head_.load(std::memory_order_acquire); node != nullptr;
         node = node->next)
      if (fits(node->value)) return &node->value;
    return nullptr;
  }

  const T& push(T value) {
    Node* const node = new Node{std::move(value), head_.load(std::memory_order_relaxed)};
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    return node->value;
  }

 private:
  struct Node {
    T value;
    Node* next;
  };
  std::atomic<Node*> head_{nullptr};
};

}  // namespace epilogue
