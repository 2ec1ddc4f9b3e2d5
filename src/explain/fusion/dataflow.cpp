// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/dataflow.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace epilogue::trace {
namespace {

bool may_be_one_type(std::string_view a, std::string_view b) {
  return a.empty() || b.empty() || a == b;
}

bool same_tensor(const TensorShape& output, const TensorShape& input) {
  if (input.numel() < 2 || output.numel() != input.numel()) return false;
  if (input.repeats > 1) return false;  // what an op gives out is in memory as it is
  if (output.dims == input.dims) return may_be_one_type(output.type, input.type);
  const bool ranked = !output.dims.empty() && !input.dims.empty();
  return ranked && output.type == input.type && output.dims.back() == input.dims.back();
}

// Number of elements and dtype, sorted: an op on lists may take thousands of tensors.
using Sizes = std::vector<std::pair<int64_t, std::string_view>>;

Sizes input_sizes(const WorkOp& op) {
  Sizes sizes;
  for (const TensorShape& t : op.inputs) sizes.emplace_back(t.numel(), t.type);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

class Inference {
 public:
  Inference(const Trace& trace, const WorkOps& work) : trace_(trace), work_(work) {
    const size_t n = work.ops.size();
    flow_.sources.resize(n);
    flow_.consumers.resize(n);
    flow_.possible_readers.resize(n);
    is_dead_.resize(n);
    for (const WorkOp& op : work.ops) may_write_.push_back(op.output ? Sizes() : input_sizes(op));
  }

  Dataflow run() {
    uint32_t begin = 0;  // of the thread and step
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!same_track(begin, i)) begin = i;
      const uint32_t first = i - begin > kDataflowWindow ? i - kDataflowWindow : begin;
      const WorkOp& op = work_.ops[i];
      for (size_t k = 0; k < op.inputs.size(); ++k)
        flow_.sources[i].push_back(reads_input(op, k) ? source(op.inputs[k], first, i)
                                                      : InputSource{});
      if (flow_.sources[i].empty()) continue;
      const uint32_t producer = flow_.sources[i].front().producer;
      if (producer != kNone &&
          (is_in_place(trace_.strings[work_.ops[i].name]) || sums_squares(i, producer)))
        is_dead_[producer] = true;
    }
    return std::move(flow_);
  }

 private:
  bool same_track(uint32_t a, uint32_t b) const {
    const WorkOp& x = work_.ops[a];
    const WorkOp& y = work_.ops[b];
    return x.region == y.region && trace_.events[x.event].tid == trace_.events[y.event].tid &&
           trace_.events[x.event].pid == trace_.events[y.event].pid;
  }

  // Norms: x * rsqrt(mean(x^2)) reads x again, not its squares.
  bool sums_squares(uint32_t op, uint32_t producer) const {
    const std::string_view name = trace_.strings[work_.ops[producer].name];
    return work_.ops[op].op_class == OpClass::reduction &&
           (name == "aten::pow" || name == "aten::square");
  }

  // The tensor may be the output of `op`.
  bool fits(uint32_t op, const TensorShape& input) const {
    const TensorShape* output = work_.ops[op].output;
    return output != nullptr && !is_dead_[op] && same_tensor(*output, input);
  }

  bool may_write(uint32_t op, const TensorShape& input) const {
    const int64_t numel = input.numel();
    if (numel < 2) return false;
    const Sizes& sizes = may_write_[op];
    auto at = std::lower_bound(sizes.begin(), sizes.end(), std::pair(numel, std::string_view()));
    for (; at != sizes.end() && at->first == numel; ++at)
      if (may_be_one_type(at->second, input.type)) return true;
    return false;
  }

  bool is_read_by(uint32_t producer, uint32_t consumer) const {
    const auto& readers = flow_.consumers[producer];
    return std::find(readers.begin(), readers.end(), consumer) != readers.end();
  }

  static void add_possible_reader(PossibleReaders& readers, uint32_t op) {
    if (readers.count < PossibleReaders::kKept) readers.ops[readers.count] = op;
    ++readers.count;
  }

  InputSource source(const TensorShape& input, uint32_t first, uint32_t consumer) {
    InputSource found;
    for (uint32_t p = consumer; p-- > first;) {
      if (may_write(p, input)) {
        if (found.maybe == kNone) found.maybe = p;
        break;
      }
      if (!fits(p, input) || is_read_by(p, consumer)) continue;
      if (flow_.consumers[p].empty()) {
        flow_.consumers[p].push_back(consumer);
        return {p, kNone};
      }
      if (found.maybe == kNone) found.maybe = p;
    }
    // Any of those that fit may be the one: all but the latest would be a guess too, so none of
    // their outputs is taken for dead.
    for (uint32_t p = consumer; p-- > first;)
      if (fits(p, input)) add_possible_reader(flow_.possible_readers[p], consumer);
    return found;
  }

  const Trace& trace_;
  const WorkOps& work_;
  Dataflow flow_;
  // By op. The output of an unknown op is taken to be like its inputs:
  // collectives and fused norms write in place, convolutions and attention keep the size.
  std::vector<Sizes> may_write_;
  std::vector<bool> is_dead_;  // its output: overwritten in place, or a square whose sum is known
};

}  // namespace

bool Dataflow::may_be_read_outside(uint32_t op, const std::vector<uint32_t>& group) const {
  const PossibleReaders& readers = possible_readers[op];
  if (readers.count > PossibleReaders::kKept) return true;
  return std::any_of(readers.ops.begin(), readers.ops.begin() + readers.count, [&](uint32_t r) {
    return std::find(group.begin(), group.end(), r) == group.end();
  });
}

bool reads_input(const WorkOp& op, size_t input) {
  return input > 0 || (op.op_class != OpClass::copy && op.op_class != OpClass::fill);
}

Dataflow infer_dataflow(const Trace& trace, const WorkOps& work) {
  return Inference(trace, work).run();
}

bool is_path_between(const Dataflow& flow, const std::vector<uint32_t>& group_of, uint32_t first,
                     uint32_t last) {
  const uint32_t group = group_of[first];
  std::vector<bool> tainted(last - first + 1);  // outside the group, fed by it
  const auto is_fed = [&](uint32_t op, bool directly) {
    return std::any_of(flow.sources[op].begin(), flow.sources[op].end(),
                       [&](const InputSource& source) {
                         for (const uint32_t p : {source.producer, source.maybe}) {
                           if (p == kNone || p < first || p >= op) continue;
                           if (tainted[p - first] || (directly && group_of[p] == group))
                             return true;
                         }
                         return false;
                       });
  };
  for (uint32_t op = first + 1; op < last; ++op)
    if (group_of[op] != group) tainted[op - first] = is_fed(op, true);
  return is_fed(last, false);
}

}  // namespace epilogue::trace
