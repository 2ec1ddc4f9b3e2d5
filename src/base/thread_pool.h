// SPDX-License-Identifier: Apache-2.0
// A persistent pool behind one function: parallel_for.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace epilogue {

// A callable by reference: two pointers, no allocation. Valid while the callable lives.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Threads that parallel_for may use, the caller included. Default: the processors that this process
// may run on, or EPILOGUE_NUM_THREADS.
int num_threads();
// n >= 1; throws Error otherwise. Existing workers are kept or joined; not to be called while a
// parallel_for runs.
void set_num_threads(int n);

// Runs body(begin, end) over a partition of [0, n) into at most num_threads() pieces of at least
// `grain` items; returns when all are done. The caller works too. Pieces are contiguous and their
// bounds depend on n, grain and num_threads() alone. Nested calls, and calls made while another
// thread uses the pool, run inline on the caller: the machine is never oversubscribed.
// An exception thrown by a piece is rethrown to the caller after all pieces end.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// Runs body(i) once for every i in [0, blocks). Each thread takes blocks of its own share, which is
// parallel_for's: its caches may hold what they read. A thread that is done with its share takes
// blocks of the others': where a core is shared with strangers, its thread runs fewer. Which thread
// runs which is not determined. Else as parallel_for.
void parallel_blocks(int64_t blocks, FunctionRef<void(int64_t)> body);

// How many pieces parallel_for would make of this call when the pool is free.
int parallel_pieces(int64_t n, int64_t grain);

}  // namespace epilogue
