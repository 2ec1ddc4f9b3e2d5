// SPDX-License-Identifier: Apache-2.0
#include "trace/read/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trace/read/event_boundary.h"

namespace epilogue::trace {
namespace {

// Small enough that a window and its token index stay in a core's cache.
constexpr size_t kWindowBytes = size_t{1} << 19;
// The rest of the window before, and a full one.
constexpr size_t kBufferBytes = 2 * kWindowBytes;

}  // namespace

class WindowPipeline::State {
 public:
  State(ByteSource& source, PythonFrames frames, size_t workers)
      : source_(source), frames_(frames), workers_(workers), max_in_flight_(workers + 3) {}

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    wake_all();
    threads_.clear();  // joins
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_ptr<TextWindow> next() {
    if (is_at_end_) return nullptr;
    if (next_index_ == 0) return first();
    std::unique_lock lock(mutex_);
    has_next_.wait(lock, [&] { return error_ != nullptr || parsed_.contains(next_index_); });
    if (error_ != nullptr) std::rethrow_exception(error_);
    auto window = std::move(parsed_.extract(next_index_++).mapped());
    is_at_end_ = window->is_last || window->failure.has_value();
    return window;
  }

  void recycle(std::unique_ptr<TextWindow> window) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(window));
      --in_flight_;
    }
    has_free_.notify_one();
  }

 private:
  using Indexed = std::pair<size_t, std::unique_ptr<TextWindow>>;

  // A thread must not end the program: what it throws is the caller's.
  template <class Body>
  void guarded(Body body) {
    try {
      body();
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        if (error_ == nullptr) error_ = std::current_exception();
        is_stopped_ = true;
      }
      wake_all();
    }
  }

  void wake_all() {
    has_free_.notify_all();
    has_read_.notify_all();
    has_next_.notify_all();
  }

  // Most traces are small: threads start when the first window turns out not to be the last.
  std::unique_ptr<TextWindow> first() {
    std::unique_ptr<TextWindow> window = take_free();
    fill(*window);
    ++next_index_;
    is_at_end_ = window->is_last || window->failure.has_value();
    if (is_at_end_) return window;
    threads_.emplace_back([this] { guarded([this] { read_windows(); }); });
    for (size_t i = 0; i < workers_; ++i)
      threads_.emplace_back([this, i] { guarded([this, i] { parse_windows(i); }); });
    return window;
  }

  void read_windows() {
    for (size_t index = 1;; ++index) {
      std::unique_ptr<TextWindow> window = take_free();
      if (window == nullptr) return;
      fill(*window);
      const bool is_done = window->is_last || window->failure.has_value();
      hand_over({index, std::move(window)});
      if (is_done) return;
    }
  }

  std::unique_ptr<TextWindow> take_free() {
    std::unique_lock lock(mutex_);
    has_free_.wait(lock, [&] { return is_stopped_ || in_flight_ < max_in_flight_; });
    if (is_stopped_) return nullptr;
    ++in_flight_;
    if (free_.empty()) {
      auto fresh = std::make_unique<TextWindow>();
      fresh->buffer = std::make_unique_for_overwrite<char[]>(kBufferBytes + 1);
      return fresh;
    }
    auto window = std::move(free_.back());
    free_.pop_back();
    return window;
  }

  void fill(TextWindow& window) {
    char* const to = window.buffer.get();
    std::copy(rest_.begin(), rest_.end(), to);
    const Result<size_t> n = source_.read({to + rest_.size(), kWindowBytes});
    if (!n) window.failure = n.failure();
    window.size = rest_.size() + (n ? n.value() : 0);
    window.offset = offset_;
    window.is_last = n && n.value() < kWindowBytes;
    window.is_parsed = false;
    rest_.clear();
    if (!window.is_last) {
      // No cut: one event is larger than all this. The caller joins it with what follows.
      const size_t cut = find_last_cut(window.text());
      if (cut > 0 && window.size - cut < kWindowBytes) {
        rest_.assign(to + cut, window.size - cut);
        window.size = cut;
      }
    }
    to[window.size] = '\0';
    offset_ += static_cast<int64_t>(window.size);
  }

  void hand_over(Indexed window) {
    {
      const std::lock_guard lock(mutex_);
      read_.push_back(std::move(window));
    }
    has_read_.notify_one();
  }

  void parse_windows(size_t worker) {
    WindowParser parser(frames_);
    while (true) {
      Indexed item = take_read();
      if (item.second == nullptr) return;
      TextWindow& window = *item.second;
      window.worker = worker;
      window.is_parsed = true;
      parser.parse(window.text(), window.offset, window.is_last, window.result);
      bool is_awaited = false;
      {
        const std::lock_guard lock(mutex_);
        is_awaited = item.first == next_index_;
        parsed_.emplace(item.first, std::move(item.second));
      }
      if (is_awaited) has_next_.notify_one();
    }
  }

  Indexed take_read() {
    std::unique_lock lock(mutex_);
    has_read_.wait(lock, [&] { return is_stopped_ || !read_.empty(); });
    if (is_stopped_) return {0, nullptr};
    Indexed item = std::move(read_.front());
    read_.pop_front();
    return item;
  }

  ByteSource& source_;
  const PythonFrames frames_;
  const size_t workers_;
  const size_t max_in_flight_;
  std::string rest_;  // of the text, behind the last cut
  int64_t offset_ = 0;
  size_t next_index_ = 0;
  bool is_at_end_ = false;

  std::mutex mutex_;
  // One for each side that waits: what wakes a thread that has nothing to do costs more than it
  // takes to parse a few events.
  std::condition_variable has_free_;  // the reader: a window may be filled
  std::condition_variable has_read_;  // the workers: a window is read
  std::condition_variable has_next_;  // the caller: the next window is parsed
  std::deque<Indexed> read_;
  std::map<size_t, std::unique_ptr<TextWindow>> parsed_;
  std::vector<std::unique_ptr<TextWindow>> free_;
  size_t in_flight_ = 0;
  bool is_stopped_ = false;
  std::exception_ptr error_;

  std::vector<std::jthread> threads_;  // last: they use all of the above
};

WindowPipeline::WindowPipeline(ByteSource& source, PythonFrames frames, size_t workers)
    : state_(std::make_unique<State>(source, frames, workers)) {}
WindowPipeline::~WindowPipeline() = default;

std::unique_ptr<TextWindow> WindowPipeline::next() { return state_->next(); }
void WindowPipeline::recycle(std::unique_ptr<TextWindow> window) {
  state_->recycle(std::move(window));
}

}  // namespace epilogue::trace
