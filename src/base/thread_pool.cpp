// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "epilogue/base/error.h"
#include "epilogue/base/executor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace epilogue {
namespace {

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// About 20-50 us: longer than the gap between two ops of a model, short enough to not burn a core.
constexpr int kSpins = 1500;

int default_threads() {
  if (const char* text = std::getenv("EPILOGUE_NUM_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long n = std::strtol(text, &end, 10);
    if (*end != '\0' || n < 1 || n > 4096)
      throw Error("[EPILOGUE_NUM_THREADS] expected a number from 1 to 4096, got '" +
                  std::string(text) + "'");
    return static_cast<int>(n);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

// One job at a time. A job is published by bumping `epoch_`; workers take the pieces of their
// index.
class Pool {
 public:
  // Where the machine gives fewer threads than wanted, some of those that came share the pieces.
  explicit Pool(int wanted) : wanted_(wanted) {
    workers_.reserve(static_cast<size_t>(wanted - 1));
    for (int i = 1; i < wanted; ++i) {
      try {
        workers_.emplace_back([this, i] { work(i); });
      } catch (const std::exception&) {  // std::system_error or std::bad_alloc
        // Half of them go: where memory was short the work itself needs some.
        keep_workers(workers_.size() / 2);
        break;
      }
    }
  }
  ~Pool() { keep_workers(0); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int wanted() const { return wanted_; }

  // False when another thread uses the pool: the caller then runs the job inline.
  bool try_run(int pieces, FunctionRef<void(int)> piece) {
    if (!busy_.try_lock()) return false;
    const std::lock_guard<std::mutex> hold(busy_, std::adopt_lock);
    job_ = &piece;
    pieces_ = pieces;
    stride_ = static_cast<int>(workers_.size()) + 1;
    error_ = nullptr;
    // Every worker checks in, also those without a piece: the job's fields may then be reused.
    pending_.store(stride_ - 1, std::memory_order_relaxed);
    publish();
    run_pieces(0);
    wait_for_workers();
    if (error_) std::rethrow_exception(error_);
    return true;
  }

 private:
  // The first n; the others end.
  void keep_workers(size_t n) {
    kept_.store(static_cast<int>(n), std::memory_order_relaxed);
    pending_.store(static_cast<int>(n), std::memory_order_relaxed);
    publish();
    for (; workers_.size() > n; workers_.pop_back()) workers_.back().join();
    wait_for_workers();
  }

  void wait_for_workers() {
    for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpins) {
        cpu_relax();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void publish() {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(sleep_);
      wake_.notify_all();
    }
  }

  // One piece, unless threads are missing.
  void run_pieces(int first) {
    for (int index = first; index < pieces_; index += stride_) {
      try {
        (*job_)(index);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  void work(int index) {
    uint64_t seen = 0;
    for (;;) {
      seen = wait_beyond(seen);
      if (index > kept_.load(std::memory_order_relaxed)) return;
      run_pieces(index);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }

  uint64_t wait_beyond(uint64_t seen) {
    for (int spins = 0; spins < kSpins; ++spins) {
      const uint64_t now = epoch_.load(std::memory_order_acquire);
      if (now != seen) return now;
      cpu_relax();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    uint64_t now = 0;
    {
      std::unique_lock<std::mutex> lock(sleep_);
      wake_.wait(lock, [&] { return (now = epoch_.load(std::memory_order_seq_cst)) != seen; });
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return now;
  }

  const int wanted_;  // threads, the caller included
  std::vector<std::thread> workers_;
  std::mutex busy_;
  FunctionRef<void(int)>* job_ = nullptr;
  int pieces_ = 0;
  int stride_ = 1;  // threads that there are
  std::exception_ptr error_;
  std::mutex error_mutex_;
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<int> pending_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> kept_{std::numeric_limits<int>::max()};  // workers above it end
  std::mutex sleep_;
  std::condition_variable wake_;
};

std::atomic<int> wanted_threads{0};  // 0: not decided yet
std::mutex pool_mutex;
std::shared_ptr<Pool> pool;
thread_local bool inside_parallel = false;
thread_local Executor* executor = nullptr;  // of this thread's scope

// A fork copies the thread that calls it alone. The child gives up the pool, whose workers stayed
// with the parent: it can be neither used nor destroyed, and is kept for leak checkers to see.
void make_pool_survive_forks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { pool_mutex.lock(); }, [] { pool_mutex.unlock(); },
                     [] {
                       static auto& given_up = *new std::vector<std::shared_ptr<Pool>>;
                       if (pool) given_up.push_back(std::move(pool));
                       pool_mutex.unlock();
                     });
}

// Pools are swapped, never resized: a caller holds its pool alive while it runs.
std::shared_ptr<Pool> current_pool() {
  const int n = num_threads();
  make_pool_survive_forks();
  const std::lock_guard<std::mutex> lock(pool_mutex);
  if (!pool || pool->wanted() != n) {
    pool.reset();
    pool = std::make_shared<Pool>(n);
  }
  return pool;
}

// The caller's threads; the first exception of a piece comes out of here, not out of them.
void run_on_executor(int pieces, FunctionRef<void(int)> piece) {
  struct Job {
    FunctionRef<void(int)> piece;
    std::mutex mutex;
    std::exception_ptr error;
  } job{piece, {}, nullptr};
  executor->run(
      pieces,
      [](void* context, int index) {
        auto& each = *static_cast<Job*>(context);
        try {
          each.piece(index);
        } catch (...) {
          const std::lock_guard<std::mutex> lock(each.mutex);
          if (!each.error) each.error = std::current_exception();
        }
      },
      &job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace

ExecutorScope::ExecutorScope(Executor& e) : before_(executor) {
  if (e.threads() < 1)
    throw Error("[executor] expected at least 1 thread, got " + std::to_string(e.threads()));
  executor = &e;
}
ExecutorScope::~ExecutorScope() { executor = before_; }

int num_threads() {
  if (executor != nullptr) return executor->threads();
  int n = wanted_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    wanted_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int n) {
  if (n < 1 || n > 4096)
    throw Error("[set_num_threads] expected 1 to 4096 threads, got " + std::to_string(n));
  wanted_threads.store(n, std::memory_order_relaxed);
}

int parallel_pieces(int64_t n, int64_t grain) {
  if (n <= 0) return 0;
  if (n <= grain) return 1;  // most small ops: spares them a division
  const int64_t most = n / std::max<int64_t>(grain, 1);
  return static_cast<int>(std::clamp<int64_t>(most, 1, num_threads()));
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  const int pieces = parallel_pieces(n, grain);
  if (pieces == 0) return;
  if (pieces == 1 || inside_parallel) return body(0, n);
  struct Inside {
    bool before = inside_parallel;
    Inside() { inside_parallel = true; }
    ~Inside() { inside_parallel = before; }
  };
  auto piece = [&](int i) {
    const Inside guard;
    body(n * i / pieces, n * (i + 1) / pieces);
  };
  if (executor != nullptr) return run_on_executor(pieces, piece);
  if (!current_pool()->try_run(pieces, piece)) body(0, n);
}

}  // namespace epilogue
