// SPDX-License-Identifier: Apache-2.0
#include "explain/method/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/signs.h"
#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

constexpr double kGigaPerTera = 1e3;
constexpr std::array<std::string_view, 4> kQuestionNames = {"needed", "less", "limit", "together"};
constexpr size_t kMostItems = 40;
// Calls of one shape are uneven if those beyond this many times the fast ones (the lower quartile)
// hold this share of the time.
constexpr int64_t kUnevenTimes = 3;
constexpr double kUnevenShare = 0.3;
constexpr size_t kUnevenCalls = 4;
// Below this the clock and the scheduler tell more than the op.
constexpr int64_t kUnevenNs = 20'000;
// A call that takes less is mostly its dispatch.
constexpr int64_t kSmallCallNs = 5'000;
constexpr size_t kManyCalls = 100;
constexpr double kManyCallsShare = 0.05;  // of the run: where calls take less, nobody asks for them
constexpr size_t kCallersShown = 3;
// So many times as long as where it was measured: more than machines, dtypes and threads differ.
constexpr double kSlowTimes = 10;

// Units of the table's cost (op_cost_unit) in one call; 0 where the shapes do not tell them.
double units_of(OpCost cost, std::string_view name, std::span<const OpInput> inputs) {
  const std::vector<TensorShape> tensors = tensor_inputs(inputs);
  if (tensors.empty()) return 0;
  double least = 0;
  double most = 0;
  const TensorShape* largest = nullptr;
  for (const TensorShape& t : tensors) {
    const auto n = static_cast<double>(t.numel());
    least = largest == nullptr ? n : std::min(least, n);
    if (largest == nullptr || n > most) largest = &t;
    most = std::max(most, n);
  }
  const auto last_of = [](const TensorShape& t) {
    return t.dims.empty() ? 1.0 : static_cast<double>(std::max<int64_t>(1, t.dims.back()));
  };
  const auto doublings = [](double n) { return std::max(1.0, std::log2(n)); };
  switch (cost) {
    case OpCost::bytes:
    case OpCost::arithmetic:
    case OpCost::scan:
    case OpCost::wait:
      if (const auto result = output_shape(name, inputs))
        most = std::max(most, static_cast<double>(result->numel()));
      return most;
    case OpCost::gather: {  // a table may be larger than what is read of it
      const auto result = output_shape(name, inputs);
      return result ? static_cast<double>(result->numel()) : 0;
    }
    case OpCost::sort:
    case OpCost::transform: return most * doublings(last_of(*largest));
    case OpCost::search: return most * doublings(least);
    case OpCost::solve: {
      const double n = last_of(tensors[0]);
      return static_cast<double>(tensors[0].numel()) * n;
    }
    case OpCost::pairs: {
      const TensorShape& other = tensors.size() > 1 ? tensors[1] : tensors[0];
      return static_cast<double>(tensors[0].numel()) *
             (other.dims.size() < 2 ? 1.0 : static_cast<double>(other.dims[other.dims.size() - 2]));
    }
    case OpCost::flops:
    case OpCost::metadata: return 0;  // products have rates; a view has no size
  }
  return 0;
}

struct NameSum {
  int64_t count = 0;
  int64_t ns = 0;
};

class Items {
 public:
  Items(const CountedOps& all, const Places& places, const HostTime* host)
      : all_(all), places_(places), host_(host) {}

  void run(Method& out) {
    std::unordered_map<StringId, NameSum> by_name;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      if (all_.is_device && all_.ns_at(at) == 0) continue;
      NameSum& sum = by_name[all_.name_id(at)];
      ++sum.count;
      sum.ns += all_.ns_at(at);
    }
    std::vector<std::pair<StringId, NameSum>> names(by_name.begin(), by_name.end());
    std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
      return a.second.ns != b.second.ns ? a.second.ns > b.second.ns
                                        : all_.trace.strings[a.first] < all_.trace.strings[b.first];
    });
    out.op_ns.reserve(names.size());
    for (const auto& [name, sum] : names) out.op_ns.emplace_back(all_.trace.strings[name], sum.ns);
    const auto wall = static_cast<double>(std::max<int64_t>(1, all_.wall_ns));
    std::unordered_map<StringId, size_t> place_of;
    for (const auto& [name, sum] : names) {
      const bool is_told = static_cast<double>(out.told_ns) >= kToldShare * wall;
      if (out.items.size() >= kMostItems ||
          static_cast<double>(sum.ns) < (is_told ? kNotableItem : kItemShare) * wall)
        break;
      place_of[name] = out.items.size();
      CostItem item = {
          .op = std::string(all_.trace.strings[name]), .count = sum.count, .ns = sum.ns};
      out.items.push_back(std::move(item));
      out.told_ns += sum.ns;
    }
    std::vector<std::vector<uint32_t>> calls(out.items.size());
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      const auto found = place_of.find(all_.name_id(at));
      if (found == place_of.end() || (all_.is_device && all_.ns_at(at) == 0)) continue;
      calls[found->second].push_back(static_cast<uint32_t>(at));
    }
    for (size_t i = 0; i < out.items.size(); ++i) add_best_rate(calls[i]);
    for (size_t i = 0; i < out.items.size(); ++i) describe(out.items[i], calls[i]);
  }

 private:
  void describe(CostItem& item, const std::vector<uint32_t>& calls) {
    const OpKnowledge* known = op_knowledge(item.op);
    add_sign(item, known, calls, "");
    if (auto answer = answer_of_shapes(all_, calls)) item.answers.push_back(std::move(*answer));
    if (const std::vector<uint32_t> around = asked_for(calls); !around.empty()) {
      item.asked = std::string(all_.name(around.front()));
      const OpKnowledge* row = op_knowledge(item.asked);
      add_sign(item, row, around, item.asked + ": ");
      if (row != nullptr && row->role != OpRole::main) known = row;
    }
    add_shapes(item, calls);
    item.place = places_.of(calls);
    const int64_t mean = item.ns / std::max<int64_t>(1, item.count);
    if (!all_.is_device && item.answers.empty() && mean < kSmallCallNs &&
        item.count >= static_cast<int64_t>(kManyCalls))
      item.answers.push_back(
          {CostQuestion::together,
           fmt::format("a call takes {}, about what calling an op costs", time_text(mean)),
           known != nullptr && !known->loop.empty()
               ? std::string(known->loop)
               : "fewer, larger calls: batches, torch._foreach_*, torch.compile",
           false});
    if (known != nullptr && !known->remedy.empty() && known->role != OpRole::main &&
        item.answers.empty())
      item.answers.push_back({CostQuestion::less, "a loss if " + std::string(known->misuse),
                              std::string(known->remedy), false});
    std::stable_sort(
        item.answers.begin(), item.answers.end(),
        [](const CostAnswer& a, const CostAnswer& b) { return a.is_loss > b.is_loss; });
  }

  void add_sign(CostItem& item, const OpKnowledge* known, const std::vector<uint32_t>& calls,
                const std::string& of) {
    if (known == nullptr) return;
    auto sign = answer_of_sign(known->sign, all_, calls);
    if (!sign) return;
    if (sign->action.empty()) sign->action = known->remedy;
    sign->text = of + sign->text;
    item.answers.push_back(std::move(*sign));
  }

  // Calls of the outermost op around most of the calls' time that is a question or has a sign: what
  // the program asked for, of which this is the work. Empty if there is none.
  std::vector<uint32_t> asked_for(const std::vector<uint32_t>& calls) const {
    struct Asked {
      int64_t ns = 0;
      std::vector<uint32_t> at;
    };
    std::unordered_map<StringId, Asked> by_name;
    const OpKnowledge* own = op_knowledge(all_.name(calls.front()));
    int64_t ns = 0;
    for (const uint32_t call : calls) {
      ns += all_.ns_at(call);
      uint32_t outermost = kNone;
      for (uint32_t p = all_.links.parent[all_.ops[call]]; p != kNone; p = all_.links.parent[p]) {
        const uint32_t at = all_.position[p];
        if (at == kNone) break;
        if (is_question(all_.name_id(at), own)) outermost = at;
      }
      if (outermost == kNone) continue;
      Asked& asked = by_name[all_.name_id(outermost)];
      asked.ns += all_.ns_at(call);
      if (asked.at.empty() || asked.at.back() != outermost) asked.at.push_back(outermost);
    }
    for (auto& [name, asked] : by_name)
      if (2 * asked.ns > ns) return std::move(asked.at);
    return {};
  }

  // Its row is another than `own` and says more than that it works. Each name is looked up once.
  bool is_question(StringId name, const OpKnowledge* own) const {
    const OpKnowledge* row = rows_.get(name, op_knowledge);
    return row != nullptr && row != own &&
           (row->role != OpRole::main || row->sign == OpSign::wide_table ||
            row->sign == OpSign::inference);
  }

  // Calls of the same inputs, the longest first.
  void add_shapes(CostItem& item, const std::vector<uint32_t>& calls) {
    std::unordered_map<uint32_t, std::vector<uint32_t>> by_inputs;
    for (const uint32_t at : calls) by_inputs[all_.inputs_id(at)].push_back(at);
    item.shape_kinds = static_cast<int64_t>(by_inputs.size());
    using Shape = std::pair<int64_t, uint32_t>;  // time, inputs
    std::vector<Shape> longest;
    for (const auto& [inputs, at] : by_inputs) {
      int64_t ns = 0;
      for (const uint32_t call : at) ns += all_.ns_at(call);
      longest.emplace_back(ns, inputs);
    }
    const size_t shown = std::min(kCostShapes, longest.size());
    std::partial_sort(longest.begin(), longest.begin() + static_cast<ptrdiff_t>(shown),
                      longest.end(), [](const Shape& a, const Shape& b) {
                        return a.first != b.first ? a.first > b.first : a.second < b.second;
                      });
    for (size_t i = 0; i < shown; ++i) {
      const std::vector<uint32_t>& at = by_inputs[longest[i].second];
      std::vector<int64_t> times;
      times.reserve(at.size());
      for (const uint32_t call : at) times.push_back(all_.ns_at(call));
      add_uneven(item, at, times);
      if (i == 0) item.is_channels_last = reads_channels_last(at.front());
      if (i == 0 && !add_rate(item, at)) add_unit_cost(item, at);
      CostShape shape;
      shape.text = shapes_text(all_.inputs(at.front()));
      shape.time = *distribution(std::move(times));
      item.shapes.push_back(std::move(shape));
    }
  }

  bool reads_channels_last(uint32_t at) const {
    const auto inputs = all_.inputs(at);
    return !inputs.empty() && is_channels_last(inputs[0]);
  }

  // Some calls of one shape take far longer than others of the same.
  void add_uneven(CostItem& item, const std::vector<uint32_t>& calls,
                  const std::vector<int64_t>& times) {
    // Of other ops the shapes alone do not tell how much they have to do.
    const OpClass kind = op_class(item.op);
    const bool is_told_by_shapes =
        kind == OpClass::gemm || kind == OpClass::pointwise || kind == OpClass::rowwise;
    if (calls.size() < kUnevenCalls || !is_told_by_shapes || all_.inputs_id(calls.front()) == kNone)
      return;
    std::vector<int64_t> sorted = times;
    const auto quartile = sorted.begin() + static_cast<ptrdiff_t>((sorted.size() - 1) / 4);
    std::nth_element(sorted.begin(), quartile, sorted.end());
    const int64_t fast = *quartile;
    std::vector<uint32_t> slow_calls;
    int64_t total = 0;
    int64_t slow = 0;
    int64_t wasted = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      total += times[i];
      if (times[i] <= kUnevenTimes * fast || times[i] < kUnevenNs) continue;
      slow += times[i];
      wasted += times[i] - fast;
      slow_calls.push_back(calls[i]);
    }
    if (slow_calls.size() < 2 ||
        static_cast<double>(wasted) < kUnevenShare * static_cast<double>(total) ||
        !is_the_same_in_each_step(calls, slow_calls))
      return;
    CostAnswer answer = {.question = CostQuestion::limit, .is_loss = true};
    answer.text = fmt::format(
        "{} of {} calls on {} take {} each, and a quarter of them {} or less: the sizes are the "
        "same{}",
        slow_calls.size(), calls.size(), shapes_text(all_.inputs(calls.front())),
        time_text(slow / static_cast<int64_t>(slow_calls.size())), time_text(fast),
        slow_place(calls, slow_calls));
    answer.action =
        "look at what differs: the values (numbers near zero, denormals, slow a CPU down many "
        "times: torch.set_flush_denormal(True)), the layout of the operands, first calls, other "
        "work on the machine";
    item.answers.push_back(std::move(answer));
  }

  // The slow calls are the same ones of each step: other work on the machine, the scheduler and
  // first calls choose others.
  bool is_the_same_in_each_step(const std::vector<uint32_t>& calls,
                                const std::vector<uint32_t>& slow_calls) const {
    std::map<uint32_t, std::vector<bool>> by_step;
    size_t slow = 0;
    for (const uint32_t at : calls) {
      const bool is_slow = slow < slow_calls.size() && slow_calls[slow] == at;
      slow += is_slow ? 1 : 0;
      by_step[all_.links.step[all_.ops[at]]].push_back(is_slow);
    }
    by_step.erase(kNone);
    if (by_step.size() < 2) return false;
    const std::vector<bool>& first = by_step.begin()->second;
    const auto is_mixed = std::count(first.begin(), first.end(), true);
    return is_mixed > 0 && is_mixed < static_cast<int64_t>(first.size()) &&
           std::all_of(by_step.begin(), by_step.end(),
                       [&](const auto& step) { return step.second == first; });
  }

  std::string slow_place(const std::vector<uint32_t>& calls,
                         const std::vector<uint32_t>& slow_calls) const {
    const std::string slow = places_.of(slow_calls).text();
    return slow.empty() || slow == places_.of(calls).text() ? "" : "; the slow ones are" + slow;
  }

  // What a call has to do: a product's FLOPs, the bytes that an elementwise op moves. 0: not known.
  double work(uint32_t at) {
    const auto [found, is_new] = work_.try_emplace(all_.key(at), 0);
    if (!is_new) return found->second;
    const std::string_view name = all_.name(at);
    const auto inputs = all_.inputs(at);
    // A layer's product is that of the addmm that it calls.
    const bool calls_product = !all_.is_device &&
                               (name == "aten::linear" || name == "aten::matmul") &&
                               2 * all_.ns_at(at) < all_.event(at).dur_ns;
    if (calls_product) return 0;
    if (const auto problem = gemm_problem(name, inputs))
      return found->second = problem->shape.flops();
    if (!is_elementwise(op_class(name))) return 0;
    const auto result = output_shape(name, inputs);
    if (!result || !result->bytes()) return 0;
    auto bytes = static_cast<double>(*result->bytes());
    for (const TensorShape& input : tensor_inputs(inputs)) {
      if (!input.bytes()) return 0;
      bytes += static_cast<double>(*input.bytes());
    }
    return found->second = bytes;
  }

  // Work for each nanosecond: GFLOP/s or GB/s.
  // Of elementwise ops apart, and of what fits in a cache: memory's bandwidth does not bound it.
  double& best_rate(uint32_t at, bool moves) {
    if (!moves) return best_gflops_;
    return fits_in_cache(at) ? best_cached_gb_per_s_ : best_gb_per_s_;
  }

  bool fits_in_cache(uint32_t at) {
    return host_ != nullptr && work(at) <= static_cast<double>(host_->cache_bytes);
  }

  std::string_view rated_as(uint32_t at, bool moves) {
    if (!moves) return "product";
    if (host_ == nullptr) return "elementwise op";
    if (host_->is_cache_known)
      return fits_in_cache(at) ? "elementwise op within the L2 caches"
                               : "elementwise op beyond the L2 caches";
    return fits_in_cache(at) ? "elementwise op within 1 MiB (the caches are not known)"
                             : "elementwise op beyond 1 MiB (the caches are not known)";
  }

  // Of calls of one name.
  void add_best_rate(const std::vector<uint32_t>& calls) {
    const bool moves = is_elementwise(all_.kind(calls.front()));
    for (const uint32_t at : calls) {
      const auto ns = static_cast<double>(all_.ns_at(at));
      if (all_.ns_at(at) <= kUnevenNs) continue;
      if (const double done = work(at); done > 0) {
        double& best = best_rate(at, moves);
        best = std::max(best, done / ns);
      }
    }
  }

  // The rate of the longest shape against the best of its kind in the run.
  bool add_rate(CostItem& item, const std::vector<uint32_t>& calls) {
    const bool moves = is_elementwise(op_class(item.op));
    const double best = best_rate(calls.front(), moves);
    int64_t ns = 0;
    for (const uint32_t at : calls) ns += all_.ns_at(at);
    if (work(calls.front()) == 0 || best == 0 || ns == 0) return false;
    const double rate =
        work(calls.front()) * static_cast<double>(calls.size()) / static_cast<double>(ns);
    // A GPU's products are read in TFLOP/s.
    const bool in_tera = !moves && rate >= kGigaPerTera;
    item.answers.push_back({CostQuestion::limit,
                            fmt::format("{:.1f} {}, {:.0f} % of the best {} of the run",
                                        in_tera ? rate / kGigaPerTera : rate,
                                        moves     ? "GB/s"
                                        : in_tera ? "TFLOP/s"
                                                  : "GFLOP/s",
                                        100 * rate / best, rated_as(calls.front(), moves)),
                            "", false});
    return true;
  }

  // What a unit of work takes, against what it took where it was measured.
  void add_unit_cost(CostItem& item, const std::vector<uint32_t>& calls) {
    const OpKnowledge* known = op_knowledge(item.op);
    if (all_.is_device || known == nullptr || known->unit_ns <= 0) return;
    // Recurrent layers take what their products take: an element costs more the wider they are.
    if (known->cost == OpCost::scan && known->role == OpRole::main) return;
    const double units =
        units_of(known->cost, all_.name(calls.front()), all_.inputs(calls.front()));
    int64_t ns = 0;
    for (const uint32_t at : calls) ns += all_.ns_at(at);
    const double unit_ns = static_cast<double>(ns) / static_cast<double>(calls.size()) / units;
    if (units <= 0 || ns < static_cast<int64_t>(calls.size()) * kUnevenNs) return;
    std::string text = fmt::format(
        "{:.2g} ns for each {}; {:.2g} where it was measured (float32, one core of an AMD EPYC)",
        unit_ns, op_cost_unit(known->cost), known->unit_ns);
    if (unit_ns >= kSlowTimes * known->unit_ns)
      text += fmt::format(": {:.0f} times as long, which values, strides or dtype may explain",
                          unit_ns / known->unit_ns);
    item.answers.push_back({CostQuestion::limit, std::move(text), "", false});
  }

  const CountedOps& all_;
  const Places& places_;
  const HostTime* host_;
  double best_gflops_ = 0;
  double best_gb_per_s_ = 0;
  double best_cached_gb_per_s_ = 0;
  mutable ByNameOnce<const OpKnowledge*> rows_{all_.trace};
  std::unordered_map<uint64_t, double> work_;  // by name and inputs
};

}  // namespace

namespace {

// Where the calls stand that are mostly their dispatch, if there are many.
void place_calls(const CountedOps& all, const Places& places, Method& out) {
  if (all.is_device) return;
  std::vector<uint32_t> calls;
  for (size_t at = 0; at < all.ops.size(); ++at)
    if (all.ns_at(at) < kSmallCallNs) calls.push_back(static_cast<uint32_t>(at));
  if (static_cast<double>(calls.size()) * static_cast<double>(kDispatchNsPerOp) <
      kManyCallsShare * static_cast<double>(all.wall_ns))
    return;
  out.calls_place = places.of(calls);
  std::unordered_map<StringId, int64_t> by_root;
  uint32_t root = kNone;
  for (size_t at = 0; at < all.ops.size(); ++at) {
    if (all.is_root(at)) root = all.ops[at];
    if (root != kNone && !all.is_root(at)) ++by_root[all.trace.events[root].name];
  }
  for (const auto& [name, count] : by_root) {
    out.callers.emplace_back(node_name(all.trace.strings[name]), count);
  }
  std::sort(out.callers.begin(), out.callers.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (out.callers.size() > kCallersShown) out.callers.resize(kCallersShown);
}

}  // namespace

std::string_view cost_question_name(CostQuestion question) {
  return kQuestionNames[static_cast<size_t>(question)];
}

Method method(const Trace& trace, const Links& links, std::vector<uint32_t> main_ops,
              int64_t wall_ns, const HostTime* host) {
  const CountedOps all(trace, links, std::move(main_ops), wall_ns);
  const Places places(all);
  Method out = {.is_device = all.is_device, .wall_ns = wall_ns, .has_backward = all.has_backward};
  Items(all, places, host).run(out);
  out.loops = find_loops(all, places);
  out.repeats = find_repeats(all, places);
  out.wastes = find_wastes(all, places);
  place_calls(all, places, out);
  return out;
}

namespace {

std::string_view gap_cause_text(IdleCause cause) {
  switch (cause) {
    case IdleCause::queue: return "work was launched and waited";
    case IdleCause::launch: return "the host launched";
    case IdleCause::sync: return "the host waited for the device";
    case IdleCause::data: return "the host loaded data";
    case IdleCause::profiler: return "the profiler did its own work";
    case IdleCause::host_in_ops: return "the host was in ops";
    case IdleCause::host_between_ops: return "the host was between ops";
    case IdleCause::other: break;
  }
  return "the trace does not say why";
}

// The longest op that is mostly called from the module.
std::string main_op_of(const Method& method, const ModuleTime& module) {
  for (const CostItem& item : method.items)
    if (item.place.module == module.name) return "most time in " + item.op;
  return "";
}

}  // namespace

std::vector<CostSpot> cost_spots(const Method& method, const HostTime* host,
                                 std::span<const ModuleTime> modules,
                                 std::span<const IdleGap> gaps) {
  constexpr size_t kMostSpots = 20;
  constexpr std::string_view kOutside = "outside of ops: Python, or code that is not traced";
  std::vector<CostSpot> spots;
  for (const ModuleTime& m : modules)
    spots.push_back({CostSpot::Kind::module, m.path, m.count,
                     method.is_device ? m.self_device_ns : m.self_cpu_ns, main_op_of(method, m)});
  for (const IdleGap& gap : gaps)
    spots.push_back({CostSpot::Kind::gap,
                     !gap.annotation.empty() ? gap.annotation
                     : !gap.function.empty() ? gap.function
                     : !gap.op.empty()       ? gap.op
                                             : gap.call,
                     1, gap.dur_ns, std::string(gap_cause_text(gap.cause))});
  if (host != nullptr) {
    for (const HostRange& r : host->ranges)
      spots.push_back({CostSpot::Kind::range, r.name, r.count, r.self_ns, std::string(kOutside)});
    for (const HostFunction& f : host->functions)
      spots.push_back(
          {CostSpot::Kind::function, f.name, f.count, f.self_ns, std::string(kOutside)});
  }
  std::erase_if(spots, [&](const CostSpot& s) {
    return static_cast<double>(s.ns) < kNotableItem * static_cast<double>(method.wall_ns);
  });
  std::stable_sort(spots.begin(), spots.end(),
                   [](const CostSpot& a, const CostSpot& b) { return a.ns > b.ns; });
  if (spots.size() > kMostSpots) spots.resize(kMostSpots);
  return spots;
}

std::string_view cost_spot_name(CostSpot::Kind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"module", "range", "function", "gap"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace epilogue::trace
