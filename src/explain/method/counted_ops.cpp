// SPDX-License-Identifier: Apache-2.0
#include "explain/method/counted_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "explain/index/op_tree.h"
#include "explain/index/sort_runs.h"

namespace epilogue::trace {
namespace {

constexpr size_t kTensorsShown = 4;

// Device work by the op that launched it; graphs' and cut-off launches' belong to none.
std::vector<int64_t> device_times_ns(const Trace& trace, const Links& links) {
  std::vector<int64_t> ns(trace.events.size());
  for (const uint32_t work : links.device_work)
    if (links.op[work] != kNone) ns[links.op[work]] += trace.events[work].dur_ns;
  return ns;
}

bool is_old_step(std::string_view name) { return name.starts_with("ProfilerStep#"); }

}  // namespace

std::string_view aten_base(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name.ends_with('_') && name.size() > 1) name.remove_suffix(1);
  return name;
}

std::optional<int64_t> whole_argument(std::span<const OpInput> inputs, size_t at) {
  if (at >= inputs.size()) return std::nullopt;
  const std::string& text = inputs[at].concrete;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string sizes_text(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool is_autograd_node(std::string_view name) {
  return name.starts_with("autograd::engine::evaluate_function");
}

std::string_view node_name(std::string_view name) {
  if (is_autograd_node(name)) name.remove_prefix(std::min(name.size(), name.rfind(' ') + 1));
  return name;
}

std::string shapes_text(std::span<const OpInput> inputs) {
  std::string text;
  std::string_view type;
  size_t shown = 0;
  const auto add = [&](std::string shape, std::string_view its_type) {
    if (shown++ >= kTensorsShown) return;
    text += (text.empty() ? "" : ", ") + std::move(shape);
    if (!its_type.empty() && its_type != type) text += ' ' + std::string(its_type);
    if (!its_type.empty()) type = its_type;
  };
  for (const OpInput& input : inputs) {
    if (!input.dims.empty() && !input.is_list) add(sizes_text(input.dims), input.type);
    for (size_t i = 0; i < input.list.size();) {
      size_t end = i + 1;
      while (end < input.list.size() && input.list[end].dims == input.list[i].dims) ++end;
      if (!input.list[i].dims.empty())
        add((end - i > 1 ? fmt::format("{} x ", end - i) : "") + sizes_text(input.list[i].dims),
            "");
      i = end;
    }
  }
  if (shown > kTensorsShown) text += ", ...";
  return text;
}

CountedOps::CountedOps(const Trace& of, const Links& its_links, std::vector<uint32_t> main_ops,
                       int64_t wall_time_ns)
    : trace(of),
      links(its_links),
      is_device(!its_links.device_work.empty()),
      wall_ns(wall_time_ns),
      steps(std::max<size_t>(1, its_links.steps.size())),
      ops(std::move(main_ops)) {
  if (is_device) {
    ByNameOnce<char> old_steps(trace);
    for (uint32_t i = 0; i < trace.events.size(); ++i)
      if (trace.events[i].category == Category::cpu_op &&
          old_steps.get(trace.events[i].name, is_old_step) == 0)
        ops.push_back(i);
    ns = device_times_ns(trace, links);
  } else {
    ns = self_times_ns(trace, links);
  }
  const auto is_before = [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
    return x.dur_ns != y.dur_ns ? x.dur_ns > y.dur_ns : a < b;
  };
  sort_runs(ops, is_before);
  position.assign(trace.events.size(), kNone);
  for (size_t at = 0; at < ops.size(); ++at) position[ops[at]] = static_cast<uint32_t>(at);
  texts_.resize(trace.strings.size());
  bases_.resize(trace.strings.size());
  kinds_.resize(trace.strings.size(), OpClass::unknown);
  names_.reserve(ops.size());
  inputs_.reserve(ops.size());
  for (const uint32_t op : ops) {
    const Event& e = trace.events[op];
    const OpArgs* args = trace.op_args(e);
    names_.push_back(e.name);
    inputs_.push_back(args == nullptr || args->inputs >= trace.inputs.size() ? kNone
                                                                             : args->inputs);
    if (texts_[e.name].data() != nullptr) continue;
    texts_[e.name] = trace.strings[e.name];
    bases_[e.name] = aten_base(texts_[e.name]);
    kinds_[e.name] = op_class(texts_[e.name]);
  }
  // A run of two passes of which one was recorded may have nodes in another thread.
  ByNameOnce<char> is_backward(trace);
  has_backward = std::any_of(trace.events.begin(), trace.events.end(), [&](const Event& e) {
    return e.category == Category::cpu_op && is_backward.get(e.name, [](std::string_view name) {
      return name.find("Backward") != std::string_view::npos;
    });
  });
}

std::span<const OpInput> CountedOps::inputs(size_t at) const {
  const uint32_t id = inputs_id(at);
  return id == kNone ? std::span<const OpInput>() : trace.inputs[id];
}

uint32_t CountedOps::outermost(size_t at) const {
  uint32_t op = ops[at];
  while (links.parent[op] != kNone) op = links.parent[op];
  return op;
}

}  // namespace epilogue::trace
