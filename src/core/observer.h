// SPDX-License-Identifier: Apache-2.0
// Observers of ops and ranges, and the per-thread state that decides whether anyone listens.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/op.h"

namespace epilogue {

// PyTorch's RecordScope values that occur here.
// function: shown as an op. module: a layer's forward, shown like torch's "nn.Module: Linear_0".
enum class RangeKind : uint8_t { function = 0, backward_function = 1, user = 7, module = 100 };

// A fused kernel's description; kernels of ops are described by their Kernel and OpDef.
struct FusedKernelNotes {
  KernelInfo info;
  double flops = 0;
  double bytes = 0;
  double unfused_bytes = 0;  // what the ops that it stands for would move one by one
  // Those ops (FusedOps::full_names). Shared: the kernel may be gone before its record is read.
  std::shared_ptr<const std::string> ops;
};

// One kernel execution: [begin, end) in ticks() of base/clock.h.
struct KernelRun {
  const Call& call;
  const Kernel* kernel;  // nullptr: the reference kernel, or a fused one
  int64_t begin_ticks;
  int64_t end_ticks;
  const FusedKernelNotes* fused = nullptr;
  // From the backend's DeviceTimer: when the work ran on the device; the ticks are the launch's.
  // -1: the work is done when the call returns, or somebody else times it.
  int64_t begin_mark = -1;
  int64_t end_mark = -1;
};

// Hears every op, kernel and range of every thread: the profiler's recorder. Calls nest properly
// per thread and come on the thread that does the work.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // sequence_nr: the thread's autograd counter, -1 while gradients are off.
  virtual void op_begin(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                        int64_t sequence_nr) = 0;
  virtual void op_end() = 0;
  virtual void kernel_ran(const KernelRun& run) = 0;
  // sequence_nr and forward_thread: of the forward op for backward_function ranges, else -1 and 0.
  virtual void range_begin(std::string_view name, RangeKind kind, int64_t sequence_nr,
                           uint64_t forward_thread) = 0;
  virtual void range_end() = 0;
};

// Hears the ops of one thread after they ran: graph capture. on_op gets every op that is not
// composed of others, or that has a gradient rule of its own.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_op(const Call& call) = 0;
  // A tensor of new memory that is no op's result.
  virtual void on_new_tensor(const Tensor& tensor) = 0;
  // Whether the elements of this tensor mean nothing: an input's, or what kernels would write.
  virtual bool is_unwritten(const Tensor& tensor) const = 0;
};

// The tape: hears of ops that have a gradient rule while an input requires a gradient.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  virtual void on_op(const Call& call) = 0;
};

struct AutocastState;  // ops/autocast.h
class WatchedState;    // core/watched_state.h

struct ThreadState {
  bool grad_enabled = true;
  OpObserver* capture = nullptr;
  // While a function is captured for a plan: modules that run tell it what they hold.
  WatchedState* watched = nullptr;
  AutocastState* autocast = nullptr;  // null: off
  // Ops infer and allocate, but no kernel runs: capture wants the ops, not the numbers.
  bool skip_kernels = false;
  int64_t sequence_nr = 0;  // the next autograd node's number on this thread
};

inline ThreadState& thread_state() {
  constinit thread_local ThreadState state;
  return state;
}

// The process-wide listeners; nullptr when there is none.
namespace detail {
extern std::atomic<RunObserver*> run_observer;
extern std::atomic<TapeObserver*> tape_observer;
}  // namespace detail

inline RunObserver* run_observer() { return detail::run_observer.load(std::memory_order_acquire); }
// Ops that began before keep the observer that they began with.
void set_run_observer(RunObserver* observer);
// Autograd installs its tape when the first tensor is asked to require a gradient.
void set_tape_observer(TapeObserver* observer);

// Announces a range to the run observer, if there is one: record_function, autograd nodes,
// Optimizer.step. Costs one predictable branch otherwise. `name` is copied.
class ScopedRange {
 public:
  explicit ScopedRange(std::string_view name, RangeKind kind = RangeKind::user,
                       int64_t sequence_nr = -1, uint64_t forward_thread = 0)
      : observer_(run_observer()) {
    if (observer_ != nullptr) [[unlikely]]
      observer_->range_begin(name, kind, sequence_nr, forward_thread);
  }
  ~ScopedRange() {
    if (observer_ != nullptr) [[unlikely]]
      observer_->range_end();
  }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

 private:
  RunObserver* observer_;
};

// The operating system's id of this thread; cached.
uint64_t current_thread_id();

}  // namespace epilogue
