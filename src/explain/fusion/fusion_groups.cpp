// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/fusion_groups.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace epilogue::trace {
namespace {

bool can_chain(OpClass op) {
  return is_elementwise(op) || op == OpClass::rowwise || op == OpClass::reduction;
}

// No kernel copies between host and device.
bool can_chain(const WorkOp& op, const WorkOps& work) {
  if (op.is_transfer || !can_chain(op.op_class)) return false;
  // A scan is a kernel of its own. On a CPU random numbers take Inductor longer than eager, and so
  // do norms without AVX-512: which instructions the CPU has is not in the trace.
  const bool is_host = !work.is_synchronous && !work.has_device_work;
  if (is_host && (op.fuses == OpFuses::draws || op.fuses == OpFuses::norms)) return false;
  if ((op.fuses == OpFuses::scans || op.fuses == OpFuses::alone) && !work.is_synchronous)
    return false;
  return !work.has_shapes || !op.inputs.empty();
}

bool is_plain_product(const WorkOp& gemm) {
  return gemm.inputs.size() == 2 && gemm.inputs[0].dims.size() == 2;
}

class Grouping {
 public:
  Grouping(const Trace& trace, const WorkOps& work, const Dataflow& flow)
      : trace_(trace), work_(work), flow_(flow) {
    group_of_.resize(work.ops.size());
    std::iota(group_of_.begin(), group_of_.end(), 0U);
  }

  std::vector<FusionGroup> run() {
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_chain(work_.ops[i], work_)) continue;
      if (work_.has_shapes) {
        for (const InputSource& source : flow_.sources[i]) join(source.producer, i);
      } else if (i > 0 && can_chain(work_.ops[i - 1], work_) &&
                 work_.ops[i - 1].region == work_.ops[i].region &&
                 is_elementwise(work_.ops[i].op_class) &&
                 is_elementwise(work_.ops[i - 1].op_class)) {
        group_of_[i] = group_of_[i - 1];
      }
    }
    return collect();
  }

 private:
  void join(uint32_t producer, uint32_t consumer) {
    if (producer == kNone || !can_chain(work_.ops[producer], work_)) return;
    // A tensor that is filled and then read was written in between, through a view.
    if (work_.ops[producer].op_class == OpClass::fill &&
        work_.ops[consumer].op_class != OpClass::fill)
      return;
    if (group_of_[producer] == group_of_[consumer] || is_next_turn(producer, consumer)) return;
    // One kernel cannot run ops with another op between them that needs the first and feeds the
    // second.
    const uint32_t first = std::min(group_of_[producer], group_of_[consumer]);
    if (consumer - first > kDataflowWindow) return;
    const uint32_t into = group_of_[producer];
    const uint32_t from = group_of_[consumer];
    if (is_path_between(flow_, group_of_, producer, consumer)) return;
    rename(from, into);
  }

  // An op of one tensor that another like it follows is a loop over tensors of one shape (copies of
  // parameters, activations of layers, gradients in buckets): nobody applies gelu to gelu's result.
  bool is_next_turn(uint32_t producer, uint32_t consumer) const {
    const WorkOp& a = work_.ops[producer];
    const WorkOp& b = work_.ops[consumer];
    return work_.has_shapes && a.op_class != OpClass::fill && a.name == b.name &&
           tensors_read(a) == 1 && tensors_read(b) == 1 && std::ranges::equal(a.inputs, b.inputs);
  }

  static size_t tensors_read(const WorkOp& op) {
    size_t count = 0;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (reads_input(op, i) && op.inputs[i].numel() > 1) ++count;
    return count;
  }

  // On a CPU torch.compile draws the random numbers that a group reads within the kernel, which
  // takes longer than eager's op: what fusing the rest would save is not known.
  bool reads_draws(const FusionGroup& group) const {
    if (work_.is_synchronous || work_.has_device_work) return false;
    return std::any_of(group.members.begin(), group.members.end(), [&](uint32_t member) {
      return std::any_of(flow_.sources[member].begin(), flow_.sources[member].end(),
                         [&](const InputSource& source) {
                           const uint32_t from =
                               source.producer != kNone ? source.producer : source.maybe;
                           return from != kNone && work_.ops[from].fuses == OpFuses::draws;
                         });
    });
  }

  // Inductor runs a scan and what makes its input as one loop without vectors, in which each
  // function takes many times as long: what the group would gain, the whole loses.
  bool meets_scan(const FusionGroup& group) const {
    if (work_.is_synchronous || work_.has_device_work) return false;
    const auto joins_scan = [&](uint32_t scan) {
      return std::any_of(
          flow_.sources[scan].begin(), flow_.sources[scan].end(), [&](const InputSource& source) {
            return source.producer != kNone && can_chain(work_.ops[source.producer], work_);
          });
    };
    const auto is_scan = [&](uint32_t op) {
      return op != kNone && work_.ops[op].fuses == OpFuses::scans && joins_scan(op);
    };
    return std::any_of(group.members.begin(), group.members.end(), [&](uint32_t member) {
      return std::any_of(flow_.sources[member].begin(), flow_.sources[member].end(),
                         [&](const InputSource& source) {
                           return is_scan(source.producer) || is_scan(source.maybe);
                         }) ||
             std::any_of(flow_.consumers[member].begin(), flow_.consumers[member].end(), is_scan);
    });
  }

  // A group goes by its first member.
  void rename(uint32_t from, uint32_t into) {
    const uint32_t name = std::min(from, into);
    const uint32_t last =
        std::min<uint32_t>(static_cast<uint32_t>(group_of_.size()) - 1, from + 2 * kDataflowWindow);
    for (uint32_t i = name; i <= std::max(last, into); ++i)
      if (group_of_[i] == from || group_of_[i] == into) group_of_[i] = name;
  }

  std::vector<FusionGroup> collect() const {
    std::vector<uint32_t> place(work_.ops.size(), kNone);
    std::vector<FusionGroup> groups;
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_chain(work_.ops[i], work_)) continue;
      uint32_t& at = place[group_of_[i]];
      if (at == kNone) {
        at = static_cast<uint32_t>(groups.size());
        groups.emplace_back();
      }
      groups[at].members.push_back(i);
    }
    groups = split_loops(std::move(groups));
    std::erase_if(
        groups, [&](const FusionGroup& group) { return reads_draws(group) || meets_scan(group); });
    for (FusionGroup& group : groups) add_products(group);
    std::erase_if(groups,
                  [](const FusionGroup& g) { return g.members.size() < 2 && g.products.empty(); });
    return groups;
  }

  // Two or more ops that repeat three times or more are a loop over tensors of one shape: what the
  // first op of a turn reads looks like what the turn before wrote. Each turn is a group.
  std::vector<FusionGroup> split_loops(std::vector<FusionGroup> groups) const {
    std::vector<FusionGroup> list;
    for (FusionGroup& group : groups) {
      if (is_over_many_tensors(group.members)) continue;
      const size_t turn = period(group.members);
      for (size_t i = 0; turn > 0 && i < group.members.size(); i += turn) {
        const auto begin = group.members.begin() + static_cast<ptrdiff_t>(i);
        const auto end = group.members.begin() +
                         static_cast<ptrdiff_t>(std::min(i + turn, group.members.size()));
        list.push_back({{begin, end}, {}});
      }
      if (turn == 0) list.push_back(std::move(group));
    }
    return list;
  }

  // One op in place, again and again: a loop over tensors (gradients, statistics), in which nothing
  // reads what the one before wrote.
  bool is_over_many_tensors(const std::vector<uint32_t>& members) const {
    const bool is_pointwise = work_.ops[members.front()].op_class == OpClass::pointwise;
    if (members.size() < (work_.has_shapes ? 2 : 3)) return false;
    if (work_.has_shapes && !is_pointwise) return false;
    const StringId name = work_.ops[members.front()].name;
    return is_in_place(trace_.strings[name]) &&
           std::all_of(members.begin(), members.end(),
                       [&](uint32_t i) { return work_.ops[i].name == name; });
  }

  // Members of one turn; 0: the ops do not repeat, or are all the same.
  size_t period(const std::vector<uint32_t>& members) const {
    const auto repeats = [&](size_t turn) {
      for (size_t i = turn; i < members.size(); ++i)
        if (work_.ops[members[i]].name != work_.ops[members[i - turn]].name) return false;
      return true;
    };
    if (repeats(1)) return 0;
    for (size_t turn = 2; 3 * turn <= members.size(); ++turn)
      if (repeats(turn)) return turn;
    return 0;
  }

  void add_products(FusionGroup& group) const {
    if (!work_.has_shapes) return;
    for (const uint32_t member : group.members)
      for (const InputSource& source : flow_.sources[member]) {
        const uint32_t p = source.producer;
        if (p != kNone && work_.ops[p].op_class == OpClass::gemm &&
            !flow_.may_be_read_outside(p, group.members) &&
            work_.ops[member].op_class != OpClass::reduction)
          group.products.push_back(p);
      }
  }

  const Trace& trace_;
  const WorkOps& work_;
  const Dataflow& flow_;
  std::vector<uint32_t> group_of_;
};

}  // namespace

std::vector<FusionGroup> chain_groups(const Trace& trace, const WorkOps& work,
                                      const Dataflow& flow) {
  return Grouping(trace, work, flow).run();
}

size_t left_operand(const Trace& trace, const WorkOp& gemm) {
  const std::string_view name = trace.name(trace.events[gemm.event]);
  const bool has_bias = name.find("addmm") != std::string_view::npos ||
                        name.find("baddbmm") != std::string_view::npos;
  return has_bias ? 1 : 0;
}

std::vector<std::vector<uint32_t>> mergeable_gemms(const Trace& trace, const WorkOps& work,
                                                   const Dataflow& flow) {
  std::vector<std::vector<uint32_t>> merged;
  std::vector<uint32_t> own_group(work.ops.size());
  std::iota(own_group.begin(), own_group.end(), 0U);
  const auto reads_same = [&](uint32_t a, uint32_t b) {
    const WorkOp& x = work.ops[a];
    const WorkOp& y = work.ops[b];
    const size_t i = left_operand(trace, x);
    const size_t j = left_operand(trace, y);
    if (i + 1 >= x.inputs.size() || j + 1 >= y.inputs.size()) return false;
    if (!(x.inputs[i] == y.inputs[j]) || x.inputs[i + 1].dims != y.inputs[j + 1].dims) return false;
    const InputSource& of_x = flow.sources[a][i];
    const InputSource& of_y = flow.sources[b][j];
    const uint32_t known = of_x.producer != kNone ? of_x.producer : of_x.maybe;
    return of_y.producer == kNone && of_y.maybe == known;
  };
  // Between the two only ops whose outputs are known, so that a hidden path cannot be missed.
  const auto is_clear = [&](uint32_t a, uint32_t b) {
    for (uint32_t i = a + 1; i < b; ++i)
      if (!work.ops[i].output) return false;
    return !is_path_between(flow, own_group, a, b);
  };
  std::vector<bool> taken(work.ops.size());
  for (uint32_t i = 0; i < work.ops.size(); ++i) {
    if (work.ops[i].op_class != OpClass::gemm || taken[i]) continue;
    std::vector<uint32_t> set = {i};
    const auto end = static_cast<uint32_t>(std::min<size_t>(work.ops.size(), i + kDataflowWindow));
    for (uint32_t j = i + 1; j < end && work.ops[j].region == work.ops[i].region; ++j)
      if (work.ops[j].op_class == OpClass::gemm && !taken[j] && reads_same(i, j) && is_clear(i, j))
        set.push_back(j);
    if (set.size() < 2) continue;
    for (const uint32_t gemm : set) taken[gemm] = true;
    merged.push_back(std::move(set));
  }
  return merged;
}

std::optional<GroupBytes> group_bytes(const FusionGroup& group, const WorkOps& work,
                                      const Dataflow& flow) {
  GroupBytes sum;
  std::unordered_set<uint32_t> read_before;
  const auto contains = [](const std::vector<uint32_t>& list, uint32_t op) {
    return std::find(list.begin(), list.end(), op) != list.end();
  };
  for (const uint32_t member : group.members) {
    const WorkOp& op = work.ops[member];
    if (!op.output || op.inputs.empty()) return std::nullopt;
    const std::optional<int64_t> written = op.output->bytes();
    if (!written) return std::nullopt;
    sum.now += static_cast<double>(*written);
    sum.reads_plain_product.push_back(false);
    double saved = 0;
    const auto& readers = flow.consumers[member];
    const bool stays = !flow.may_be_read_outside(member, group.members) && !readers.empty() &&
                       std::all_of(readers.begin(), readers.end(), [&](uint32_t reader) {
                         return contains(group.members, reader);
                       });
    (stays ? saved : sum.after) += static_cast<double>(*written);
    if (!stays) sum.written_after += static_cast<double>(*written);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!reads_input(op, i)) continue;
      const std::optional<int64_t> read = op.inputs[i].bytes();
      if (!read) return std::nullopt;
      sum.now += static_cast<double>(*read);
      const uint32_t producer = flow.sources[member][i].producer;
      if (producer != kNone && work.ops[producer].op_class == OpClass::gemm &&
          !flow.may_be_read_outside(producer, group.members)) {
        sum.reusable = std::max(sum.reusable, static_cast<double>(*read));
        if (is_plain_product(work.ops[producer])) sum.reads_plain_product.back() = true;
      }
      // An output that several members read comes from memory once.
      const uint32_t source = producer != kNone ? producer : flow.sources[member][i].maybe;
      if (source != kNone &&
          (contains(group.members, source) || !read_before.insert(source).second)) {
        saved += static_cast<double>(*read);
        continue;
      }
      sum.after += static_cast<double>(*read);
      if (producer == kNone || !contains(group.products, producer)) continue;
      sum.from_products += static_cast<double>(*read);
      sum.from_one_product = std::max(sum.from_one_product, static_cast<double>(*read));
    }
    sum.saved.push_back(saved);
  }
  return sum;
}

}  // namespace epilogue::trace
