// SPDX-License-Identifier: Apache-2.0
#include "core/observer.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace epilogue {
namespace detail {
std::atomic<RunObserver*> run_observer{nullptr};
std::atomic<TapeObserver*> tape_observer{nullptr};
}  // namespace detail

void set_run_observer(RunObserver* observer) {
  detail::run_observer.store(observer, std::memory_order_release);
}
void set_tape_observer(TapeObserver* observer) {
  detail::tape_observer.store(observer, std::memory_order_release);
}

uint64_t current_thread_id() {
  thread_local const auto id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

double moved_bytes(const Call& call) {
  double bytes = 0;
  for (const Tensor& t : call.in)
    if (t.defined()) bytes += static_cast<double>(t.bytes());
  for (const Tensor& t : call.out) bytes += static_cast<double>(t.bytes());
  return bytes;
}

}  // namespace epilogue
