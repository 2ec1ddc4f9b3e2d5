// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/fusion_groups.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "base/units.h"
#include "epilogue/trace/fusion.h"
#include "explain/fusion/work_ops.h"
#include "explain/index/op_tree.h"

namespace epilogue::trace {
namespace {

// Chains of simple ops that stand for one op of PyTorch: norms, activations and rotary embeddings
// that were written by hand.

struct ChainMatch {
  PatternKind kind = PatternKind::rms_norm;
  uint32_t first = 0;  // positions in WorkOps::ops, both included
  uint32_t last = 0;
  uint32_t stays = 0;  // what one kernel takes is about this op's time
};

// The chain whose middle (rsqrt, tanh, cat) is the op at `at`.
std::optional<ChainMatch> match_chain(const Trace& trace, const WorkOps& work, uint32_t at);

// Walks over the ops of one thread and region, forward or back from one of them.
class Walk {
 public:
  Walk(const Trace& trace, const WorkOps& work, uint32_t at)
      : trace_(trace), work_(work), first_(at), last_(at), from_(at) {}

  // Each of them takes the next op if it has one of these names, in place or not.
  bool back(std::initializer_list<std::string_view> names) {
    if (first_ == 0 || !is_one_of(first_ - 1, names)) return false;
    --first_;
    return true;
  }
  bool on(std::initializer_list<std::string_view> names) {
    if (last_ + 1 >= work_.ops.size() || !is_one_of(last_ + 1, names)) return false;
    ++last_;
    return true;
  }

  // The op in the middle has one number per row of what the op after it gives. True if shapes were
  // not recorded.
  bool is_by_rows() const {
    const WorkOp& numbers = work_.ops[from_];
    const WorkOp& rows = work_.ops[last_];
    if (numbers.inputs.empty() || !rows.output || rows.output->dims.empty())
      return !work_.has_shapes;
    return numbers.inputs[0].numel() * rows.output->dims.back() == rows.output->numel();
  }

  ChainMatch match(PatternKind kind) const { return {kind, first_, last_, longest()}; }
  uint32_t last() const { return last_; }

 private:
  std::string_view base_name(uint32_t i) const {
    std::string_view name = trace_.name(trace_.events[work_.ops[i].event]);
    if (name.starts_with("aten::")) name.remove_prefix(6);
    if (name.ends_with('_') && name.size() > 1) name.remove_suffix(1);
    return name;
  }
  bool is_one_of(uint32_t i, std::initializer_list<std::string_view> names) const {
    const Event& a = trace_.events[work_.ops[i].event];
    const Event& b = trace_.events[work_.ops[from_].event];
    if (a.pid != b.pid || a.tid != b.tid || work_.ops[i].region != work_.ops[from_].region)
      return false;
    return std::find(names.begin(), names.end(), base_name(i)) != names.end();
  }
  uint32_t longest() const {
    uint32_t best = first_;
    for (uint32_t i = first_; i <= last_; ++i)
      if (work_.ops[i].device_ns > work_.ops[best].device_ns) best = i;
    return best;
  }

  const Trace& trace_;
  const WorkOps& work_;
  uint32_t first_;
  uint32_t last_;
  uint32_t from_;
};

// x * rsqrt(mean(x^2) + eps) * w. On CPUs mean is a sum and a division. With a difference before
// the square it is a layer norm.
std::optional<ChainMatch> match_norm(Walk walk, bool is_rsqrt) {
  if (!walk.back({"add", "clamp_min"})) return std::nullopt;
  if (!walk.back({"mean"}) && !(walk.back({"div"}) && walk.back({"sum"}))) return std::nullopt;
  if (!walk.back({"pow", "mul", "square"})) return std::nullopt;
  const bool has_difference = walk.back({"sub"});
  if (!has_difference) walk.back({"copy"});  // the cast to f32
  if (is_rsqrt ? !walk.on({"mul"}) : !walk.on({"div"})) return std::nullopt;
  if (!walk.is_by_rows()) return std::nullopt;  // over channels, or a batch
  walk.on({"copy"});                            // and back
  if (walk.on({"mul"}) && has_difference) walk.on({"add"});
  return walk.match(has_difference ? PatternKind::layer_norm : PatternKind::rms_norm);
}

// 0.5 x (1 + tanh(c (x + 0.044715 x^3)))
std::optional<ChainMatch> match_gelu(Walk walk) {
  if (!walk.back({"mul"}) || !walk.back({"add"}) || !walk.back({"mul"}) || !walk.back({"pow"}))
    return std::nullopt;
  const bool is_halved_first = walk.back({"mul"});
  if (!walk.on({"add"}) || !walk.on({"mul"})) return std::nullopt;
  if (!is_halved_first) walk.on({"mul"});
  return walk.match(PatternKind::gelu);
}

// x cos + cat(-x2, x1) sin. One kernel reads x and writes the result: as the last addition does.
std::optional<ChainMatch> match_rotary(Walk walk) {
  if (!walk.back({"neg"}) || !walk.back({"mul"})) return std::nullopt;
  if (!walk.on({"mul"}) || !walk.on({"add"})) return std::nullopt;
  ChainMatch match = walk.match(PatternKind::rotary);
  match.stays = walk.last();
  return match;
}

std::optional<ChainMatch> match_chain(const Trace& trace, const WorkOps& work, uint32_t at) {
  const std::string_view name = trace.name(trace.events[work.ops[at].event]);
  const Walk walk(trace, work, at);
  if (name == "aten::rsqrt" || name == "aten::rsqrt_") return match_norm(walk, true);
  if (name == "aten::sqrt" || name == "aten::sqrt_") return match_norm(walk, false);
  if (name == "aten::tanh" || name == "aten::tanh_") return match_gelu(walk);
  if (name == "aten::cat") return match_rotary(walk);
  return std::nullopt;
}

// Scale, mask and dropout stand between the products and the softmax.
constexpr uint32_t kMostBetween = 6;
// An Adam step of pointwise ops reads and writes a tensor 21 times (mul_ 2, lerp_ 3, mul_ 2,
// addcmul_ 4, sqrt 2, div 2, add_ 2, addcdiv_ 4), one kernel 7 times.
constexpr double kFusedAdamShare = 7.0 / 21;
// SGD with momentum: mul_ 2, add_ 3, add_ 3; one kernel 5.
constexpr double kFusedSgdShare = 5.0 / 8;

constexpr int64_t kLeastOpsOfStep = 3;  // SGD with momentum: mul_, add_, add_
constexpr std::string_view kForeachMark = "aten::_foreach_";
constexpr uint32_t kLeastForeachOps = 4;  // Adam's step has more, whatever its options are
constexpr std::string_view kStepMark = "Optimizer.step#";

class Patterns {
 public:
  Patterns(const Trace& trace, WorkOps& work) : trace_(trace), work_(work) {}

  std::vector<Pattern> run() {
    find_optimizers();
    find_foreach_optimizers();
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (is_softmax(i)) find_attention(i);
      if (const std::optional<ChainMatch> match = match_chain(trace_, work_, i)) add_chain(*match);
    }
    std::vector<Pattern> list;
    for (auto& [name, pattern] : found_) {
      // A step of fewer is one kernel already, or nearly so.
      const bool is_short = pattern.ops < kLeastOpsOfStep * pattern.count;
      if (pattern.kind != PatternKind::optimizer || !is_short) list.push_back(std::move(pattern));
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Pattern& a, const Pattern& b) { return a.saving_us > b.saving_us; });
    return list;
  }

 private:
  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[work_.ops[i].event]); }
  bool is_softmax(uint32_t i) const {
    return name(i) == "aten::_softmax" || name(i) == "aten::softmax";
  }
  // A product of two activations: of batches.
  bool is_batched_product(uint32_t i) const {
    return name(i) == "aten::bmm" || name(i) == "aten::baddbmm";
  }
  bool is_one_track(uint32_t a, uint32_t b) const {
    const Event& x = trace_.events[work_.ops[a].event];
    const Event& y = trace_.events[work_.ops[b].event];
    return x.pid == y.pid && x.tid == y.tid && work_.ops[a].region == work_.ops[b].region;
  }
  // `share` of its time is saved.
  void add_saving(Pattern& pattern, uint32_t i, double share = 1) const {
    pattern.saving_us += share * time_us(i);
    pattern.op_us[std::string(name(i))] += time_us(i);
  }
  double time_us(uint32_t i) const {
    return static_cast<double>(work_.ops[i].device_ns) / kNsPerUs;
  }

  // From the softmax at `at` to the nearest batched product, over elementwise ops alone.
  uint32_t product_near(uint32_t at, bool is_forward) const {
    for (uint32_t step = 1; step <= kMostBetween; ++step) {
      if (!is_forward && step > at) return kNone;
      const uint32_t i = is_forward ? at + step : at - step;
      if (i >= work_.ops.size() || !is_one_track(at, i)) return kNone;
      if (is_batched_product(i)) return i;
      if (!is_elementwise(work_.ops[i].op_class)) return kNone;
    }
    return kNone;
  }

  void find_attention(uint32_t softmax) {
    const uint32_t first = product_near(softmax, false);
    const uint32_t last = product_near(softmax, true);
    if (first == kNone || last == kNone) return;
    std::string text;
    double time = 0;
    std::vector<uint32_t> between;
    const bool is_on_host = !work_.has_device_work;
    for (uint32_t i = first; i <= last; ++i) {
      text += (text.empty() ? "" : " + ") + std::string(name(i));
      time += time_us(i);
      const bool stays = is_batched_product(i) || (is_on_host && i == softmax);
      if (!stays) between.push_back(i);
      if (!is_batched_product(i)) work_.ops[i].is_in_pattern = true;
    }
    Pattern& pattern = found_[text];
    pattern.kind = PatternKind::attention;
    pattern.name = text;
    ++pattern.count;
    pattern.ops += last - first + 1;
    pattern.time_us += time;
    // The scores never reach memory. The products stay, and on a CPU the exponentials: a softmax
    // whose rows lie in the cache computes most of its time.
    for (const uint32_t i : between) add_saving(pattern, i);
  }

  void add_chain(const ChainMatch& match) {
    Pattern& pattern = found_[std::to_string(static_cast<int>(match.kind))];
    pattern.kind = match.kind;
    std::string text;
    for (uint32_t i = match.first; i <= match.last; ++i) {
      text += (text.empty() ? "" : " + ") + std::string(name(i));
      pattern.time_us += time_us(i);
      work_.ops[i].is_in_pattern = true;
    }
    if (pattern.count == 0) pattern.name = text;
    ++pattern.count;
    pattern.ops += match.last - match.first + 1;
    for (uint32_t i = match.first; i <= match.last; ++i)
      if (i != match.stays) add_saving(pattern, i);
  }

  void find_optimizers() {
    std::vector<uint32_t> steps;
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const Event& e = trace_.events[i];
      // In traces of 2021 annotations are ops.
      if ((e.category == Category::user_annotation || e.category == Category::cpu_op) &&
          trace_.name(e).starts_with(kStepMark))
        steps.push_back(i);
    }
    if (steps.empty()) return;
    std::vector<Moment> moments;
    for (const WorkOp& op : work_.ops) {
      const Event& e = trace_.events[op.event];
      moments.push_back({e.pid, e.tid, e.ts_ns});
    }
    const std::vector<uint32_t> around = innermost_at(trace_, steps, moments);
    std::map<uint32_t, std::vector<uint32_t>> ops_of;  // by step
    for (uint32_t i = 0; i < work_.ops.size(); ++i)
      if (around[i] != kNone) ops_of[around[i]].push_back(i);
    for (const auto& [step, ops] : ops_of) add_optimizer(step, ops);
  }

  // The name of the list op around a work op; "" if there is none.
  std::string_view foreach_name(uint32_t i) const {
    const std::string_view own = name(i);
    return own.starts_with(kForeachMark) ? own : std::string_view();
  }

  // Steps outside of an annotation: runs of list ops of which one is Adam's division.
  void find_foreach_optimizers() {
    for (uint32_t i = 0; i < work_.ops.size();) {
      uint32_t end = i;
      bool is_adam = false;
      while (end < work_.ops.size() && is_one_track(i, end) && !foreach_name(end).empty() &&
             !work_.ops[end].is_in_pattern)
        is_adam |= foreach_name(end++).find("addcdiv") != std::string_view::npos;
      if (is_adam && end - i >= kLeastForeachOps) add_foreach_step(i, end);
      i = std::max(end, i + 1);
    }
  }

  void add_foreach_step(uint32_t begin, uint32_t end) {
    Pattern& pattern = found_["Optimizer foreach"];
    pattern.kind = PatternKind::optimizer;
    pattern.name = "an optimizer like Adam";
    ++pattern.count;
    const Event& first = trace_.events[work_.ops[begin].event];
    const Event& last = trace_.events[work_.ops[end - 1].event];
    pattern.host_us += static_cast<double>(last.end_ns() - first.ts_ns) / kNsPerUs;
    for (uint32_t i = begin; i < end; ++i) {
      ++pattern.ops;
      pattern.time_us += time_us(i);
      add_saving(pattern, i, 1 - kFusedAdamShare);
      work_.ops[i].op_class = OpClass::unknown;
      work_.ops[i].is_in_pattern = true;
    }
  }

  void add_optimizer(uint32_t step, const std::vector<uint32_t>& ops) {
    const bool is_fused = std::any_of(ops.begin(), ops.end(), [&](uint32_t i) {
      return name(i).find("_fused_") != std::string_view::npos;
    });
    // "Optimizer.step#AdamW.step" -> "AdamW"
    std::string_view optimizer = trace_.name(trace_.events[step]).substr(kStepMark.size());
    optimizer = optimizer.substr(0, optimizer.find('.'));
    const bool is_adam = optimizer.starts_with("Adam");
    if (is_fused || (!is_adam && optimizer != "SGD" && optimizer != "Adagrad")) return;
    Pattern& pattern = found_["Optimizer " + std::string(optimizer)];
    pattern.kind = PatternKind::optimizer;
    pattern.name = optimizer;
    ++pattern.count;
    pattern.host_us += static_cast<double>(trace_.events[step].dur_ns) / kNsPerUs;
    for (const uint32_t i : ops) {
      ++pattern.ops;
      pattern.time_us += time_us(i);
      add_saving(pattern, i, 1 - (is_adam ? kFusedAdamShare : kFusedSgdShare));
      work_.ops[i].op_class = OpClass::unknown;
      work_.ops[i].is_in_pattern = true;
    }
  }

  const Trace& trace_;
  WorkOps& work_;
  std::map<std::string, Pattern> found_;
};

}  // namespace

std::vector<Pattern> find_patterns(const Trace& trace, WorkOps& work) {
  return Patterns(trace, work).run();
}

}  // namespace epilogue::trace
