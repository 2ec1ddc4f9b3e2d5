// SPDX-License-Identifier: Apache-2.0
#include "explain/host/small_loops.h"

#include <algorithm>

#include "base/median.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

// ATen shares loops of 32,768 elements or more among its threads (at::internal::GRAIN_SIZE). A
// tensor of up to a mebibyte stays in a core's cache.
constexpr int64_t kSharedLoopBytes = 4 * 32'768;
constexpr int64_t kCachedBytes = 1 << 20;
// f32 in a cache, GB/s: one core of 2015 does three times the first. Runs of PyTorch on one and two
// cores showed medians from 5.4 up and fastest calls from 9; with more threads than cores, medians
// up to 3.3 and fastest calls up to 6.4.
constexpr double kSlowMedian = 3.5;
constexpr double kSlowFastest = 8;
// So slow in most calls, nothing but threads can be the cause, however fast some are.
constexpr double kSurelySlowMedian = 1;
constexpr size_t kSomeCalls = 5;

bool is_contiguous(const OpInput& input) {
  if (input.strides.size() != input.dims.size()) return false;
  int64_t expected = 1;
  for (size_t i = input.dims.size(); i-- > 0;) {
    if (input.dims[i] != 1 && input.strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, input.dims[i], &expected)) return false;
  }
  return true;
}

}  // namespace

void SmallLoops::add(const Trace& trace, const Event& op, OpBytes bytes, bool is_counted_already) {
  if (bytes.written < kSharedLoopBytes || bytes.written > kCachedBytes) return;
  // No op reads more than three tensors for the one that it writes.
  if (bytes.moved > 4 * kCachedBytes) return;
  const std::string_view name = trace.name(op);
  const OpClass kind = op_class(name);
  const auto inputs = trace.inputs[trace.op_args(op)->inputs];
  if (inputs.empty() || inputs.front().type != "float" || !is_contiguous(inputs.front())) return;
  Calls& calls = calls_[{name, bytes.moved}];
  calls.is_simple = kind == OpClass::pointwise && !is_transcendental(name);
  if (!is_counted_already) {
    ++calls.count;
    calls.ns += op.dur_ns;
    calls.bytes += bytes.moved;
  }
  calls.gb_per_s.push_back(static_cast<double>(bytes.moved) / static_cast<double>(op.dur_ns));
}

void SmallLoops::add_contended(LossesByName& losses) {
  const auto is_slow = [](const Calls& c) { return median_of(c.gb_per_s) < kSlowMedian; };
  const bool is_shown = std::any_of(calls_.begin(), calls_.end(), [&](const auto& entry) {
    const Calls& c = entry.second;
    if (!c.is_simple || c.gb_per_s.size() < kSomeCalls) return false;
    const double median = median_of(c.gb_per_s);
    if (median >= kSlowMedian) return false;
    return median < kSurelySlowMedian ||
           *std::max_element(c.gb_per_s.begin(), c.gb_per_s.end()) < kSlowFastest;
  });
  if (!is_shown) return;
  for (const auto& [key, c] : calls_) {
    // Of what computes more than it moves it is not known how fast one core would be.
    if (is_transcendental(key.first) || !is_slow(c)) continue;
    slow_calls_ += static_cast<int64_t>(c.gb_per_s.size());
    if (c.count == 0) continue;
    HostLoss& loss = losses[key.first];
    loss.count += c.count;
    loss.ns += c.ns;
    loss.bytes += c.bytes;
  }
}

}  // namespace epilogue::trace
