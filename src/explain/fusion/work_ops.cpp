// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/work_ops.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "epilogue/trace/kernel_name.h"
#include "explain/index/by_name.h"
#include "explain/index/op_tree.h"
#include "explain/index/sort_runs.h"
#include "explain/index/sparse_column.h"
#include "explain/index/trace_metadata.h"
#include "explain/timeline/region_map.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

// Sums per event of what its own launches did, by index of the op's event.
struct Launched {
  int64_t device_ns = 0;
  int64_t longest_ns = -1;  // -1: it launched nothing
  uint32_t kernels = 0;
  StringId kernel = 0;
  bool is_transfer = false;
};

// Copies that leave the device, and those whose names do not say where they lead.
class Transfers {
 public:
  explicit Transfers(const Trace& trace) : trace_(trace), known_(trace.strings.size()) {}

  bool contain(const Event& work) {
    std::optional<bool>& known = known_[work.name];
    if (!known) {
      const KernelName name = decode_kernel_name(trace_.name(work));
      const KernelField* direction = name.find("direction");
      const bool stays = direction != nullptr && direction->value == "device to device";
      known = name.family == "memcpy" ? !stays : work.category == Category::gpu_memcpy;
    }
    return *known;
  }

 private:
  const Trace& trace_;
  std::vector<std::optional<bool>> known_;  // by StringId
};

SparseColumn<Launched> launched_by_op(const Trace& trace, const Links& links) {
  SparseColumn<Launched> sums(trace.events.size());
  Transfers transfers(trace);
  for (const uint32_t i : links.device_work) {
    const uint32_t op = links.op[i];
    if (op == kNone) continue;
    const Event& work = trace.events[i];
    Launched& sum = sums[op];
    sum.device_ns += work.dur_ns;
    sum.kernels += work.category == Category::kernel ? 1 : 0;
    sum.is_transfer = sum.is_transfer || transfers.contain(work);
    if (work.dur_ns > sum.longest_ns) {
      sum.longest_ns = work.dur_ns;
      sum.kernel = work.name;
    }
  }
  return sums;
}

// Number of ops directly below each op, views left out: they are no work. None, one or more is all
// that anyone asks.
using Children = std::vector<uint8_t>;
constexpr int kMany = 2;

Children working_children(const Trace& trace, const Links& links,
                          const std::vector<OpClass>& class_of_name) {
  Children children(trace.events.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::cpu_op && links.parent[i] != kNone &&
        class_of_name[e.name] != OpClass::view)
      children[links.parent[i]] =
          static_cast<uint8_t>(std::min(children[links.parent[i]] + 1, kMany));
  }
  return children;
}

// True where an op computes something itself; a copy or a fill is at work wherever it is.
bool computes(OpClass op) {
  return op == OpClass::pointwise || op == OpClass::rowwise || op == OpClass::reduction ||
         op == OpClass::gemm;
}

// An op that does a good part of its work itself, whatever it calls: how long and how much.
constexpr int64_t kOwnWorkNs = 20'000;
constexpr int64_t kOwnWorkPart = 4;

// The ops at work of a trace without device work: those that call no other op; those that compute
// and call nothing but copies, fills and views, which are then part of them (addmm copies its bias,
// div casts a number); products, whatever they call (_addmm_activation its gelu_); and ops of which
// nothing is known that work themselves between their calls (embedding_dense_backward fills its
// result first).
class HostWork {
 public:
  HostWork(const Trace& trace, const Links& links, const std::vector<OpClass>& class_of_name,
           const Children& children)
      : trace_(trace),
        links_(links),
        class_of_name_(class_of_name),
        children_(children),
        self_ns_(self_times_ns(trace, links)) {
    calls_work_.resize(trace.events.size());
    calls_product_.resize(trace.events.size());
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      if (trace.events[i].category != Category::cpu_op) continue;
      const OpClass kind = class_of(i);
      if (kind == OpClass::gemm)
        for (uint32_t p = links.parent[i]; p != kNone && !calls_product_[p]; p = links.parent[p])
          calls_product_[p] = true;
      if (kind == OpClass::view || kind == OpClass::copy || kind == OpClass::fill) continue;
      for (uint32_t p = links.parent[i]; p != kNone && !calls_work_[p]; p = links.parent[p])
        calls_work_[p] = true;
    }
  }

  bool contains(uint32_t op) const {
    const OpClass kind = class_of(op);
    if (trace_.events[op].dur_ns <= 0 || kind == OpClass::view) return false;
    if (children_[op] != 0 && !absorbs_calls(op)) return false;
    for (uint32_t p = links_.parent[op]; p != kNone; p = links_.parent[p])
      if (absorbs_calls(p)) return false;
    return true;
  }

 private:
  OpClass class_of(uint32_t op) const { return class_of_name_[trace_.events[op].name]; }
  bool absorbs_calls(uint32_t op) const {
    const OpClass kind = class_of(op);
    if (kind == OpClass::gemm) return !calls_product_[op];
    if (kind == OpClass::unknown) return works_itself(op);
    return computes(kind) && !calls_work_[op];
  }
  bool works_itself(uint32_t op) const {
    return children_[op] != 0 && self_ns_[op] >= kOwnWorkNs &&
           self_ns_[op] >= trace_.events[op].dur_ns / kOwnWorkPart;
  }

  const Trace& trace_;
  const Links& links_;
  const std::vector<OpClass>& class_of_name_;
  const Children& children_;
  std::vector<int64_t> self_ns_;
  std::vector<bool> calls_work_;  // something that is no copy, fill or view
  std::vector<bool> calls_product_;
};

// The outermost op around `op` that does no other work: aten::linear for its aten::addmm.
uint32_t outermost(const Links& links, const Children& children, uint32_t op) {
  uint32_t outer = op;
  while (links.parent[outer] != kNone && children[links.parent[outer]] == 1)
    outer = links.parent[outer];
  return outer;
}

// Ops within each op, itself included.
std::vector<uint32_t> ops_within(const Trace& trace, const Links& links) {
  std::vector<uint32_t> count(trace.events.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].category != Category::cpu_op) continue;
    for (uint32_t op = i; op != kNone; op = links.parent[op]) ++count[op];
  }
  return count;
}

// Inputs and outputs of ops, each distinct list of arguments once.
class Shapes {
 public:
  Shapes(const Trace& trace, WorkOps& work)
      : trace_(trace), work_(work), inputs_of_(trace.inputs.size()) {}

  void set(WorkOp& op, uint32_t inputs) {
    const std::vector<TensorShape>*& known = inputs_of_[inputs];
    if (known == nullptr)
      known = &work_.input_shapes.emplace_back(tensor_inputs(trace_.inputs[inputs]));
    op.inputs = *known;
    const uint64_t key = uint64_t{inputs} << 32 | op.name;
    const auto [place, is_new] = output_of_.try_emplace(key, nullptr);
    if (is_new) place->second = output(op, inputs);
    op.output = place->second;
  }

 private:
  const TensorShape* output(const WorkOp& op, uint32_t inputs) {
    const std::string_view name = trace_.strings[op.name];
    std::optional<TensorShape> shape = output_shape(name, trace_.inputs[inputs]);
    if (op.op_class == OpClass::reduction && !op.inputs.empty())
      shape = reduced_rows(name, op.inputs[0]);
    return shape ? &work_.output_shapes.emplace_back(*std::move(shape)) : nullptr;
  }

  const Trace& trace_;
  WorkOps& work_;
  std::vector<const std::vector<TensorShape>*> inputs_of_;      // by list of arguments
  std::unordered_map<uint64_t, const TensorShape*> output_of_;  // by list and name
};

// A copy that an op of which nothing is known makes for itself: what it reads and who reads it is
// not known either.
bool is_inner_copy(const Trace& trace, const Links& links,
                   const std::vector<OpClass>& class_of_name, uint32_t op) {
  uint32_t p = links.parent[op];
  while (p != kNone && class_of_name[trace.events[p].name] == OpClass::view) p = links.parent[p];
  if (p == kNone || class_of_name[trace.events[p].name] != OpClass::unknown) return false;
  // Products under other names copy the op before their product.
  const std::string_view name = trace.name(trace.events[p]);
  return name.starts_with("aten::") && work_kind_of_op(name) != WorkKind::compute;
}

// torch.compile leaves recurrent layers as they are: what they call is not fused.
class RecurrentLayers {
 public:
  RecurrentLayers(const Trace& trace, const Links& links) : trace_(trace), links_(links) {
    static constexpr std::array<std::string_view, 4> kNames = {"aten::gru", "aten::lstm",
                                                               "aten::rnn_tanh", "aten::rnn_relu"};
    for (StringId id = 0; id < trace.strings.size(); ++id)
      if (std::find(kNames.begin(), kNames.end(), trace.strings[id]) != kNames.end())
        names_.push_back(id);
  }

  bool contain(uint32_t op) const {
    if (names_.empty()) return false;
    while ((op = links_.parent[op]) != kNone)
      if (std::find(names_.begin(), names_.end(), trace_.events[op].name) != names_.end())
        return true;
    return false;
  }

 private:
  const Trace& trace_;
  const Links& links_;
  std::vector<StringId> names_;
};

// What is known of an op by its name alone.
struct NameFacts {
  OpFuses fuses = OpFuses::pointwise;
  size_t operands = SIZE_MAX;
  bool is_transcendental = false;
};

NameFacts facts_of(std::string_view name) {
  if (!name.starts_with("aten::")) return {.is_transcendental = is_transcendental(name)};
  const OpKnowledge* known = op_knowledge(name);
  return {known != nullptr ? known->fuses : OpFuses::pointwise, most_operands(name),
          is_transcendental(name)};
}

// "[32, 64]" -> 2048 elements; 0 for what is no list of sizes.
int64_t elements_of_sizes(std::string_view sizes) {
  if (!sizes.starts_with('[') || !sizes.ends_with(']')) return 0;
  sizes = sizes.substr(1, sizes.size() - 2);
  int64_t elements = 1;
  while (!sizes.empty()) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
    if (error != std::errc() || size < 0 || __builtin_mul_overflow(elements, size, &elements))
      return 0;
    sizes.remove_prefix(static_cast<size_t>(end - sizes.data()));
    while (sizes.starts_with(',') || sizes.starts_with(' ')) sizes.remove_prefix(1);
  }
  return elements;
}

// slice, select, narrow, split and unbind end in as_strided(self, sizes, strides, offset).
std::optional<PartView> part_view(const Trace& trace, uint32_t inputs) {
  const std::span<const OpInput> list = trace.inputs[inputs];
  const std::vector<TensorShape> tensors =
      tensor_inputs(list.first(std::min<size_t>(1, list.size())));
  if (tensors.size() != 1 || list.size() < 2) return std::nullopt;
  const PartView view = {0, tensors[0].numel(), elements_of_sizes(list[1].concrete),
                         tensors[0].type};
  if (view.part < 1 || view.part >= view.whole) return std::nullopt;
  return view;
}

// Where each part view stands among the ops.
std::vector<PartView> part_views(const Trace& trace, const std::vector<WorkOp>& ops) {
  const std::vector<bool> makes_parts =
      by_name(trace, [](std::string_view name) { return name == "aten::as_strided"; });
  std::unordered_map<uint32_t, std::optional<PartView>> by_inputs;
  std::vector<std::pair<uint32_t, PartView>> found;  // by event
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op || !makes_parts[e.name]) continue;
    const OpArgs* args = trace.op_args(e);
    if (args == nullptr || args->inputs >= trace.inputs.size()) continue;
    const auto [known, is_new] = by_inputs.try_emplace(args->inputs);
    if (is_new) known->second = part_view(trace, args->inputs);
    if (known->second) found.emplace_back(i, *known->second);
  }
  const auto place = [&](uint32_t event) {
    const Event& e = trace.events[event];
    return std::tuple(e.pid, e.tid, e.ts_ns, event);
  };
  std::vector<PartView> parts;
  parts.reserve(found.size());
  for (auto& [event, view] : found) {
    const auto after = std::partition_point(
        ops.begin(), ops.end(), [&](const WorkOp& op) { return place(op.event) < place(event); });
    view.before = static_cast<uint32_t>(after - ops.begin());
    parts.push_back(view);
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const PartView& a, const PartView& b) { return a.before < b.before; });
  return parts;
}

// What the arguments of an op say, which lie in `inputs`.
void take_inputs(const Trace& trace, uint32_t inputs, Shapes& shapes, WorkOp& op) {
  const bool is_product = op.op_class == OpClass::gemm;
  shapes.set(op, inputs);
  // No kernel for dense matrices runs it, and none takes over its write-back.
  if (is_product && has_sparse(trace.inputs[inputs])) op.op_class = OpClass::unknown;
}

void sort_by_start(const Trace& trace, std::vector<WorkOp>& ops) {
  sort_runs(ops, [&](const WorkOp& a, const WorkOp& b) {
    const Event& x = trace.events[a.event];
    const Event& y = trace.events[b.event];
    return std::tie(x.pid, x.tid, x.ts_ns, a.event) < std::tie(y.pid, y.tid, y.ts_ns, b.event);
  });
}

}  // namespace

WorkOps work_ops(const Trace& trace, const Links& links) {
  std::vector<OpClass> class_of_name(trace.strings.size());
  std::vector<NameFacts> facts_of_name(trace.strings.size());
  for (StringId id = 0; id < class_of_name.size(); ++id) {
    class_of_name[id] = op_class(trace.strings[id]);
    facts_of_name[id] = facts_of(trace.strings[id]);
  }
  WorkOps result;
  result.has_device_work = !links.device_work.empty();
  // Launches whose kernels were lost: the host's time says nothing of the work.
  if (!result.has_device_work && !links.launches.empty()) return result;
  const SparseColumn<Launched> launched_by = launched_by_op(trace, links);
  result.is_synchronous = is_own_cpu_trace(trace);
  // Counted where it is known what the profiler costs, and that the host's time is the work's.
  const std::vector<uint32_t> within =
      result.is_synchronous ? ops_within(trace, links) : std::vector<uint32_t>();
  const Children children = working_children(trace, links, class_of_name);
  std::optional<HostWork> host_work;
  if (!result.has_device_work) host_work.emplace(trace, links, class_of_name, children);
  const std::vector<uint32_t> region_of = region_of_events(trace, links);
  const RecurrentLayers recurrent(trace, links);
  Shapes shapes(trace, result);
  result.ops.reserve(launched_by.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op) continue;
    const OpClass kind = class_of_name[e.name];
    const Launched* launched = launched_by.find(i);
    const bool works = result.has_device_work ? launched != nullptr && launched->longest_ns >= 0
                                              : host_work->contains(i);
    if (!works) continue;
    WorkOp op = {.event = i, .name = e.name, .region = region_of[i]};
    const bool is_hidden = recurrent.contain(i) ||
                           (kind == OpClass::copy && is_inner_copy(trace, links, class_of_name, i));
    op.op_class = is_hidden ? OpClass::unknown : kind;
    op.is_transcendental = facts_of_name[e.name].is_transcendental;
    op.fuses = facts_of_name[e.name].fuses;
    op.operands = facts_of_name[e.name].operands;
    op.device_ns = result.has_device_work ? launched->device_ns : e.dur_ns;
    const uint32_t outer = outermost(links, children, i);
    op.host_ns = trace.events[outer].dur_ns;
    if (!within.empty()) op.host_ops = within[outer];
    if (launched != nullptr) {
      op.kernels = launched->kernels;
      op.kernel = launched->kernel;
      op.is_transfer = launched->is_transfer;
    }
    if (const OpArgs* args = trace.op_args(e);
        args != nullptr && args->inputs < trace.inputs.size()) {
      result.has_shapes = true;
      take_inputs(trace, args->inputs, shapes, op);
    }
    result.ops.push_back(op);
  }
  sort_by_start(trace, result.ops);
  if (result.has_shapes) result.parts = part_views(trace, result.ops);
  return result;
}

}  // namespace epilogue::trace
