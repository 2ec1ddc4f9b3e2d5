// SPDX-License-Identifier: Apache-2.0
// The caller's own threads in place of the library's pool.
#pragma once

#pragma GCC visibility push(default)

namespace epilogue {

// Implemented by an application with threads of its own, so that the library starts none beside
// them.
//
//   struct MyThreads : Executor {
//     int threads() const override { return pool.size() + 1; }
//     void run(int pieces, void (*piece)(void*, int), void* context) override {
//       pool.for_each(pieces, [=](int i) { piece(context, i); });
//     }
//   };
//   ExecutorScope scope(my_threads);   // ops, compiled and fused calls of this thread from here on
class Executor {
 public:
  virtual ~Executor() = default;
  // How many pieces are worth making; at least 1, the same for every call within a scope.
  virtual int threads() const = 0;
  // Calls piece(context, i) for every i in [0, pieces), each once, on any threads in any order, and
  // returns when all have returned. A piece never throws and never waits for another.
  virtual void run(int pieces, void (*piece)(void* context, int index), void* context) = 0;
};

// Work that this thread asks for goes to `executor` until the scope ends; num_threads() is its
// threads() meanwhile. Scopes nest. The executor must outlive the scope. Pieces run inline what
// they ask for themselves.
class ExecutorScope {
 public:
  explicit ExecutorScope(Executor& executor);
  ~ExecutorScope();
  ExecutorScope(const ExecutorScope&) = delete;
  ExecutorScope& operator=(const ExecutorScope&) = delete;

 private:
  Executor* before_;
};

}  // namespace epilogue

#pragma GCC visibility pop
