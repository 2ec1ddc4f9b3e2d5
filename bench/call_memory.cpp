// SPDX-License-Identifier: Apache-2.0
#include "bench/call_memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/allocator.h"

namespace epilogue::bench {
namespace {

struct Event {
  const void* address;
  int64_t bytes;  // below 0: freed
};

class EventLog : public MemoryObserver {
 public:
  EventLog() { set_memory_observer(this); }
  ~EventLog() override { set_memory_observer(nullptr); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  void on_memory(Device, const void* address, int64_t bytes, int64_t, int64_t) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back({address, bytes});
  }
  void on_category(Device, const void*, int64_t, MemoryCategory) override {}
  const std::vector<Event>& events() const { return events_; }

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace

CallMemory measure_call_memory(const std::function<Tensor()>& call) {
  CallMemory memory;
  const EventLog log;
  memory.result = call();
  const std::vector<Event>& events = log.events();
  // Memory is reused: the result is the last that was made at its address.
  const void* const address = memory.result.impl()->storage->data();
  const auto made = std::find_if(events.rbegin(), events.rend(), [&](const Event& e) {
    return e.address == address && e.bytes > 0;
  });
  int64_t live = 0;
  for (const Event& e : events) {
    if (made != events.rend() && &e == &*made) continue;
    live += e.bytes;
    memory.peak_intermediate_bytes = std::max(memory.peak_intermediate_bytes, live);
  }
  return memory;
}

}  // namespace epilogue::bench
