// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/stalled_ops.h"

#include "base/median.h"

namespace epilogue::trace {
namespace {

bool is_contiguous_input(const OpInput& input) {
  if (input.strides.size() != input.dims.size()) return false;
  int64_t expected = 1;
  for (size_t i = input.dims.size(); i-- > 0;) {
    if (input.dims[i] != 1 && input.strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, input.dims[i], &expected)) return false;
  }
  return true;
}

}  // namespace

void SmallLoops::add(const VisitedOp& op, bool is_counted_already) {
  const OpBytes& bytes = *op.bytes();
  if (bytes.written < kSharedLoopBytes || bytes.written > kCachedBytes) return;
  // No op reads more than three tensors for the one that it writes.
  if (bytes.moved > 4 * kCachedBytes) return;
  if (op.inputs.empty() || op.inputs.front().type != "float" ||
      !is_contiguous_input(op.inputs.front()))
    return;
  Calls& calls = calls_[{op.name, bytes.moved}];
  calls.is_simple = op.kind == OpClass::pointwise && op.is_simple();
  if (!is_counted_already) {
    ++calls.count;
    calls.ns += op.event.dur_ns;
    calls.bytes += bytes.moved;
  }
  calls.gb_per_s.push_back(static_cast<double>(bytes.moved) / static_cast<double>(op.event.dur_ns));
}

int64_t SmallLoops::add_contended(OpLosses& losses) const {
  const auto is_slow = [](const Calls& c) { return median_of(c.gb_per_s) < kSlowMedian; };
  const bool is_shown = std::any_of(calls_.begin(), calls_.end(), [&](const auto& entry) {
    const Calls& c = entry.second;
    if (!c.is_simple || c.gb_per_s.size() < static_cast<size_t>(kSomeCalls)) return false;
    const double median = median_of(c.gb_per_s);
    if (median >= kSlowMedian) return false;
    return median < kSurelySlowMedian ||
           *std::max_element(c.gb_per_s.begin(), c.gb_per_s.end()) < kSlowFastest;
  });
  if (!is_shown) return 0;
  int64_t slow_calls = 0;
  for (const auto& [key, c] : calls_) {
    // How fast one core would be is not known for ops that compute more than they move.
    if (is_transcendental(key.first) || !is_slow(c)) continue;
    slow_calls += static_cast<int64_t>(c.gb_per_s.size());
    if (c.count > 0) losses.add(key.first, c.ns, c.bytes, c.count);
  }
  return slow_calls;
}

void StalledOps::visit(const VisitedOp& op) {
  if (!is_elementwise(op.kind) && op.kind != OpClass::rowwise) return;
  if (!op.bytes() || !op.works_itself()) return;
  bool is_stalled = false;
  if (op.is_simple()) {
    const int64_t bytes = op.bytes()->moved;
    const double rate = static_cast<double>(bytes) / static_cast<double>(op.event.dur_ns);
    is_stalled = op.event.dur_ns > kStalledNs && rate < kContendedGbPerS;
    if (is_stalled) {
      stalled_.add(op.name, op.event.dur_ns, bytes);
      ++stalled_calls_;
    } else if (rate >= kFastGbPerS && bytes >= kManyBytes) {
      ++fast_calls_;
    }
  }
  small_loops_.add(op, is_stalled);
}

StalledOps::Result StalledOps::result() const {
  Result all{stalled_};
  all.are_loops_slow = small_loops_.add_contended(all.ops) > 0;
  // Threads that wait for each other slow all ops down, not some.
  if (!all.are_loops_slow && kFastCallsPerStalled * fast_calls_ > stalled_calls_) return {};
  return all;
}

}  // namespace epilogue::trace
