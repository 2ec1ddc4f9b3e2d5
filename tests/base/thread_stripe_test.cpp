// SPDX-License-Identifier: Apache-2.0
#include "base/thread_stripe.h"

#include <barrier>

#include "base/slot_pool.h"
#include "base/snapshot.h"
#include "support/test.h"

namespace epilogue::thread_stripe_test {

// Runs `body(index)` on so many threads that all live at once.
template <class Body>
void on_threads(int count, Body body) {
  std::barrier all_there(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      all_there.arrive_and_wait();
      body(i);
      all_there.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
}

std::multiset<size_t> stripes_of(int threads) {
  std::mutex mutex;
  std::multiset<size_t> seen;
  on_threads(threads, [&](int) {
    const size_t stripe = thread_stripe();
    EXPECT_EQ(stripe, thread_stripe());
    const std::lock_guard<std::mutex> lock(mutex);
    seen.insert(stripe);
  });
  return seen;
}

TEST(ThreadStripe, LivingThreadsDoNotShareWhereThereAreEnough) {
  for (int round = 0; round < 3; ++round) {  // the stripes of ended threads come back
    const std::multiset<size_t> seen = stripes_of(8);
    for (const size_t stripe : seen) EXPECT_LT(stripe, kSharedStripe);
    EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(ThreadStripe, ManyThreadsShareTheLastOneAlone) {
  const std::multiset<size_t> seen = stripes_of(3 * kStripes);
  for (size_t stripe = 0; stripe < kSharedStripe; ++stripe) EXPECT_LE(seen.count(stripe), 1u);
  EXPECT_GE(seen.count(kSharedStripe), 2 * kStripes);
}

TEST(ThreadStripe, CountsAreExact) {
  for (const int threads : {1, 4, 40}) {
    StripedCount count;
    on_threads(threads, [&](int) {
      for (int i = 0; i < 5'000; ++i) count.add();
    });
    EXPECT_EQ(count.sum(), 5'000 * threads);
  }
}

TEST(SlotPool, AnObjectIsLentToOneThreadAtATime) {
  struct Object {
    std::atomic<int> users{0};
    int64_t uses = 0;
  };
  for (const int threads : {1, 4, 40}) {
    SlotPool<Object> pool;
    std::atomic<int> made{0};
    on_threads(threads, [&](int) {
      for (int i = 0; i < 2'000; ++i) {
        const auto object = pool.borrow([&] {
          made.fetch_add(1);
          return std::make_unique<Object>();
        });
        ASSERT_EQ(object->users.fetch_add(1), 0);
        ++object->uses;
        object->users.fetch_sub(1);
      }
    });
    EXPECT_LE(made.load(), threads);
    EXPECT_GE(made.load(), 1);
  }
}

TEST(SlotPool, ThreadsOneAfterTheOtherUseOneObject) {
  SlotPool<int> pool;
  int made = 0;
  for (int i = 0; i < 2 * static_cast<int>(kStripes); ++i)
    std::thread([&] {
      pool.borrow([&] {
        ++made;
        return std::make_unique<int>(0);
      });
    }).join();
  EXPECT_EQ(made, 1);
}

// A value that was replaced lives as long as somebody reads it.
struct Watched {
  explicit Watched(std::atomic<int>& count) : living(count) { living.fetch_add(1); }
  ~Watched() {
    magic = 0;
    living.fetch_sub(1);
  }
  std::atomic<int>& living;
  int magic = 42;
};

TEST(Snapshot, ReadersSeeAValueThatLives) {
  for (const int readers : {1, 4, 40}) {
    std::atomic<int> living{0};
    {
      Snapshot<Watched> value(std::make_unique<Watched>(living));
      on_threads(readers + 1, [&](int index) {
        for (int i = 0; i < 1'000; ++i) {
          if (index == 0) {
            value.replace(std::make_unique<Watched>(living));
          } else {
            const Snapshot<Watched>::Reader reader(value);
            ASSERT_EQ(reader->magic, 42);
          }
        }
      });
      value.replace(std::make_unique<Watched>(living));
      EXPECT_EQ(living.load(), 1);  // without readers, no old value stays
    }
    EXPECT_EQ(living.load(), 0);
  }
}

}  // namespace epilogue::thread_stripe_test
