// SPDX-License-Identifier: Apache-2.0
#include "analysis/time/host_losses.h"

#include <algorithm>
#include <array>
#include <map>

#include "analysis/aten_ops.h"
#include "analysis/time/small_loops.h"

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

class Losses {
 public:
  Losses(const Trace& trace, const Links& links, const std::vector<int64_t>& self_ns)
      : trace_(trace), links_(links), self_ns_(self_ns) {}

  void add_op(uint32_t i) {
    const Event& e = trace_.events[i];
    const std::string_view name = trace_.name(e);
    if (name == "aten::copy_" || name == "aten::cat") add_copy(i);
    if (name == "aten::nonzero") add_mask(i);
    const OpClass kind = op_class(name);
    if (!is_elementwise(kind) && kind != OpClass::rowwise) return;
    const std::optional<int64_t> bytes = bytes_of_op(trace_, e);
    if (!bytes) return;
    const bool is_simple = is_elementwise(kind) && !is_transcendental(name);
    if (!is_simple || !add_simple(e, kind, *bytes)) small_loops_.add(trace_, e, *bytes);
  }

  HostLosses take() {
    HostLosses losses;
    small_loops_.add_contended(stalled_);
    losses.stalled = by_time(stalled_);
    losses.fresh = by_time(fresh_);
    losses.warm_gb_per_s = has_large_warm_ ? large_warm_ : std::min(small_warm_, kSureGbPerS);
    losses.copies = by_time(copies_);
    losses.masks = by_time(masks_);
    return losses;
  }

 private:
  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[i]); }

  // True if it is stalled.
  bool add_simple(const Event& e, OpClass kind, int64_t bytes) {
    const double rate = static_cast<double>(bytes) / static_cast<double>(e.dur_ns);
    const std::string_view name = trace_.name(e);
    const bool is_stalled = e.dur_ns > kStalledNs && rate < kContendedGbPerS;
    if (is_stalled) add(stalled_, name, e.dur_ns, bytes);
    const bool is_in_place = name.ends_with('_');
    const int64_t written = output_bytes(e);
    if (is_in_place && written >= kFreshBytes / 4) {
      has_large_warm_ = true;
      large_warm_ = std::max(large_warm_, rate);
    } else if (!is_in_place && written >= kFreshBytes && kind == OpClass::pointwise) {
      add(fresh_, name, e.dur_ns, bytes);
    } else if (written >= kManyBytes && written < kFreshBytes) {
      small_warm_ = std::max(small_warm_, rate);
    }
    return is_stalled;
  }

  int64_t output_bytes(const Event& e) const {
    const OpArgs* args = trace_.op_args(e);
    const auto output = output_shape(trace_.name(e), trace_.inputs[args->inputs]);
    return output ? output->bytes().value_or(0) : 0;
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

  const Trace& trace_;
  const Links& links_;
  const std::vector<int64_t>& self_ns_;
  SmallLoops small_loops_;
  LossesByName stalled_;
  LossesByName fresh_;
  LossesByName copies_;
  LossesByName masks_;
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
