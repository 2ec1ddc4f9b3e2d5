// SPDX-License-Identifier: Apache-2.0
// parallel_for: every item once, nested, contended, throwing.
#include "base/thread_pool.h"

#include "epilogue/base/error.h"
#include "epilogue/base/executor.h"
#include "support/test.h"

namespace epilogue::thread_pool_test {

using Piece = std::pair<int64_t, int64_t>;

class ThreadPool : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

std::vector<Piece> pieces_of(int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Piece> pieces;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    pieces.emplace_back(begin, end);
  });
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

TEST_F(ThreadPool, CoversTheRangeOnceInPiecesOfAtLeastTheGrain) {
  for (int threads : {1, 2, 3, 4, 7}) {
    set_num_threads(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 100, 1001}) {
      for (int64_t grain : {1, 2, 8, 16, 1000, 100'000}) {
        SCOPED_TRACE(testing::Message() << n << " items, grain " << grain << ", " << threads);
        const std::vector<Piece> pieces = pieces_of(n, grain);
        ASSERT_EQ(static_cast<int>(pieces.size()), parallel_pieces(n, grain));
        ASSERT_LE(static_cast<int>(pieces.size()), threads);
        int64_t next = 0;
        for (const auto& [begin, end] : pieces) {
          ASSERT_EQ(begin, next);
          ASSERT_GE(end - begin, std::min(n, grain));
          next = end;
        }
        ASSERT_EQ(next, n);
      }
    }
  }
}

TEST_F(ThreadPool, OddArguments) {
  set_num_threads(4);
  EXPECT_EQ(parallel_pieces(-1, 1), 0);
  EXPECT_EQ(parallel_pieces(1, 0), 1);
  EXPECT_EQ(parallel_pieces(10, 0), 4);
  EXPECT_EQ(parallel_pieces(10, -5), 4);
  EXPECT_EQ(parallel_pieces(10, INT64_MAX), 1);
  EXPECT_TRUE(pieces_of(-5, 1).empty());
}

// Each piece waits for the others: a caller that is done would do what nobody has begun.
TEST_F(ThreadPool, UsesSeveralThreads) {
  set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> begun{0};
  parallel_for(3, 1, [&](int64_t, int64_t) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    ++begun;
    while (begun < 3) std::this_thread::yield();
  });
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_TRUE(ids.contains(std::this_thread::get_id())) << "the caller works too";
}

// Pieces so short that workers come late: each still runs once, and no job sees another's.
TEST_F(ThreadPool, PiecesThatNobodyBeganAreTheCallers) {
  set_num_threads(4);
  for (int round = 0; round < 5000; ++round) {
    std::atomic<int> items{0};
    parallel_for(4, 1, [&](int64_t begin, int64_t end) { items += static_cast<int>(end - begin); });
    ASSERT_EQ(items, 4) << "round " << round;
  }
}

TEST_F(ThreadPool, BlocksRunOnceEach) {
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int64_t blocks : {0, 1, 2, 3, 7, 100}) {
      std::vector<std::atomic<int>> hits(100);
      parallel_blocks(blocks, [&](int64_t b) { ++hits[static_cast<size_t>(b)]; });
      for (int64_t b = 0; b < 100; ++b)
        ASSERT_EQ(hits[static_cast<size_t>(b)], b < blocks ? 1 : 0) << blocks << ", " << threads;
    }
  }
}

// One thread is held up in its first block: the other takes all the rest.
TEST_F(ThreadPool, ASlowThreadTakesFewerBlocks) {
  set_num_threads(2);
  std::atomic<int> done{0};
  std::map<std::thread::id, int> count;
  std::mutex mutex;
  parallel_blocks(100, [&](int64_t b) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ++count[std::this_thread::get_id()];
    }
    if (b == 0)
      while (done < 99) std::this_thread::yield();
    ++done;
  });
  int least = 100;
  for (const auto& [id, n] : count) least = std::min(least, n);
  EXPECT_EQ(least, 1);
}

// Each thread's caches may hold what its share reads.
TEST_F(ThreadPool, EveryThreadBeginsWithAShareOfItsOwn) {
  set_num_threads(2);
  std::mutex mutex;
  std::map<std::thread::id, int64_t> first;
  parallel_blocks(100, [&](int64_t b) {
    const auto begun = [&] {
      const std::lock_guard<std::mutex> lock(mutex);
      first.emplace(std::this_thread::get_id(), b);
      return first.size();
    };
    while (begun() < 2) std::this_thread::yield();
  });
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[std::this_thread::get_id()], 0);
  first.erase(std::this_thread::get_id());
  EXPECT_EQ(first.begin()->second, 50);
}

TEST_F(ThreadPool, AnExceptionOfABlockReachesTheCaller) {
  set_num_threads(2);
  EXPECT_THROW(parallel_blocks(10,
                               [](int64_t b) {
                                 if (b == 3) throw std::runtime_error("block 3");
                               }),
               std::runtime_error);
}

TEST_F(ThreadPool, NestedCallsRunInline) {
  set_num_threads(4);
  std::atomic<int> items{0};
  std::atomic<int> strangers{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const std::thread::id me = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      items += static_cast<int>(end - begin);
      if (std::this_thread::get_id() != me) ++strangers;
    });
  });
  EXPECT_EQ(items, 400);
  EXPECT_EQ(strangers, 0);
}

TEST_F(ThreadPool, TwoUserThreadsAtOnce) {
  set_num_threads(2);
  const auto work = [](std::vector<int>* hits) {
    for (int round = 0; round < 500; ++round)
      parallel_for(static_cast<int64_t>(hits->size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++(*hits)[static_cast<size_t>(i)];
      });
  };
  std::vector<int> mine(101, 0);
  std::vector<int> theirs(57, 0);
  std::thread other(work, &theirs);
  work(&mine);
  other.join();
  EXPECT_EQ(mine, std::vector<int>(101, 500));
  EXPECT_EQ(theirs, std::vector<int>(57, 500));
}

TEST_F(ThreadPool, WakesSleepingWorkers) {
  set_num_threads(3);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(pieces_of(3, 1).size(), 3U);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(ThreadPool, AnExceptionReachesTheCallerAfterAllPieces) {
  set_num_threads(4);
  for (int64_t thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended{0};
    const auto run = [&] {
      parallel_for(4, 1, [&](int64_t begin, int64_t) {
        if (begin == thrower) throw std::runtime_error("piece " + std::to_string(begin));
        ++ended;
      });
    };
    try {
      run();
      FAIL() << "no exception";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "piece " + std::to_string(thrower));
    }
    EXPECT_EQ(ended, 3);
  }
  EXPECT_EQ(pieces_of(4, 1).size(), 4U) << "the pool lives on";
}

TEST_F(ThreadPool, TheNumberOfThreadsCanChange) {
  for (int threads : {4, 1, 2, 5}) {
    set_num_threads(threads);
    EXPECT_EQ(num_threads(), threads);
    EXPECT_EQ(static_cast<int>(pieces_of(100, 1).size()), threads);
  }
  for (int bad : {0, -1, 4097}) {
    try {
      set_num_threads(bad);
      ADD_FAILURE() << "no exception for " << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.what(),
                "[set_num_threads] expected 1 to 4096 threads, got " + std::to_string(bad));
    }
  }
  EXPECT_EQ(num_threads(), 5);
}

// Runs pieces in reverse on fresh threads, and counts them.
struct FreshThreads : Executor {
  explicit FreshThreads(int n) : n_(n) {}
  int threads() const override { return n_; }
  void run(int pieces, void (*piece)(void*, int), void* context) override {
    ++runs;
    std::vector<std::thread> threads;
    for (int i = pieces - 1; i >= 0; --i) threads.emplace_back(piece, context, i);
    for (std::thread& t : threads) t.join();
  }
  int n_;
  int runs = 0;
};

TEST_F(ThreadPool, ACallersExecutorTakesItsPlaceWithinItsScope) {
  FreshThreads mine(3);
  std::vector<std::atomic<int>> hits(100);
  {
    const ExecutorScope scope(mine);
    EXPECT_EQ(num_threads(), 3);
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      parallel_for(end - begin, 1, [&](int64_t b, int64_t e) {  // inline
        for (int64_t i = begin + b; i < begin + e; ++i) ++hits[static_cast<size_t>(i)];
      });
    });
    {
      FreshThreads other(1);
      const ExecutorScope inner(other);
      EXPECT_EQ(num_threads(), 1);
      parallel_for(10, 1, [](int64_t, int64_t) {});
      EXPECT_EQ(other.runs, 0) << "one piece needs nobody";
    }
    EXPECT_EQ(num_threads(), 3);
  }
  for (const std::atomic<int>& h : hits) EXPECT_EQ(h, 1);
  EXPECT_EQ(mine.runs, 1);
  parallel_for(100, 1, [](int64_t, int64_t) {});
  EXPECT_EQ(mine.runs, 1);
}

TEST_F(ThreadPool, AnExceptionComesOutOfAnExecutorsPieces) {
  FreshThreads mine(4);
  const ExecutorScope scope(mine);
  std::atomic<int> others{0};
  EXPECT_THROW(parallel_for(4, 1,
                            [&](int64_t begin, int64_t) {
                              if (begin == 2) throw std::runtime_error("third");
                              ++others;
                            }),
               std::runtime_error);
  EXPECT_EQ(others, 3);
}

TEST_F(ThreadPool, AnExecutorWithoutThreadsIsRefused) {
  FreshThreads none(0);
  EXPECT_THROW(ExecutorScope{none}, Error);
}

}  // namespace epilogue::thread_pool_test
