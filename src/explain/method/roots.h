// SPDX-License-Identifier: Apache-2.0
// The outermost ops with all that they call, and sums of times by op: what searches for wastes
// share.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "explain/method/counted_ops.h"

namespace epilogue::trace {

// Of the run: less is not worth a finding.
inline constexpr double kWasteShare = 0.05;

inline bool is_multiplication(std::string_view name) {
  constexpr std::array<std::string_view, 10> kProducts = {
      "mm", "addmm", "bmm", "baddbmm", "matmul", "mv", "addmv", "linear", "einsum", "tensordot"};
  return name.starts_with("aten::") && is_one(kProducts, aten_base(name));
}

inline bool is_convolution(std::string_view base) {
  return base == "conv1d" || base == "conv2d" || base == "conv3d" || base == "convolution";
}

// Time by op name.
class OpTimes {
 public:
  void add(StringId name, int64_t ns) { by_name_[name] += ns; }
  void add(const OpTimes& times) {
    for (const auto& [name, ns] : times.by_name_) by_name_[name] += ns;
  }
  std::vector<std::pair<std::string, int64_t>> list(const Trace& trace) const {
    std::vector<std::pair<std::string, int64_t>> list;
    list.reserve(by_name_.size());
    for (const auto& [name, ns] : by_name_) list.emplace_back(trace.strings[name], ns);
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    return list;
  }

 private:
  std::unordered_map<StringId, int64_t> by_name_;
};

// The outermost ops with all that they call.
class Roots {
 public:
  explicit Roots(const CountedOps& all) : all_(all), of_(all.ops.size(), kNone) {
    for (size_t at = 0; at < all.ops.size(); ++at) {
      if (all.is_root(at)) {
        of_[at] = static_cast<uint32_t>(list_.size());
        list_.push_back(static_cast<uint32_t>(at));
        within_.emplace_back();
      } else {
        // Callers stand before what they call.
        const uint32_t parent = all.position[all.links.parent[all.ops[at]]];
        if (parent == kNone) continue;
        of_[at] = of_[parent];
      }
      if (of_[at] != kNone) within_[of_[at]].push_back(static_cast<uint32_t>(at));
    }
  }

  size_t size() const { return list_.size(); }
  uint32_t at(size_t root) const { return list_[root]; }  // a position in CountedOps::ops
  std::string_view name(size_t root) const { return all_.name(list_[root]); }
  std::string_view base(size_t root) const { return all_.base(list_[root]); }
  OpClass kind(size_t root) const { return all_.kind(list_[root]); }
  const std::vector<uint32_t>& within(size_t root) const { return within_[root]; }
  uint32_t of(size_t at) const { return of_[at]; }
  int64_t sequence(size_t root) const {
    const OpArgs* args = all_.trace.op_args(all_.event(list_[root]));
    return args == nullptr ? -1 : args->sequence_number;
  }
  uint32_t step(size_t root) const { return all_.links.step[all_.ops[list_[root]]]; }
  bool has(size_t root, std::string_view base) const {
    return std::any_of(within_[root].begin(), within_[root].end(), [&](uint32_t at) {
      return all_.name(at).starts_with("aten::") && all_.base(at) == base;
    });
  }
  // Adds the times of all that it calls; returns their sum.
  int64_t add_times(size_t root, OpTimes& times) const {
    int64_t ns = 0;
    for (const uint32_t at : within_[root]) {
      ns += all_.ns_at(at);
      times.add(all_.name_id(at), all_.ns_at(at));
    }
    return ns;
  }

 private:
  const CountedOps& all_;
  std::vector<uint32_t> list_;
  std::vector<uint32_t> of_;  // by position
  std::vector<std::vector<uint32_t>> within_;
};

// What every search for wastes has.
class WasteSearch {
 protected:
  WasteSearch(const CountedOps& all, const Places& places, std::vector<Waste>& found)
      : all_(all), places_(places), found_(found) {}

  bool is_worth_it(int64_t ns) const {
    return ns > 0 && static_cast<double>(ns) >= kWasteShare * static_cast<double>(all_.wall_ns);
  }
  // Fills in the ops and the place.
  void add(Waste waste, std::span<const uint32_t> calls, const OpTimes& times) {
    waste.op_ns = times.list(all_.trace);
    waste.place = places_.of(calls);
    found_.push_back(std::move(waste));
  }

  const CountedOps& all_;
  const Places& places_;
  std::vector<Waste>& found_;
};

// Nodes that no backward pass visits (unread.cpp).
void find_unread_forward(const CountedOps& all, const Places& places, const Roots& roots,
                         std::vector<Waste>& found);

// Backward passes that go on to an input which nobody trains (input_gradient.cpp).
void find_input_gradients(const CountedOps& all, const Places& places, const Roots& roots,
                          std::vector<Waste>& found);

// Of backward passes and of graphs (passes.cpp).
void find_wastes_of_passes(const CountedOps& all, const Places& places, const Roots& roots,
                           std::vector<Waste>& found);

// Of Python functions (functions.cpp): those that programs call rarely, and hooks that pile up.
void find_wastes_of_functions(const CountedOps& all, const Places& places,
                              std::vector<Waste>& found);

}  // namespace epilogue::trace
