// SPDX-License-Identifier: Apache-2.0
#include "explain/host/host_losses.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "explain/host/small_loops.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

std::vector<HostLoss> by_time(LossesByName& losses) {
  std::vector<HostLoss> list;
  for (auto& [name, loss] : losses) {
    loss.name = std::string(name);
    list.push_back(std::move(loss));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const HostLoss& a, const HostLoss& b) { return a.ns > b.ns; });
  return list;
}

void add(LossesByName& losses, std::string_view name, int64_t ns, int64_t bytes) {
  HostLoss& loss = losses[name];
  ++loss.count;
  loss.ns += ns;
  loss.bytes += bytes;
}

template <size_t N>
bool is_listed(const std::array<std::string_view, N>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Ops that copy because they were asked to: a copy below them is theirs.
constexpr std::array<std::string_view, 11> kCopiers = {
    "aten::to",      "aten::_to_copy", "aten::contiguous", "aten::clone",
    "aten::reshape", "aten::repeat",   "aten::stack",      "aten::copy_",
    "aten::cat",     "aten::float",    "aten::pad"};
constexpr std::array<std::string_view, 7> kIndexing = {
    "aten::index",         "aten::index_put_",     "aten::_index_put_impl_", "aten::index_put",
    "aten::masked_select", "aten::masked_scatter", "aten::masked_scatter_"};

// GB/s of an op on kManyBytes or more that waits for nobody.
constexpr double kFastGbPerS = 3;
// Results of so many bytes may be new memory; they are if the op is so many times slower than ops
// in place.
constexpr int64_t kPerhapsFreshBytes = 4 << 20;
constexpr double kSurelyFresh = 4;
constexpr int64_t kWideBytes = 32 << 10;

class Losses {
 public:
  Losses(const Trace& trace, const Links& links, const std::vector<int64_t>& self_ns)
      : trace_(trace), links_(links), self_ns_(self_ns) {}

  void add_op(uint32_t i) {
    const Event& e = trace_.events[i];
    const std::string_view name = trace_.name(e);
    if (name == "aten::copy_" || name == "aten::cat") add_copy(i);
    if (name == "aten::nonzero") add_mask(i);
    if (name == "aten::isnan" || name == "aten::_is_any_true") add(nan_checks_, name, e.dur_ns, 0);
    if (name == "aten::_scaled_dot_product_attention_math")
      add(plain_attention_, name, e.dur_ns, 0);
    if (name == "aten::batch_norm" && is_training_norm(e)) add(training_norms_, name, e.dur_ns, 0);
    const OpClass kind = op_class(name);
    if (is_wide(e, kind)) add(wide_, name, self_ns_[i], 0);
    if (!is_elementwise(kind) && kind != OpClass::rowwise) return;
    const std::optional<OpBytes> bytes = bytes_of_op(trace_, e);
    if (!bytes) return;
    // zero_ that calls fill_ is told by that.
    if (2 * self_ns_[i] < e.dur_ns) return;
    const bool is_simple = is_elementwise(kind) && !is_transcendental(name);
    const bool is_stalled = is_simple && add_simple(e, kind, *bytes);
    small_loops_.add(trace_, e, *bytes, is_stalled);
  }

  HostLosses take() {
    HostLosses losses;
    add_smaller_fresh();
    small_loops_.add_contended(stalled_);
    // Threads that wait for each other slow all ops down, not some.
    losses.are_loops_slow = small_loops_.slow_calls() > 0;
    if (losses.are_loops_slow || 2 * fast_calls_ <= stalled_calls_)
      losses.stalled = by_time(stalled_);
    losses.fresh = by_time(fresh_);
    losses.least_fresh_bytes = fresh_.empty() ? 0 : least_fresh_;
    losses.wide = by_time(wide_);
    losses.warm_gb_per_s = has_large_warm_ ? large_warm_ : std::min(small_warm_, kSureGbPerS);
    losses.copies = by_time(copies_);
    losses.masks = by_time(masks_);
    losses.plain_attention = by_time(plain_attention_);
    if (!training_norms_.empty() && !runs_backward())
      losses.training_norms = by_time(training_norms_);
    // isnan alone may be the program's own.
    if (nan_checks_.contains("aten::_is_any_true")) losses.nan_checks = by_time(nan_checks_);
    return losses;
  }

 private:
  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[i]); }

  // True if it is stalled.
  bool add_simple(const Event& e, OpClass kind, OpBytes moved) {
    const auto [bytes, written] = moved;
    const double rate = static_cast<double>(bytes) / static_cast<double>(e.dur_ns);
    const std::string_view name = trace_.name(e);
    const bool is_stalled = e.dur_ns > kStalledNs && rate < kContendedGbPerS;
    if (is_stalled) {
      add(stalled_, name, e.dur_ns, bytes);
      ++stalled_calls_;
    } else if (rate >= kFastGbPerS && bytes >= kManyBytes) {
      ++fast_calls_;
    }
    // Fills and copies may be the first to write a tensor, whatever their names end with.
    const bool overwrites = is_in_place(name) && kind == OpClass::pointwise;
    if (overwrites && written >= kFreshBytes / 4) {
      has_large_warm_ = true;
      large_warm_ = std::max(large_warm_, rate);
    } else if (!overwrites && written >= kFreshBytes && kind == OpClass::pointwise) {
      add(fresh_, name, e.dur_ns, bytes);
      least_fresh_ = std::min(least_fresh_, written);
    } else if (written >= kManyBytes && written < kFreshBytes) {
      if (kind == OpClass::pointwise) small_warm_ = std::max(small_warm_, rate);
      if (!overwrites && written >= kPerhapsFreshBytes)
        perhaps_fresh_.push_back({name, e.dur_ns, bytes, written});
    }
    return is_stalled;
  }

  // Smaller blocks come from the system as well if what lies behind them in memory was given back.
  void add_smaller_fresh() {
    if (!has_large_warm_) return;
    for (const Call& call : perhaps_fresh_) {
      if (static_cast<double>(call.bytes) * kSurelyFresh >=
          std::min(large_warm_, kSureGbPerS) * static_cast<double>(call.ns))
        continue;
      add(fresh_, call.name, call.ns, call.bytes);
      least_fresh_ = std::min(least_fresh_, call.written);
    }
  }

  // Empty where they were not recorded.
  std::span<const OpInput> inputs_of(const Event& e) const {
    const OpArgs* args = trace_.op_args(e);
    if (args == nullptr || args->inputs >= trace_.inputs.size()) return {};
    return trace_.inputs[args->inputs];
  }

  // batch_norm(input, weight, bias, running_mean, running_var, training, ...)
  bool is_training_norm(const Event& e) const {
    constexpr size_t kTraining = 5;
    const std::span<const OpInput> inputs = inputs_of(e);
    return inputs.size() > kTraining && inputs[kTraining].concrete == "True";
  }
  bool runs_backward() const {
    for (StringId id = 0; id < trace_.strings.size(); ++id)
      if (trace_.strings[id].find("Backward") != std::string_view::npos) return true;
    return false;
  }

  // Works on many numbers of twice the size.
  bool is_wide(const Event& e, OpClass kind) const {
    if (!is_elementwise(kind) && kind != OpClass::rowwise && kind != OpClass::reduction)
      return false;
    for (const OpInput& input : inputs_of(e)) {
      if (input.type != "double") continue;
      const TensorShape tensor{input.dims, input.type};
      if (tensor.bytes().value_or(0) >= kWideBytes) return true;
    }
    return false;
  }

  // Copies that are part of an op which computes (a bias, a number that is cast) are not counted.
  void add_copy(uint32_t i) {
    std::string_view asked = name(i);
    uint32_t p = links_.parent[i];
    for (; p != kNone && is_listed(kCopiers, name(p)); p = links_.parent[p]) asked = name(p);
    if (p != kNone && is_listed(kIndexing, name(p))) return;
    const bool is_asked = asked != "aten::copy_";
    if (p != kNone) {
      const OpClass around = op_class(name(p));
      const bool computes = around != OpClass::view && around != OpClass::unknown;
      if (computes || !is_asked) return;
    }
    add(copies_, asked, self_ns_[i], 0);
  }

  void add_mask(uint32_t i) {
    uint32_t outermost = kNone;
    for (uint32_t p = links_.parent[i]; p != kNone && is_listed(kIndexing, name(p));
         p = links_.parent[p])
      outermost = p;
    if (outermost == kNone) return;
    // Of several masks in one call each finds the same one.
    if (outermost != last_mask_) add(masks_, name(outermost), trace_.events[outermost].dur_ns, 0);
    last_mask_ = outermost;
  }

  struct Call {
    std::string_view name;
    int64_t ns;
    int64_t bytes;
    int64_t written;
  };

  const Trace& trace_;
  const Links& links_;
  const std::vector<int64_t>& self_ns_;
  SmallLoops small_loops_;
  LossesByName stalled_;
  int64_t stalled_calls_ = 0;
  int64_t fast_calls_ = 0;
  LossesByName fresh_;
  std::vector<Call> perhaps_fresh_;
  int64_t least_fresh_ = INT64_MAX;
  LossesByName wide_;
  LossesByName copies_;
  LossesByName masks_;
  LossesByName nan_checks_;
  LossesByName training_norms_;
  LossesByName plain_attention_;
  uint32_t last_mask_ = kNone;
  bool has_large_warm_ = false;
  double large_warm_ = 0;
  double small_warm_ = 0;
};

}  // namespace

HostLosses host_losses(const Trace& trace, const Links& links, const std::vector<uint32_t>& ops,
                       const std::vector<int64_t>& self_ns) {
  Losses losses(trace, links, self_ns);
  for (const uint32_t i : ops)
    if (trace.events[i].dur_ns > 0) losses.add_op(i);
  return losses.take();
}

}  // namespace epilogue::trace
