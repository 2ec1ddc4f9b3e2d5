// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
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

// One job at a time. A job is published by bumping `epoch_`. Its pieces wait in slots until a
// thread claims them: a worker the piece of its index, so that threads keep their caches, and the
// caller, once its own is done, whatever nobody has begun. A worker that gets no core thus costs
// nothing but its help.
class Pool {
 public:
  // Where the machine gives fewer threads than wanted, those that came share the pieces.
  explicit Pool(int wanted) : wanted_(wanted), slots_(static_cast<size_t>(wanted)) {
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
    threads_.store(static_cast<int>(workers_.size()) + 1, std::memory_order_relaxed);
  }
  ~Pool() { keep_workers(0); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int wanted() const { return wanted_; }

  // False when another thread uses the pool, or the number of threads changed meanwhile: the caller
  // then runs the job inline.
  bool try_run(int pieces, FunctionRef<void(int)> piece) {
    if (pieces > wanted_ || !busy_.try_lock()) return false;
    const std::lock_guard<std::mutex> hold(busy_, std::adopt_lock);
    job_ = &piece;
    error_ = nullptr;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    for (int i = 1; i < pieces; ++i)
      slots_[static_cast<size_t>(i)].store(open(epoch), std::memory_order_relaxed);
    publish();
    run_piece(0);
    int others = 0;  // pieces that workers have claimed
    for (int i = pieces - 1; i > 0; --i) {
      if (claim(i, epoch)) {
        run_piece(i);
      } else {
        ++others;
      }
    }
    wait_for(others);
    if (error_) std::rethrow_exception(error_);
    return true;
  }

 private:
  // A slot's value while its piece of that job waits, and from when it is claimed on.
  static uint64_t open(uint64_t epoch) { return 2 * epoch; }
  static uint64_t taken(uint64_t epoch) { return 2 * epoch + 1; }

  // Once per piece and job: a slot of another job holds another epoch.
  bool claim(int index, uint64_t epoch) {
    uint64_t expected = open(epoch);
    return slots_[static_cast<size_t>(index)].compare_exchange_strong(
        expected, taken(epoch), std::memory_order_acq_rel, std::memory_order_relaxed);
  }

  // The first n; the others end.
  void keep_workers(size_t n) {
    kept_.store(static_cast<int>(n), std::memory_order_relaxed);
    publish();
    for (; workers_.size() > n; workers_.pop_back()) workers_.back().join();
  }

  void wait_for(int others) {
    for (int spins = 0; done_.load(std::memory_order_acquire) != others; ++spins) {
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

  void run_piece(int index) {
    try {
      (*job_)(index);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  // The job's fields are read after a claim alone: they stay until its piece is done.
  void work(int index) {
    uint64_t seen = 0;
    for (;;) {
      seen = wait_beyond(seen);
      if (index > kept_.load(std::memory_order_relaxed)) return;
      const int stride = threads_.load(std::memory_order_relaxed);
      for (int i = index; i < wanted_; i += stride) {
        if (!claim(i, seen)) continue;
        run_piece(i);
        done_.fetch_add(1, std::memory_order_release);
      }
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
  std::exception_ptr error_;
  std::mutex error_mutex_;
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<int> done_{0};  // pieces that workers have claimed and run
  std::atomic<int> sleepers_{0};
  std::atomic<int> threads_{1};                             // that there are, the caller included
  std::atomic<int> kept_{std::numeric_limits<int>::max()};  // workers above it end
  std::mutex sleep_;
  std::condition_variable wake_;
  std::vector<std::atomic<uint64_t>> slots_;  // by piece
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

void parallel_blocks(int64_t blocks, FunctionRef<void(int64_t)> body) {
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::array<Share, 64> shares;
  const auto pieces = static_cast<int64_t>(parallel_pieces(blocks, 1));
  const int64_t n = std::min<int64_t>(pieces, shares.size());
  for (int64_t s = 0; s < n; ++s) {
    shares[static_cast<size_t>(s)].next.store(blocks * s / n, std::memory_order_relaxed);
    shares[static_cast<size_t>(s)].end = blocks * (s + 1) / n;
  }
  parallel_for(pieces, 1, [&](int64_t piece, int64_t) {
    for (int64_t s = 0; s < n; ++s) {
      Share& share = shares[static_cast<size_t>((piece * n / pieces + s) % n)];
      for (int64_t b = 0; (b = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
        body(b);
    }
  });
}

}  // namespace epilogue
