// SPDX-License-Identifier: Apache-2.0
// parallel_for where the system gives fewer threads than wanted, and after a fork. Sanitizers can
// take neither a small address space nor threads of a forked child.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread_pool.h"
#include "support/test.h"

namespace epilogue::thread_supply_test {

constexpr unsigned kHangSeconds = 20;
constexpr int kThrew = 99;

// A forked child's end: its exit code, or minus the signal that ended it (SIGALRM
// where it hung).
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    try {
      _exit(body());
    } catch (...) {
      _exit(kThrew);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Seen {
  std::multiset<int64_t> items;
  std::set<std::thread::id> threads;
};

Seen run_items(int64_t n) {
  std::mutex mutex;
  Seen seen;
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (int64_t i = begin; i < end; ++i) seen.items.insert(i);
    seen.threads.insert(std::this_thread::get_id());
  });
  return seen;
}

// Threads of a job whose n pieces each wait until all have begun.
size_t threads_together(int n) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> begun{0};
  parallel_for(n, 1, [&](int64_t, int64_t) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    ++begun;
    while (begun < n) std::this_thread::yield();
  });
  return threads.size();
}

bool has_each_once(const Seen& seen, int64_t n) {
  int64_t next = 0;
  for (const int64_t item : seen.items)
    if (item != next++) return false;
  return next == n;
}

// New threads have stacks of 1 GiB, and the address space has room for four and a half.
bool leave_room_for_four_threads() {
  constexpr size_t kStackBytes = size_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  if (pthread_setattr_default_np(&attributes) != 0) return false;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;  // the address space in use
  const rlim_t bytes = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + kStackBytes * 9 / 2;
  const rlimit limit{bytes, bytes};
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

TEST(ThreadSupply, FewerThreadsThanWantedDoAllPieces) {
  constexpr int kThreads = 20;
  EXPECT_EQ(in_child([] {
              if (!leave_room_for_four_threads()) return 1;
              set_num_threads(kThreads);
              const Seen seen = run_items(kThreads);
              if (seen.threads.size() > 3) return 2;
              if (!has_each_once(seen, kThreads)) return 3;
              if (parallel_pieces(kThreads, 1) != kThreads) return 4;
              return 0;
            }),
            0);
}

TEST(ThreadSupply, FewerThreadsThanWantedPassExceptionsOn) {
  constexpr int kThreads = 20;
  EXPECT_EQ(in_child([] {
              if (!leave_room_for_four_threads()) return 1;
              set_num_threads(kThreads);
              std::atomic<int> ended{0};
              try {
                parallel_for(kThreads, 1, [&](int64_t begin, int64_t) {
                  if (begin == 0) throw std::runtime_error("first");
                  ++ended;
                });
                return 2;
              } catch (const std::runtime_error&) {
                return ended == kThreads - 1 ? 0 : 3;
              }
            }),
            0);
}

TEST(ThreadSupply, AForkedChildHasWorkersOfItsOwn) {
  const int before = num_threads();
  set_num_threads(3);
  run_items(3);
  EXPECT_EQ(in_child([] {
              if (!has_each_once(run_items(3), 3)) return 1;
              if (threads_together(3) != 3) return 2;
              // And so does a child of the child.
              return in_child([] { return has_each_once(run_items(3), 3) ? 0 : 3; });
            }),
            0);
  EXPECT_EQ(threads_together(3), 3U) << "the parent's workers are still there";
  set_num_threads(before);
}

// exit() destroys the pool.
TEST(ThreadSupply, AForkedChildEndsAsProgramsDo) {
  run_items(1000);
  for (const bool works : {true, false})
    EXPECT_EQ(in_child([works] {
                if (works) run_items(1000);
                std::exit(0);
                return kThrew;
              }),
              0);
}

}  // namespace epilogue::thread_supply_test
