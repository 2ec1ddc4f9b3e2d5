// SPDX-License-Identifier: Apache-2.0
// What searches among asked ops share: how they take time together, and how they report it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_ops.h"
#include "explain/method/method.h"

namespace epilogue::trace {

using Dims = std::vector<int64_t>;

// In double: products of sizes have no bounds in a broken trace.
inline double elements_in(const Dims& dims) {
  return static_cast<double>(TensorShape{dims, {}}.numel());
}

// Calls of one kind, with what they and their nodes of the backward pass take.
struct CostlyForm {
  std::vector<uint32_t> calls;
  OpTimes times;
  int64_t ns = 0;
  int64_t count = 0;
  size_t first = 0;      // among the asked ops
  size_t second = 0;     // the op that makes it a loss
  int64_t op_calls = 0;  // that would go
};

// Calls that another order of linear ops would make cheaper.
struct DearerOrder {
  std::vector<uint32_t> calls;
  OpTimes times;
  int64_t ns = 0;
  double saving = 0;
  std::string title, evidence, action;
};

class AskedSearch : protected WasteSearch {
 protected:
  AskedSearch(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : WasteSearch(asked.all(), places, found), asked_(asked) {}

  using Forms = std::map<uint64_t, CostlyForm>;  // by AskedOps::key()

  // One call more of the form that op `i` has.
  CostlyForm& form_at(Forms& forms, size_t i, size_t second) const {
    CostlyForm& form = forms[asked_.key(i)];
    if (form.count++ == 0) form.first = i;
    form.second = second;
    return form;
  }
  // Of an argument of op `i`; empty if it is none or no tensor.
  const Dims& dims_at(size_t i, size_t argument) const {
    static const Dims kNoDims;
    const auto in = asked_.inputs(i);
    return argument < in.size() ? in[argument].dims : kNoDims;
  }
  // The next asked op that moves data; asked_.size() if there is none.
  size_t next(size_t i) const {
    size_t j = i + 1;
    while (j < asked_.size() && asked_.kind(j) == OpClass::view) ++j;
    return j;
  }
  // The time of an op, which the form gets.
  int64_t take(CostlyForm& form, size_t i) const {
    const int64_t ns = asked_.take(i, form.times, form.calls);
    form.ns += ns;
    return ns;
  }
  uint32_t step(size_t i) const { return all_.links.step[all_.ops[asked_.at(i)]]; }
  // Of the program itself, not of an autograd node.
  bool is_forward(size_t i) const {
    const uint32_t root = asked_.roots().of(asked_.at(i));
    return root != kNone && !is_autograd_node(asked_.roots().name(root));
  }
  std::vector<TensorShape> tensors(size_t i) const { return tensor_inputs(asked_.inputs(i)); }
  bool reads(size_t i, const Dims& dims) const {
    const std::vector<TensorShape> read = tensors(i);
    return std::any_of(read.begin(), read.end(),
                       [&](const TensorShape& t) { return t.dims == dims; });
  }
  // Of the ops behind `i`, so many at most.
  size_t end_of(size_t i, size_t within) const { return std::min(asked_.size(), i + 1 + within); }
  std::string times_of(const CostlyForm& form) const {
    return counted(form.count, "time", "times") + ", " + shapes_text(asked_.inputs(form.first));
  }

  // `title` is followed by the times.
  void report(WasteKind kind, const CostlyForm& form, const std::string& title,
              std::vector<std::string> evidence, std::string action,
              std::optional<double> saved_share, WasteProof proof) {
    std::optional<int64_t> saving_ns;
    if (saved_share) saving_ns = static_cast<int64_t>(static_cast<double>(form.ns) * *saved_share);
    report_saving(kind, form, title, std::move(evidence), std::move(action), saving_ns, proof);
  }
  void report_saving(WasteKind kind, const CostlyForm& form, const std::string& title,
                     std::vector<std::string> evidence, std::string action,
                     std::optional<int64_t> saving_ns, WasteProof proof) {
    if (!is_worth_it(form.ns)) return;
    Waste waste;
    waste.kind = kind;
    waste.title = fmt::format("{}: {} of {}", title, time_text(form.ns), time_text(all_.wall_ns));
    waste.evidence = std::move(evidence);
    waste.action = std::move(action);
    waste.ns = form.ns;
    waste.saving_ns = saving_ns;
    waste.proof = proof;
    waste.op_calls = form.op_calls;
    add(std::move(waste), form.calls, form.times);
  }
  void report(const DearerOrder& order) {
    const auto saving_ns = static_cast<int64_t>(order.saving);
    if (!is_worth_it(saving_ns)) return;
    Waste waste;
    waste.kind = WasteKind::dearer_order;
    waste.title =
        fmt::format("{}: {} of {}", order.title, time_text(saving_ns), time_text(all_.wall_ns));
    waste.evidence = {order.evidence};
    waste.action = order.action;
    waste.ns = order.ns;
    waste.saving_ns = saving_ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), order.calls, order.times);
  }

  const AskedOps& asked_;
};

}  // namespace epilogue::trace
