// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/chain_patterns.h"

#include <algorithm>
#include <initializer_list>

namespace epilogue::trace {
namespace {

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

}  // namespace

std::optional<ChainMatch> match_chain(const Trace& trace, const WorkOps& work, uint32_t at) {
  const std::string_view name = trace.name(trace.events[work.ops[at].event]);
  const Walk walk(trace, work, at);
  if (name == "aten::rsqrt" || name == "aten::rsqrt_") return match_norm(walk, true);
  if (name == "aten::sqrt" || name == "aten::sqrt_") return match_norm(walk, false);
  if (name == "aten::tanh" || name == "aten::tanh_") return match_gelu(walk);
  if (name == "aten::cat") return match_rotary(walk);
  return std::nullopt;
}

}  // namespace epilogue::trace
