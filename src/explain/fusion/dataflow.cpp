// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/dataflow.h"

#include <algorithm>
#include <array>
#include <span>
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

// Ops that give a number or nothing.
bool gives_no_tensor(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "aten::item",     "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
      "aten::allclose", "aten::record_stream"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
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
    first_part_.resize(n + 2, static_cast<uint32_t>(work.parts.size()));
    for (auto i = static_cast<uint32_t>(work.parts.size()); i-- > 0;)
      first_part_[work.parts[i].before] = i;
    for (size_t i = n + 1; i-- > 0;) first_part_[i] = std::min(first_part_[i], first_part_[i + 1]);
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

  // Of the views right before an op, those that show a part that may be the tensor.
  size_t parts_like(uint32_t before, const TensorShape& input) const {
    size_t count = 0;
    for (const PartView& view : parts_before(before))
      if (view.part == input.numel() && may_be_one_type(view.type, input.type)) ++count;
    return count;
  }

  std::span<const PartView> parts_before(uint32_t op) const {
    return std::span(work_.parts).subspan(first_part_[op], first_part_[op + 1] - first_part_[op]);
  }

  // The op, whose output does not fit or is not known, may have made the tensor all the same.
  bool may_make(uint32_t op, const TensorShape& input) const {
    const WorkOp& by = work_.ops[op];
    const int64_t numel = input.numel();
    if (is_dead_[op] || numel < 2) return false;
    if (by.output != nullptr)  // seen through a view that transposes it
      return by.output->numel() == numel && by.output->type == input.type &&
             flow_.consumers[op].empty();
    const auto is_like = [&](const TensorShape& t) { return may_be_one_type(t.type, input.type); };
    if (by.op_class == OpClass::reduction)
      return std::any_of(by.inputs.begin(), by.inputs.end(),
                         [&](const TensorShape& t) { return is_like(t) && t.numel() > numel; });
    if (gives_no_tensor(trace_.strings[by.name])) return false;
    return by.inputs.empty() ? by.fuses == OpFuses::draws || !work_.has_shapes
                             : std::any_of(by.inputs.begin(), by.inputs.end(), is_like);
  }

  // A part of such a tensor is written between the two.
  bool is_changed(uint32_t producer, uint32_t consumer, const TensorShape& input) const {
    for (uint32_t at = producer + 1; at < consumer; ++at)
      for (const PartView& view : parts_before(at)) {
        if (view.whole != input.numel() || !may_be_one_type(view.type, input.type)) continue;
        for (uint32_t op = at; op < consumer; ++op) {
          const WorkOp& by = work_.ops[op];
          if (by.output != nullptr && by.output->numel() == view.part &&
              is_in_place(trace_.strings[by.name]))
            return true;
        }
      }
    return false;
  }

  // Inputs of the reader that are like this one.
  size_t inputs_like(uint32_t op, const TensorShape& input) const {
    const WorkOp& reader = work_.ops[op];
    size_t count = 0;
    for (size_t i = 0; i < reader.inputs.size(); ++i)
      if (reads_input(reader, i) && reader.inputs[i].numel() == input.numel() &&
          may_be_one_type(reader.inputs[i].type, input.type))
        ++count;
    return count;
  }

  static void add_possible_reader(PossibleReaders& readers, uint32_t op) {
    if (readers.count < PossibleReaders::kKept) readers.ops[readers.count] = op;
    ++readers.count;
  }

  InputSource source(const TensorShape& input, uint32_t first, uint32_t consumer) {
    InputSource found;
    const size_t like = inputs_like(consumer, input);
    size_t others = 0;  // behind p: what the reader's inputs of the kind may be
    for (uint32_t p = consumer; p-- > first;) {
      others += parts_like(p + 1, input);
      if (may_write(p, input)) {
        if (found.maybe == kNone) found.maybe = p;
        break;
      }
      if (!fits(p, input)) {
        if (may_make(p, input)) ++others;
        continue;
      }
      if (is_read_by(p, consumer)) {
        ++others;
        continue;
      }
      if (flow_.consumers[p].empty() && others < like && !is_changed(p, consumer, input)) {
        flow_.consumers[p].push_back(consumer);
        return {p, kNone};
      }
      if (found.maybe == kNone) found.maybe = p;
      if (others >= like) break;
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
  std::vector<uint32_t> first_part_;  // by op, in WorkOps::parts
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
  if (input >= op.operands) return false;
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
