// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/row_chain_groups.h"

#include <algorithm>
#include <numeric>

#include "explain/fusion/fusion_groups.h"
#include "explain/kernel_name/text.h"

namespace epilogue::trace {
namespace {

class RowChainGrouping {
 public:
  RowChainGrouping(const Trace& trace, const WorkOps& work, const Dataflow& flow)
      : trace_(trace), work_(work), flow_(flow), group_of_(work.ops.size()) {
    std::iota(group_of_.begin(), group_of_.end(), 0U);
  }

  std::vector<RowChainGroup> run() {
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_join(i)) continue;
      for (size_t k = 0; k < flow_.sources[i].size(); ++k) {
        const uint32_t p = flow_.sources[i][k].producer;
        if (p != kNone && can_join(p)) unite(p, i);
      }
    }
    return collect();
  }

 private:
  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[work_.ops[i].event]); }

  // A product of two results (attention's) has no weight to prepare.
  bool has_weight(uint32_t i) const {
    const WorkOp& op = work_.ops[i];
    const size_t right = left_operand(trace_, op) + 1;
    return op.inputs.size() > right && op.inputs[right].dims.size() == 2 &&
           flow_.sources[i][right].producer == kNone;
  }

  bool can_join(uint32_t i) const {
    const WorkOp& op = work_.ops[i];
    const OpArgs* args = trace_.op_args(trace_.events[op.event]);
    if (args == nullptr || args->sequence_number >= 0 || op.inputs.empty() || !op.output)
      return false;
    switch (op.op_class) {
      case OpClass::pointwise: return true;
      case OpClass::rowwise: return contains(name(i), "norm");
      case OpClass::gemm: return has_weight(i);
      default: return false;
    }
  }

  uint32_t root(uint32_t i) {
    while (group_of_[i] != i) i = group_of_[i] = group_of_[group_of_[i]];
    return i;
  }
  void unite(uint32_t a, uint32_t b) {
    const uint32_t x = root(a);
    const uint32_t y = root(b);
    group_of_[std::max(x, y)] = std::min(x, y);
  }

  std::vector<RowChainGroup> collect() {
    std::vector<uint32_t> place(work_.ops.size(), kNone);
    std::vector<RowChainGroup> groups;
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_join(i)) continue;
      uint32_t& at = place[root(i)];
      if (at == kNone) {
        at = static_cast<uint32_t>(groups.size());
        groups.emplace_back();
      }
      groups[at].members.push_back(i);
    }
    std::erase_if(groups, [&](RowChainGroup& group) { return !describe(group); });
    return groups;
  }

  // Fills in the work; false where it is no chain of products or its sizes are not known.
  bool describe(RowChainGroup& group) const {
    ChainWork& sum = group.work;
    for (const uint32_t i : group.members) {
      const WorkOp& op = work_.ops[i];
      if (op.op_class != OpClass::gemm) continue;
      const size_t left = left_operand(trace_, op);
      const TensorShape& weight = op.inputs[left + 1];
      const std::string_view type = element_type(op.inputs[left].type);
      const std::optional<int64_t> bytes = weight.bytes();
      const int64_t k = weight.dims[0];
      if (type.empty() || !bytes || k <= 0) return false;
      const int64_t row_count = op.inputs[left].numel() / k;
      const auto rows = static_cast<double>(row_count);
      if (sum.rows == 0) {
        sum.type = type;
        sum.rows = rows;
        sum.bytes += static_cast<double>(op.inputs[left].bytes().value_or(0));
      }
      if (sum.type != type || sum.rows != rows) return false;
      sum.flops += 2 * rows * static_cast<double>(weight.numel());
      sum.elements += rows * static_cast<double>(weight.dims[1]);
      sum.bytes += static_cast<double>(*bytes);
    }
    if (sum.flops == 0) return false;
    sum.bytes += static_cast<double>(work_.ops[group.members.back()].output->bytes().value_or(0));
    return true;
  }

  const Trace& trace_;
  const WorkOps& work_;
  const Dataflow& flow_;
  std::vector<uint32_t> group_of_;
};

}  // namespace

std::vector<RowChainGroup> row_chain_groups(const Trace& trace, const WorkOps& work,
                                            const Dataflow& flow) {
  return RowChainGrouping(trace, work, flow).run();
}

}  // namespace epilogue::trace
