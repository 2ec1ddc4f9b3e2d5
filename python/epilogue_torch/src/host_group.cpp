// SPDX-License-Identifier: Apache-2.0
// Sums and copies between the processes of one host, through shared memory: all-reduce, all-gather,
// reduce-scatter of f32 and bf16; sums are f32, in the order of the ranks, so that all ranks get
// the same bits. A group over several hosts has one such memory for each: reduce() gives the sum of
// a host's ranks to its first one in f32, and broadcast() takes the sum of all hosts back.
//
// Each rank has two buffers in turn. It fills one, counts its counter up, waits for the others'
// counters, and reads their buffers. It fills the same one again two steps later: by then it has
// waited for counters that the others raise after they read.
//
//   few bytes    each rank fills its buffer with all of its numbers, and sums those of all
//   many bytes   by blocks: each rank fills its buffer with what others sum, sums its share of the
//                block, and puts the result where the others take it
//   rows         that a product makes block by block (sum_rows, gather_rows): each rank writes a
//                block to one of its four slots, and takes all ranks' slots of the block before,
//                which came meanwhile; who makes block b has taken b - 2, so that all have taken
//                b - 4. A sum of one or two blocks may be taken later (sum_rows_later), but before
//                the next call
//
// A rank that waits spins for a while, then sleeps (futex) in slices, and looks between them
// whether the others' processes live.
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <torch/csrc/stable/library.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "host_group.h"
#include "sums.h"
#include "tensors.h"

namespace epilogue_torch {
namespace {

using torch::headeronly::ScalarType;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMostRanks = 64;
constexpr int64_t kBlockBytes = 1 << 20;  // of a buffer
constexpr int64_t kFewBytes = 1 << 16;    // up to which each rank sums all
// Of rows that are made block by block. A block of as many rows costs a product no more than all of
// them do: it reads all weights for each 256 rows, or fewer, anyway.
constexpr int64_t kRowsAtOnce = 256;
constexpr int64_t kSlots = 4;
constexpr int64_t kSlotBytes = 2 << 20;
constexpr int64_t kStreamBytes = 1 << 20;  // from which a result is written past the caches
constexpr int64_t kMostDirect = 4;         // ranks: each reads the rows of all others
// How long a rank that waits spins before it sleeps: a process that is woken comes up to 50 us
// late.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kShortSpin = std::chrono::microseconds(30);  // where ranks may share processors
constexpr long kSliceNs = 20'000'000;                       // of sleep between looks at the others
constexpr uint32_t kFailed = 1;

// What a rank is about to do: all have to be alike.
struct Call {
  uint64_t kind = 0;
  uint64_t type = 0;
  uint64_t count = 0;
  uint64_t outer = 0;
  bool operator==(const Call&) const = default;
};

struct alignas(128) RankState {
  std::atomic<uint32_t> count{0};     // steps that it has reached
  std::atomic<uint32_t> sleepers{0};  // that wait for `count`
  std::atomic<int64_t> process{0};
  std::atomic<uint64_t> started{0};  // of /proc, beside the number: numbers are used again
  Call calls[4];                     // of the last steps
};

struct alignas(128) Header {
  std::atomic<uint32_t> failed{0};
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

[[noreturn]] void fail(const std::string& text) {
  throw std::runtime_error("[host group] " + text);
}

// Field 22 of /proc/N/stat: when a process began; 0 where it ended, or waits for its parent to
// notice.
uint64_t start_of(int64_t process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(process));
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "r"), std::fclose);
  if (!file) return 0;
  char text[1024];
  const size_t size = std::fread(text, 1, sizeof text - 1, file.get());
  text[size] = 0;
  const char* at = std::strrchr(text, ')');  // the name may hold anything
  char state = 0;
  unsigned long long started = 0;
  if (!at || std::sscanf(
                 at + 1,
                 " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                 &state, &started) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : started;
}

// That this process may use.
int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void sleep_on(std::atomic<uint32_t>& word, uint32_t value) {
  const timespec slice{0, kSliceNs};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &slice, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr,
          0);
}

// A sum that a call left for later.
struct Later {
  void* out = nullptr;  // which gets it; null: nobody wants it
  std::shared_ptr<void> keep;
  std::function<void(void* to, const void* residual)> sum;  // null: there is none
};

class HostGroup {
 public:
  // Rank 0 makes the memory, which never has a name; the others open `path`, rank 0's descriptor of
  // it (file()) in /proc, which is there until seal(). So nothing is left behind, whoever ends
  // when.
  HostGroup(const std::string& path, int64_t rank, int64_t ranks, double timeout_s)
      : rank_(rank), ranks_(ranks), timeout_(timeout_s) {
    if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks || !(timeout_s > 0))
      fail("expected a rank of 1 to " + std::to_string(kMostRanks) + " and a timeout, got rank " +
           std::to_string(rank) + " of " + std::to_string(ranks) + " and " +
           std::to_string(timeout_s) + " s");
    bytes_ = sizeof(Header) + static_cast<size_t>(ranks) * (sizeof(RankState) + 2 * kBlockBytes);
    const std::string at = rank == 0 ? "/dev/shm" : path;
    file_ = open(at.c_str(), O_RDWR | O_CLOEXEC | (rank == 0 ? O_TMPFILE : 0), 0600);
    if (file_ < 0) fail("expected to open memory in " + at + ", got: " + std::strerror(errno));
    // posix_fallocate: no room is an error here, not a signal later.
    const int error = rank == 0 ? posix_fallocate(file_, 0, static_cast<off_t>(bytes_)) : 0;
    struct stat facts {};
    const bool fits =
        error == 0 && fstat(file_, &facts) == 0 && facts.st_size == static_cast<off_t>(bytes_);
    void* const memory =
        fits ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
      seal();
      fail("expected " + std::to_string(bytes_) + " bytes of shared memory, got " +
           (error ? std::strerror(error) : std::to_string(facts.st_size) + " bytes"));
    }
    base_ = static_cast<char*>(memory);
    if (rank == 0) {
      new (base_) Header;
      for (int64_t r = 0; r < ranks; ++r) new (&state(r)) RankState;
    }
  }
  ~HostGroup() {
    seal();
    munmap(base_, bytes_);
    if (slots_) munmap(slots_, slots_bytes());
  }
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  // After rank 0 made it: says which process this is. Its buffers lie in the memory of the node
  // that touches them first.
  void join() {
    state(rank_).started = start_of(getpid());
    state(rank_).process = getpid();
    std::memset(buffer(rank_, 0), 0, 2 * kBlockBytes);
  }
  int64_t file() const { return file_; }
  // Once all have opened it: nobody can any more.
  void seal() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }

  // The others' waits end now, with an error; later calls of this rank give `reason`.
  void give_up(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    break_for(reason);
  }

  template <class T>
  void all_reduce(T* x, int64_t count, const T* bias, int64_t columns, const T* residual) {
    const auto lock = begin_call();
    all_reduce_locked(x, count, bias, columns, residual);
  }

  // out [rows, columns] = the sum of what `make` gives on each rank, plus bias, plus residual.
  template <class T>
  void sum_rows(T* out, int64_t rows, int64_t columns, const T* bias, const T* residual,
                const MakeRows& make) {
    const auto lock = begin_call();
    sum_rows_locked(out, rows, columns, bias, residual, make);
  }

  // The same without a residual. Where the rows fit two slots, `out` gets its numbers by finish(),
  // or at the next call of any kind. `keep` holds out's and bias's memory.
  template <class T>
  void sum_rows_later(T* out, int64_t rows, int64_t columns, const T* bias,
                      std::shared_ptr<void> keep, const MakeRows& make) {
    const auto lock = begin_call();
    const int64_t row_bytes = columns * static_cast<int64_t>(sizeof(T));
    const int64_t blocks = rows > kRowsAtOnce || rows * row_bytes > kSlotBytes ? 2 : 1;
    const int64_t most = (rows + blocks - 1) / blocks;
    if (ranks_ > kMostDirect || most * row_bytes > kSlotBytes || !has_slots())
      return sum_rows_locked<T>(out, rows, columns, bias, nullptr, make);
    const Call call{9, sizeof(T), static_cast<uint64_t>(rows * columns),
                    more_of<T>(bias, columns, nullptr)};
    const auto start = [=](int64_t b) { return rows * b / blocks; };
    for (int64_t b = 0; b < blocks; ++b) make_block(call, start(b), start(b + 1), make);
    const uint32_t step = step_, block = block_;
    later_ = {out, std::move(keep), [=, this](void* to, const void* residual) {
                for (int64_t b = 0; b < blocks; ++b) {
                  const auto before = static_cast<uint32_t>(blocks - 1 - b);
                  wait_for_all(step - before, call);
                  if (to)
                    sum_block(static_cast<T*>(to), start(b), start(b + 1), columns, block - before,
                              bias, static_cast<const T*>(residual));
                }
              }};
  }

  // `to` gets the numbers that `out` waits for, plus residual. False where `out` has them.
  bool take(const void* out, void* to, const void* residual) {
    const std::lock_guard lock(mutex_);
    if (header().failed != 0) fail_for_others();
    if (!later_.sum || later_.out != out) return false;
    later_.sum(to, residual);
    return true;
  }
  // `out` has its numbers from here on; if it is not wanted, nobody will read it.
  void finish(const void* out, bool is_wanted) {
    const std::lock_guard lock(mutex_);
    if (!is_wanted) {
      if (later_.out == out) later_.out = nullptr;
      return;
    }
    if (header().failed != 0) fail_for_others();
    if (later_.sum && later_.out == out) settle();
  }

  // out [rows, ranks, columns] = what `make` gives on each rank, side by side.
  template <class T>
  void gather_rows(T* out, int64_t rows, int64_t columns, const MakeRows& make) {
    const auto lock = begin_call();
    if (!takes_rows<T>(rows, columns)) {
      const auto part = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(rows * columns));
      make(0, rows, part.get());
      return all_gather_locked(part.get(), out, rows * columns, rows);
    }
    const Call call{8, sizeof(T), static_cast<uint64_t>(rows * columns),
                    static_cast<uint64_t>(rows)};
    const int64_t bytes = columns * static_cast<int64_t>(sizeof(T));
    const bool streams = rows * ranks_ * bytes >= kStreamBytes;
    const auto place = [&](int64_t r, int64_t first, int64_t last, const void* from) {
      copy_rows(reinterpret_cast<char*>(out) + (first * ranks_ + r) * bytes, ranks_ * bytes,
                static_cast<const char*>(from), last - first, bytes, streams);
    };
    const MakeRows make_and_place = [&](int64_t first, int64_t last, void* to) {
      make(first, last, to);
      place(rank_, first, last, to);  // while it is near
    };
    by_blocks(call, rows, make_and_place, [&](int64_t first, int64_t last, uint32_t block) {
      for (int64_t r = 0; r < ranks_; ++r)
        if (r != rank_) place(r, first, last, slot(r, block));
    });
  }

  // x [outer, inner] of each rank -> out [outer, ranks, inner].
  template <class T>
  void all_gather(const T* x, T* out, int64_t count, int64_t outer) {
    const auto lock = begin_call();
    all_gather_locked(x, out, count, outer);
  }

  // x [outer, ranks, inner] of each rank -> out [outer, inner], this rank's of the sum. count: of
  // out.
  template <class T>
  void reduce_scatter(const T* x, T* out, int64_t count, int64_t outer) {
    const auto lock = begin_call();
    const Call call{3, sizeof(T), static_cast<uint64_t>(count), static_cast<uint64_t>(outer)};
    const int64_t block = kBlockBytes / static_cast<int64_t>(sizeof(T)) / ranks_;
    const int64_t inner = count / outer;
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t n = std::min(block, count - begin);
      const int turn = begin_step(call);
      for (int64_t r = 0; r < ranks_; ++r) {
        T* const to = at<T>(rank_, turn) + r * block;
        for_runs(begin, n, inner, r, [&](int64_t place, int64_t done, int64_t size) {
          std::memcpy(to + done, x + place, static_cast<size_t>(size) * sizeof(T));
        });
      }
      end_step(call);
      const T* from[kMostRanks];
      for (int64_t r = 0; r < ranks_; ++r) from[r] = at<T>(r, turn) + rank_ * block;
      sum_of(Sum<T>{out + begin, from, ranks_, n});
    }
  }

  // sums, of rank 0 alone: of all ranks' x, not rounded.
  template <class T>
  void reduce(const T* x, float* sums, int64_t count) {
    const auto lock = begin_call();
    const Call call{4, sizeof(T), static_cast<uint64_t>(count), 0};
    const int64_t block = kBlockBytes / static_cast<int64_t>(sizeof(float));
    const bool is_few = count * static_cast<int64_t>(sizeof(T)) * (ranks_ - 1) <= kFewBytes;
    const T* from[kMostRanks];
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t n = std::min(block, count - begin);
      const auto start = [&](int64_t r) { return is_few ? (r ? n : 0) : n * r / ranks_; };
      const int64_t first = start(rank_), last = start(rank_ + 1);
      const int turn = begin_step(call);
      T* const mine = at<T>(rank_, turn);
      std::memcpy(mine, x + begin, static_cast<size_t>(first) * sizeof(T));
      std::memcpy(mine + last, x + begin + last, static_cast<size_t>(n - last) * sizeof(T));
      end_step(call);
      for (int64_t r = 0; r < ranks_; ++r)
        from[r] = (r == rank_ ? x + begin : at<T>(r, turn)) + first;
      if (is_few) {
        if (rank_ == 0) sum_of(Sum<T, float>{sums + begin, from, ranks_, n});
        continue;
      }
      const int results = begin_step(call);
      sum_of(Sum<T, float>{rank_ == 0 ? sums + begin : at<float>(rank_, results), from, ranks_,
                           last - first});
      end_step(call);
      for (int64_t r = 1; rank_ == 0 && r < ranks_; ++r)
        std::memcpy(sums + begin + start(r), at<float>(r, results),
                    static_cast<size_t>(start(r + 1) - start(r)) * sizeof(float));
    }
  }

  // out of each rank = rank 0's sums, plus bias, plus residual, rounded.
  template <class T>
  void broadcast(const float* sums, T* out, int64_t count, const T* bias, int64_t columns,
                 const T* residual) {
    const auto lock = begin_call();
    const Call call{5, sizeof(T), static_cast<uint64_t>(count), more_of(bias, columns, residual)};
    const int64_t block = kBlockBytes / static_cast<int64_t>(sizeof(float));
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t n = std::min(block, count - begin);
      const int turn = begin_step(call);
      if (rank_ == 0 && ranks_ > 1)
        std::memcpy(buffer(0, turn), sums + begin, static_cast<size_t>(n) * sizeof(float));
      end_step(call);
      const float* const from[] = {rank_ == 0 ? sums + begin : at<float>(0, turn)};
      sum_of(Sum<float, T>{out + begin, from, 1, n, bias, columns, begin,
                           residual ? residual + begin : nullptr});
    }
  }

  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

 private:
  // One call at a time; what an earlier one left for finish() is done before.
  std::unique_lock<std::mutex> begin_call() {
    std::unique_lock lock(mutex_);
    if (header().failed != 0) fail_for_others();
    if (later_.sum) settle();
    return lock;
  }
  // Waits for the others in any case: their blocks before these have been read then.
  void settle() {
    const Later now = std::exchange(later_, {});
    now.sum(now.out, nullptr);
  }

  template <class T>
  static uint64_t more_of(const T* bias, int64_t columns, const T* residual) {
    return static_cast<uint64_t>(bias ? columns : 0) * 2 + (residual ? 1 : 0);
  }

  // Runs of [outer, ranks, inner] that hold elements begin .. begin + n of rank r's [outer, inner].
  template <class F>
  void for_runs(int64_t begin, int64_t n, int64_t inner, int64_t r, F&& take) const {
    for (int64_t done = 0; done < n;) {
      const int64_t row = (begin + done) / inner, column = (begin + done) % inner;
      const int64_t size = std::min(inner - column, n - done);
      take((row * ranks_ + r) * inner + column, done, size);
      done += size;
    }
  }

  // Whether rows that a product makes go through slots: then in blocks of kRowsAtOnce, or fewer.
  template <class T>
  bool takes_rows(int64_t rows, int64_t columns) {
    const int64_t most = kSlotBytes / (columns * static_cast<int64_t>(sizeof(T)));
    return ranks_ <= kMostDirect && most >= std::min(rows, kRowsAtOnce) && has_slots();
  }

  template <class T>
  void sum_rows_locked(T* out, int64_t rows, int64_t columns, const T* bias, const T* residual,
                       const MakeRows& make) {
    if (!takes_rows<T>(rows, columns)) {
      make(0, rows, out);
      return all_reduce_locked(out, rows * columns, bias, columns, residual);
    }
    const Call call{6, sizeof(T), static_cast<uint64_t>(rows * columns),
                    more_of(bias, columns, residual)};
    by_blocks(call, rows, make, [&](int64_t first, int64_t last, uint32_t block) {
      sum_block(out, first, last, columns, block, bias, residual);
    });
  }

  // out's rows of a block that all ranks have made.
  template <class T>
  void sum_block(T* out, int64_t first, int64_t last, int64_t columns, uint32_t block,
                 const T* bias, const T* residual) {
    const T* from[kMostRanks];
    for (int64_t r = 0; r < ranks_; ++r) from[r] = reinterpret_cast<const T*>(slot(r, block));
    const int64_t begin = first * columns;
    sum_of(Sum<T>{out + begin, from, ranks_, (last - first) * columns, bias, columns, 0,
                  residual ? residual + begin : nullptr});
  }

  void make_block(const Call& call, int64_t first, int64_t last, const MakeRows& make) {
    make(first, last, slot(rank_, block_ + 1));
    begin_step(call);
    ++block_;
    publish();
  }

  // make(first, last, slot) of each block of rows; take(first, last, block) once all ranks have
  // made it. A block is taken after the next one is made: a rank that is a block ahead does not
  // wait.
  template <class F>
  void by_blocks(const Call& call, int64_t rows, const MakeRows& make, F&& take) {
    const int64_t blocks = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    const auto start = [&](int64_t b) { return rows * b / blocks; };
    for (int64_t b = 0; b < blocks; ++b) {
      make_block(call, start(b), start(b + 1), make);
      if (b == 0) continue;
      wait_for_all(step_ - 1, call);
      take(start(b - 1), start(b), block_ - 1);
    }
    wait_for_all(step_, call);
    take(start(blocks - 1), rows, block_);
  }

  template <class T>
  void all_gather_locked(const T* x, T* out, int64_t count, int64_t outer) {
    const Call call{2, sizeof(T), static_cast<uint64_t>(count), static_cast<uint64_t>(outer)};
    const int64_t block = kBlockBytes / static_cast<int64_t>(sizeof(T));
    const int64_t inner = count / outer;
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t n = std::min(block, count - begin);
      const int turn = begin_step(call);
      std::memcpy(buffer(rank_, turn), x + begin, static_cast<size_t>(n) * sizeof(T));
      end_step(call);
      for (int64_t r = 0; r < ranks_; ++r) {
        const T* const from = r == rank_ ? x + begin : at<T>(r, turn);
        for_runs(begin, n, inner, r, [&](int64_t place, int64_t done, int64_t size) {
          std::memcpy(out + place, from + done, static_cast<size_t>(size) * sizeof(T));
        });
      }
    }
  }

  template <class T>
  void all_reduce_locked(T* x, int64_t count, const T* bias, int64_t columns, const T* residual) {
    const Call call{1, sizeof(T), static_cast<uint64_t>(count), more_of(bias, columns, residual)};
    const int64_t block = kBlockBytes / static_cast<int64_t>(sizeof(T));
    const bool is_few = count * static_cast<int64_t>(sizeof(T)) * (ranks_ - 1) <= kFewBytes;
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t n = std::min(block, count - begin);
      const T* const more = residual ? residual + begin : nullptr;
      if (is_few)
        sum_all(x + begin, n, call, bias, columns, begin, more);
      else
        sum_shares(x + begin, n, call, bias, columns, begin, more);
    }
  }

  template <class T>
  void sum_all(T* x, int64_t n, const Call& call, const T* bias, int64_t columns, int64_t at_column,
               const T* residual) {
    const int turn = begin_step(call);
    std::memcpy(buffer(rank_, turn), x, static_cast<size_t>(n) * sizeof(T));
    end_step(call);
    const T* from[kMostRanks];
    for (int64_t r = 0; r < ranks_; ++r) from[r] = r == rank_ ? x : at<T>(r, turn);
    sum_of(Sum<T>{x, from, ranks_, n, bias, columns, at_column, residual});
  }

  template <class T>
  void sum_shares(T* x, int64_t n, const Call& call, const T* bias, int64_t columns,
                  int64_t at_column, const T* residual) {
    const auto start = [&](int64_t r) { return n * r / ranks_; };
    const int64_t first = start(rank_), last = start(rank_ + 1);
    const int turn = begin_step(call);
    T* const mine = at<T>(rank_, turn);
    std::memcpy(mine, x, static_cast<size_t>(first) * sizeof(T));
    std::memcpy(mine + last, x + last, static_cast<size_t>(n - last) * sizeof(T));
    end_step(call);
    const T* from[kMostRanks];
    for (int64_t r = 0; r < ranks_; ++r) from[r] = (r == rank_ ? x : at<T>(r, turn)) + first;
    sum_of(Sum<T>{x + first, from, ranks_, last - first, bias, columns, at_column + first,
                  residual ? residual + first : nullptr});
    const int results = begin_step(call);
    std::memcpy(at<T>(rank_, results), x + first, static_cast<size_t>(last - first) * sizeof(T));
    end_step(call);
    for (int64_t r = 0; r < ranks_; ++r)
      if (r != rank_)
        std::memcpy(x + start(r), at<T>(r, results),
                    static_cast<size_t>(start(r + 1) - start(r)) * sizeof(T));
  }

  // The buffer of the next step, which nobody reads any more.
  int begin_step(const Call& call) {
    if (header().failed != 0) fail_for_others();
    const int turn = static_cast<int>((step_ + 1) & 1);
    state(rank_).calls[(step_ + 1) & 3] = call;
    return turn;
  }

  // The others may read what this step filled.
  void publish() {
    ++step_;
    RankState& own = state(rank_);
    own.count.store(step_);
    if (own.sleepers.load() != 0) wake(own.count);
  }

  void end_step(const Call& call) {
    publish();
    wait_for_all(step_, call);
  }

  void wait_for_all(uint32_t step, const Call& call) {
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      wait_for(r, step);
      const Call other = state(r).calls[step & 3];
      if (!(other == call))
        stop("expected the same call on all ranks, got " + text_of(call) + " on rank " +
             std::to_string(rank_) + " and " + text_of(other) + " on rank " + std::to_string(r));
    }
  }

  // Memory for rows, once it is asked for: made by rank 0, opened by the others. Whether all have
  // it.
  bool has_slots() {
    if (asked_for_slots_) return slots_ != nullptr;
    asked_for_slots_ = true;
    const Call call{7, 0, 0, 0};
    int file = -1;
    const auto size = static_cast<off_t>(slots_bytes());
    const int named = begin_step(call);
    if (rank_ == 0) {
      file = open("/dev/shm", O_RDWR | O_CLOEXEC | O_TMPFILE, 0600);
      const bool has_room = file >= 0 && posix_fallocate(file, 0, size) == 0;
      std::snprintf(buffer(0, named), 64, "%s%d",
                    has_room ? ("/proc/" + std::to_string(getpid()) + "/fd/").c_str() : "", file);
    }
    end_step(call);
    const char* const path = buffer(0, named);
    if (rank_ != 0 && path[0] == '/') file = open(path, O_RDWR | O_CLOEXEC);
    void* const memory =
        file >= 0 && path[0] == '/'
            ? mmap(nullptr, slots_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
            : MAP_FAILED;
    const int answers = begin_step(call);
    *buffer(rank_, answers) = memory != MAP_FAILED;
    end_step(call);
    bool all = true;
    for (int64_t r = 0; r < ranks_; ++r) all = all && *buffer(r, answers) != 0;
    if (file >= 0) close(file);
    if (memory == MAP_FAILED) return false;
    slots_ = static_cast<char*>(memory);
    if (all) return true;
    munmap(slots_, slots_bytes());
    slots_ = nullptr;
    return false;
  }
  size_t slots_bytes() const { return static_cast<size_t>(ranks_ * kSlots * kSlotBytes); }
  char* slot(int64_t r, uint32_t block) {
    return slots_ + (r * kSlots + static_cast<int64_t>(block % kSlots)) * kSlotBytes;
  }

  bool has_come(int64_t r, uint32_t step) {
    return static_cast<int32_t>(state(r).count.load(std::memory_order_acquire) - step) >= 0;
  }

  void wait_for(int64_t r, uint32_t step) {
    if (has_come(r, step)) return;
    const auto begin = Clock::now();
    do {
      for (int i = 0; i < 64; ++i) {
        if (has_come(r, step)) return;
        __builtin_ia32_pause();
      }
    } while (Clock::now() - begin < spin_);
    RankState& other = state(r);
    other.sleepers.fetch_add(1);
    std::string reason;
    while (!has_come(r, step)) {
      const uint32_t seen = other.count.load();
      if (static_cast<int32_t>(seen - step) >= 0) break;
      sleep_on(other.count, seen);
      if (has_come(r, step)) break;
      if (header().failed != 0) {
        reason = "another rank of the group failed";
      } else if (start_of(other.process) != other.started) {
        reason = "rank " + std::to_string(r) + " (process " + std::to_string(other.process.load()) +
                 ") ended";
      } else if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_) {
        reason = "rank " + std::to_string(r) + " (process " + std::to_string(other.process.load()) +
                 ") did not come within " + std::to_string(timeout_) + " s";
      } else {
        continue;
      }
      break;
    }
    other.sleepers.fetch_sub(1);
    if (!reason.empty()) stop(reason);
  }

  [[noreturn]] void fail_for_others() const {
    fail(broken_.empty() ? "another rank of the group failed" : broken_);
  }
  void break_for(const std::string& reason) {
    broken_ = reason;
    header().failed = kFailed;
    for (int64_t r = 0; r < ranks_; ++r) wake(state(r).count);
  }
  [[noreturn]] void stop(const std::string& reason) {
    break_for(reason);
    fail(reason);
  }

  static std::string text_of(const Call& call) {
    static constexpr const char* kNames[] = {"nothing",
                                             "all_reduce",
                                             "all_gather",
                                             "reduce_scatter",
                                             "reduce",
                                             "broadcast",
                                             "a product's all_reduce",
                                             "memory for rows",
                                             "a product's all_gather",
                                             "a product's all_reduce that ends later"};
    return std::string(kNames[std::min<uint64_t>(call.kind, 9)]) + " of " +
           std::to_string(call.count) + (call.type == 4 ? " f32" : " bf16") + " (" +
           std::to_string(call.outer) + ")";
  }

  Header& header() { return *reinterpret_cast<Header*>(base_); }
  RankState& state(int64_t r) { return reinterpret_cast<RankState*>(base_ + sizeof(Header))[r]; }
  char* buffer(int64_t r, int turn) {
    return base_ + sizeof(Header) + static_cast<size_t>(ranks_) * sizeof(RankState) +
           (2 * r + turn) * kBlockBytes;
  }
  template <class T>
  T* at(int64_t r, int turn) {
    return reinterpret_cast<T*>(buffer(r, turn));
  }

  int file_ = -1;
  const int64_t rank_, ranks_;
  const Clock::duration spin_ = processors() < ranks_ ? kShortSpin : kSpin;
  const double timeout_;
  size_t bytes_ = 0;
  char* base_ = nullptr;
  uint32_t step_ = 0;  // that this rank has reached
  bool asked_for_slots_ = false;
  char* slots_ = nullptr;  // kSlots of each rank, for blocks of rows
  uint32_t block_ = 0;     // the last that this rank made
  Later later_;
  std::string broken_;
  std::mutex mutex_;  // of a call
};

struct Groups {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<HostGroup>> by_number;
  int64_t next = 1;
};
// Never destroyed: Python may release groups while the process ends.
Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

std::shared_ptr<HostGroup> group_of(int64_t number) {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end()) fail("there is no group of number " + std::to_string(number));
  return found->second;
}

int64_t open_group(std::string path, int64_t rank, int64_t ranks, double timeout) {
  auto made = std::make_shared<HostGroup>(path, rank, ranks, timeout);
  made->join();
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  all.by_number.emplace(all.next, std::move(made));
  return all.next++;
}
int64_t file_of_group(int64_t number) { return group_of(number)->file(); }
void seal_group(int64_t number) { group_of(number)->seal(); }
void fail_group(int64_t number, std::string reason) { group_of(number)->give_up(reason); }

void require(const Torch& t, const Torch& like, const char* what) {
  require_defined(t, what);
  const ScalarType type = t.scalar_type();
  if (!t.is_cpu() || !t.is_contiguous() || type != like.scalar_type() ||
      (type != ScalarType::Float && type != ScalarType::BFloat16))
    fail(std::string("expected ") + what +
         " contiguous, on the CPU, of Float or BFloat16 as the others, got " + describe(t));
}

template <class F>
void by_type(const Torch& x, F&& run) {
  if (x.scalar_type() == ScalarType::Float)
    run(float{});
  else
    run(uint16_t{});
}
template <class T>
const T* data_of(const std::optional<Torch>& t) {
  return t ? static_cast<const T*>(t->const_data_ptr()) : nullptr;
}

// The number of columns.
int64_t require_more(const Torch& x, const std::optional<Torch>& bias,
                     const std::optional<Torch>& residual) {
  require(x, x, "x");
  const int64_t columns = x.dim() ? x.size(x.dim() - 1) : 1;
  if (bias) {
    require(*bias, x, "bias");
    if (bias->dim() != 1 || bias->size(0) != columns)
      fail("expected a bias of " + std::to_string(columns) + ", got " + describe(*bias));
  }
  if (residual) {
    require(*residual, x, "residual");
    if (residual->numel() != x.numel())
      fail("expected a residual like " + describe(x) + ", got " + describe(*residual));
  }
  return columns;
}

void all_reduce(Torch x, int64_t group, std::optional<Torch> bias, std::optional<Torch> residual) {
  const int64_t columns = require_more(x, bias, residual);
  by_type(x, [&](auto type) {
    using T = decltype(type);
    group_of(group)->all_reduce(static_cast<T*>(x.mutable_data_ptr()), x.numel(), data_of<T>(bias),
                                columns, data_of<T>(residual));
  });
}

// x = the sum of parts, in their order, plus bias, plus residual; rounded once. x may be one of
// them.
void add(std::vector<Torch> parts, Torch x, std::optional<Torch> bias,
         std::optional<Torch> residual) {
  const int64_t columns = require_more(x, bias, residual);
  if (parts.empty() || parts.size() > static_cast<size_t>(kMostRanks))
    fail("expected 1 to " + std::to_string(kMostRanks) + " parts, got " +
         std::to_string(parts.size()));
  for (const Torch& part : parts) {
    require(part, x, "a part");
    if (part.numel() != x.numel())
      fail("expected a part like " + describe(x) + ", got " + describe(part));
  }
  by_type(x, [&](auto type) {
    using T = decltype(type);
    const T* from[kMostRanks];
    for (size_t i = 0; i < parts.size(); ++i)
      from[i] = static_cast<const T*>(parts[i].const_data_ptr());
    sum_of(Sum<T>{static_cast<T*>(x.mutable_data_ptr()), from, static_cast<int64_t>(parts.size()),
                  x.numel(), data_of<T>(bias), columns, 0, data_of<T>(residual)});
  });
}

// Rank 0 of a group has sums of f32, of at least as many elements as x; the others have none.
void require_sums(const std::optional<Torch>& sums, const Torch& x, int64_t rank) {
  if (sums.has_value() != (rank == 0)) fail("expected sums on rank 0 alone");
  if (!sums) return;
  require_defined(*sums, "sums");
  if (!sums->is_cpu() || !sums->is_contiguous() || sums->scalar_type() != ScalarType::Float ||
      sums->numel() < x.numel())
    fail("expected f32 sums of " + describe(x) + ", got " + describe(*sums));
}

void reduce(Torch x, int64_t group, std::optional<Torch> sums) {
  require(x, x, "x");
  const auto found = group_of(group);
  require_sums(sums, x, found->rank());
  by_type(x, [&](auto type) {
    using T = decltype(type);
    found->reduce(static_cast<const T*>(x.const_data_ptr()),
                  sums ? static_cast<float*>(sums->mutable_data_ptr()) : nullptr, x.numel());
  });
}

void broadcast(std::optional<Torch> sums, int64_t group, Torch x, std::optional<Torch> bias,
               std::optional<Torch> residual) {
  const int64_t columns = require_more(x, bias, residual);
  const auto found = group_of(group);
  require_sums(sums, x, found->rank());
  by_type(x, [&](auto type) {
    using T = decltype(type);
    found->broadcast(data_of<float>(sums), static_cast<T*>(x.mutable_data_ptr()), x.numel(),
                     data_of<T>(bias), columns, data_of<T>(residual));
  });
}

void require_parts(const Torch& whole, const Torch& part, int64_t ranks, int64_t outer) {
  if (whole.numel() != part.numel() * ranks || outer < 1 || part.numel() % outer != 0)
    fail("expected " + std::to_string(ranks) + " times the elements of " + describe(part) + " in " +
         std::to_string(outer) + " rows, got " + describe(whole));
}

void all_gather(Torch x, int64_t group, Torch out, int64_t outer) {
  require(x, x, "x");
  require(out, x, "out");
  const auto found = group_of(group);
  require_parts(out, x, found->ranks(), outer);
  by_type(x, [&](auto type) {
    using T = decltype(type);
    found->all_gather(static_cast<const T*>(x.const_data_ptr()),
                      static_cast<T*>(out.mutable_data_ptr()), x.numel(), outer);
  });
}

void reduce_scatter(Torch x, int64_t group, Torch out, int64_t outer) {
  require(x, x, "x");
  require(out, x, "out");
  const auto found = group_of(group);
  require_parts(x, out, found->ranks(), outer);
  by_type(x, [&](auto type) {
    using T = decltype(type);
    found->reduce_scatter(static_cast<const T*>(x.const_data_ptr()),
                          static_cast<T*>(out.mutable_data_ptr()), out.numel(), outer);
  });
}

}  // namespace

// Of C, as epilogue_release().
extern "C" [[gnu::visibility("default")]] void epilogue_host_group_close(int64_t number) {
  std::shared_ptr<HostGroup> dead;  // ends after the lock
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end()) return;
  dead = std::move(found->second);
  all.by_number.erase(found);
}

void sum_rows(const Torch& out, int64_t group, const std::optional<Torch>& bias,
              const std::optional<Torch>& residual, const MakeRows& make) {
  const int64_t columns = require_more(out, bias, residual);
  const int64_t rows = out.numel() / columns;
  by_type(out, [&](auto type) {
    using T = decltype(type);
    group_of(group)->sum_rows(static_cast<T*>(out.mutable_data_ptr()), rows, columns,
                              data_of<T>(bias), data_of<T>(residual), make);
  });
}

void sum_rows_later(const Torch& out, int64_t group, const std::optional<Torch>& bias,
                    const MakeRows& make) {
  const int64_t columns = require_more(out, bias, std::nullopt);
  const int64_t rows = out.numel() / columns;
  by_type(out, [&](auto type) {
    using T = decltype(type);
    auto keep = std::make_shared<std::pair<Torch, std::optional<Torch>>>(out, bias);
    group_of(group)->sum_rows_later(static_cast<T*>(out.mutable_data_ptr()), rows, columns,
                                    data_of<T>(bias), std::move(keep), make);
  });
}

std::optional<Torch> take(Torch out, int64_t group, Torch residual) {
  require_more(out, std::nullopt, residual);
  epilogue::Dims sizes;
  for (int64_t d = 0; d < out.dim(); ++d) sizes.push_back(out.size(d));
  Torch made = empty_like_rows(out, sizes);
  if (!group_of(group)->take(out.const_data_ptr(), made.mutable_data_ptr(),
                             residual.const_data_ptr()))
    return std::nullopt;
  return made;
}

void finish(Torch out, int64_t group, bool is_wanted) {
  group_of(group)->finish(out.const_data_ptr(), is_wanted);
}

void gather_rows(const Torch& out, int64_t group, int64_t columns, const MakeRows& make) {
  require(out, out, "out");
  const auto found = group_of(group);
  const int64_t rows = out.numel() / (columns * found->ranks());
  if (rows * columns * found->ranks() != out.numel())
    fail("expected rows of " + std::to_string(found->ranks()) + " times " +
         std::to_string(columns) + ", got " + describe(out));
  by_type(out, [&](auto type) {
    using T = decltype(type);
    found->gather_rows(static_cast<T*>(out.mutable_data_ptr()), rows, columns, make);
  });
}

int64_t ranks_of(int64_t group) { return group_of(group)->ranks(); }

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def("host_group_open(str path, int rank, int ranks, float timeout) -> int");
  m.def("host_group_file(int group) -> int");
  m.def("host_group_seal(int group) -> ()");
  m.def("host_group_fail(int group, str reason) -> ()");
  m.def("host_all_reduce(Tensor(a!) x, int group, Tensor? bias, Tensor? residual) -> ()");
  m.def("host_take(Tensor out, int group, Tensor residual) -> Tensor?");
  m.def("host_finish(Tensor(a!) out, int group, bool is_wanted) -> ()");
  m.def("host_add(Tensor[] parts, Tensor(a!) x, Tensor? bias, Tensor? residual) -> ()");
  m.def("host_reduce(Tensor x, int group, Tensor(a!)? sums) -> ()");
  m.def(
      "host_broadcast(Tensor? sums, int group, Tensor(a!) x, Tensor? bias, Tensor? residual) -> "
      "()");
  m.def("host_all_gather(Tensor x, int group, Tensor(a!) out, int outer) -> ()");
  m.def("host_reduce_scatter(Tensor x, int group, Tensor(a!) out, int outer) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) {
  m.impl("host_all_reduce", TORCH_BOX(&all_reduce));
  m.impl("host_take", TORCH_BOX(&take));
  m.impl("host_finish", TORCH_BOX(&finish));
  m.impl("host_add", TORCH_BOX(&add));
  m.impl("host_reduce", TORCH_BOX(&reduce));
  m.impl("host_broadcast", TORCH_BOX(&broadcast));
  m.impl("host_all_gather", TORCH_BOX(&all_gather));
  m.impl("host_reduce_scatter", TORCH_BOX(&reduce_scatter));
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CompositeExplicitAutograd, m) {
  m.impl("host_group_open", TORCH_BOX(&open_group));
  m.impl("host_group_file", TORCH_BOX(&file_of_group));
  m.impl("host_group_seal", TORCH_BOX(&seal_group));
  m.impl("host_group_fail", TORCH_BOX(&fail_group));
}

}  // namespace epilogue_torch
