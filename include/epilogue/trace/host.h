// SPDX-License-Identifier: Apache-2.0
// Where the host's time goes in a run without a device: the ops, their products, data loading and
// what runs between the ops.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/cpu.h"
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/time.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// The parts into which the wall time of the main thread divides.
enum class HostPart : uint8_t {
  compute,      // in products, convolutions and attention
  memory,       // in ops that move bytes: pointwise, reductions, copies
  dispatch,     // in ops that do no work, what the others take to be called, and short gaps between
  data,         // in the data loader
  between_ops,  // outside of ops: Python, mostly
  profiler,     // what recording the ops cost: estimated
};
inline constexpr int kHostParts = static_cast<int>(HostPart::profiler) + 1;
std::string_view host_part_name(HostPart part);  // "compute", "between_ops"

// Cost of calling an op where nothing is recorded: an op's self time up to this is dispatch.
inline constexpr int64_t kDispatchNsPerOp = 2000;
// A gap between ops up to this is the call from Python, not a program of its own.
inline constexpr int64_t kCallGapNs = 20'000;
// A product that computes fewer FLOPs for each byte that it moves waits for memory on any CPU,
// unless a cache holds what it moves.
inline constexpr double kLeastFlopsPerByte = 8;
// A core's cache (L2) holds so much from one call to the next, where nobody named the CPU.
inline constexpr int64_t kCoreCacheBytes = 1 << 20;
// A product that reaches this share of the best rate among those with more FLOPs for each byte does
// not wait for memory.
inline constexpr double kRateOfNoWait = 0.5;
// A large product in a 16-bit type that is slower than this runs without instructions for the type:
// one core of 2015 does twice as much in f32.
inline constexpr double kSlowProductGflops = 30;
// glibc gives larger blocks back to the system at once: the next one's pages are new.
inline constexpr int64_t kFreshBytes = 32 << 20;
// GB/s that any machine's memory gives a single core.
inline constexpr double kSureGbPerS = 10;

// All calls of one op on the main thread, the data loader's left out.
struct HostOp {
  std::string name;
  HostPart part = HostPart::memory;  // dispatch: a view, an allocation, an op that calls others
  int64_t count = 0;
  int64_t self_ns = 0;             // without the ops that it calls
  std::optional<double> gb_per_s;  // of elementwise ops whose shapes are known
  int64_t bytes_per_call = 0;      // of these
};

// Executions of one product on the host.
struct HostProduct {
  std::string op;
  GemmShape shape;
  std::string type;  // "f32", "bf16"
  Distribution time;
  double gflops = 0;          // GFLOP/s over the median
  double flops_per_byte = 0;  // of operands and result
  // flops_per_byte is below kLeastFlopsPerByte, operands and result are larger than
  // HostTime::cache_bytes, and the rate is below kRateOfNoWait of what other shapes of the type
  // reach.
  bool waits_for_memory = false;
  // So small that calling it takes longer than computing it (kDispatchNsPerOp) on any CPU: its rate
  // says nothing, and its time is dispatch.
  bool is_dispatch = false;
  // From HostTime::peaks, for the type, or for f32 where the CPU computes it as f32. Empty: not
  // known. Dispatch has no share.
  std::optional<double> peak_gflops;
  std::optional<double> peak_pct;
};

// A Python function and its time outside of ops and of the functions that it calls.
struct HostFunction {
  std::string name;  // "train.py(33): preprocess"
  int64_t count = 0;
  int64_t self_ns = 0;
};

// A range of the program, record_function("preprocess"), and its time outside of ops and of the
// ranges within it.
struct HostRange {
  std::string name;
  int64_t count = 0;
  int64_t self_ns = 0;
};

// Collectives of CPUs (gloo, MPI, UCC), which threads of their own carry out.
struct HostCollectives {
  std::string name;      // the one with most time: "gloo:all_reduce"
  int64_t count = 0;     // all of them
  Distribution time;     // of each
  int64_t alone_ns = 0;  // of HostPart::between_ops: in which one or more of them ran
};

struct HostTime {
  int64_t wall_ns = 0;  // of the steps, else the span
  std::array<int64_t, kHostParts> part_ns = {};
  Bound bound = Bound::overhead;  // overhead, compute, memory or data
  int64_t op_calls = 0;
  std::vector<HostOp> ops;              // by self time
  std::vector<HostProduct> products;    // by time
  std::vector<HostFunction> functions;  // by time; empty if Python frames were not recorded or read
  std::vector<HostRange> ranges;        // by time, without those of PyTorch itself
  std::optional<HostCollectives> collectives;  // empty: none was recorded
  int64_t other_threads_ns = 0;                // time in ops of other threads
  // What the L2 caches of the run's cores hold together; kCoreCacheBytes if the CPU is not known.
  int64_t cache_bytes = kCoreCacheBytes;
  bool is_cache_known = false;
  std::optional<CpuPeaks> peaks;  // what products are compared with; empty: nobody named the CPU

  int64_t of(HostPart part) const { return part_ns[static_cast<size_t>(part)]; }
  double pct(HostPart part) const {
    return wall_ns > 0 ? static_cast<double>(of(part)) * 100 / static_cast<double>(wall_ns) : 0;
  }
};

// A product is faster than the peak allows: the peak is too low, and no share of it says anything.
bool is_peak_too_low(const HostTime& host);

// Empty if anything was started on a device or ran there, and for a trace without ops.
std::optional<HostTime> host_time(const Trace& trace, const Links& links);

// --- Idle gaps of a device ----------------------------------------------------------------------

// A stretch in which the device did nothing, and what the host did for at least half of it.
struct IdleGap {
  int64_t start_ns = 0;
  int64_t dur_ns = 0;
  IdleCause cause = IdleCause::other;              // of most of it
  std::array<int64_t, kIdleCauses> cause_ns = {};  // by IdleCause
  std::string before;                              // the work that ran before; "" at the start
  std::string after;                               // the work that ended it; "" at the end
  bool was_launched = false;   // that work had been launched before the gap's middle
  bool may_hide_work = false;  // most of it: work that was not recorded may have run
  std::string call;            // the shortest runtime call around half of the gap; "" none
  std::string op;              // the outermost op so
  std::string annotation;      // the shortest annotation so
  std::string function;        // the innermost Python function so, if frames were read
};

// The longest of the busiest device, at most `most` of them.
std::vector<IdleGap> idle_gaps(const Trace& trace, const Links& links, size_t most = 5);

}  // namespace epilogue::trace

#pragma GCC visibility pop
