// SPDX-License-Identifier: Apache-2.0
// The ops whose time the method divides, in the order of their start.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "epilogue/trace/method.h"
#include "explain/host/op_visitor.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {

// Remembers the ops of the main thread of a run without a device: what host_time() counts.
struct CountedVisitor : OpVisitor {
  void visit(const VisitedOp& op) override { ops.push_back(op.index); }
  std::vector<uint32_t> ops;
};

// What is asked of an op's name, once for each name.
template <class T>
class ByNameOnce {
 public:
  explicit ByNameOnce(const Trace& trace)
      : trace_(trace), known_(trace.strings.size()), values_(trace.strings.size()) {}
  template <class F>
  T get(StringId name, F&& ask) {
    if (!known_[name]) {
      known_[name] = 1;
      values_[name] = ask(trace_.strings[name]);
    }
    return values_[name];
  }

 private:
  const Trace& trace_;
  std::vector<char> known_;
  std::vector<T> values_;
};

struct CountedOps {
  CountedOps(const Trace& of, const Links& its_links, std::vector<uint32_t> main_ops,
             int64_t wall_time_ns);

  const Trace& trace;
  const Links& links;
  bool is_device = false;
  int64_t wall_ns = 0;
  size_t steps = 1;                // at least 1
  std::vector<uint32_t> ops;       // events; callers before what they call
  std::vector<uint32_t> position;  // by event: where it stands in `ops`; kNone
  std::vector<int64_t> ns;         // by event: self time, or of the device work that it launched
  bool has_backward = false;       // an autograd node ran

  const Event& event(size_t at) const { return trace.events[ops[at]]; }
  StringId name_id(size_t at) const { return names_[at]; }
  std::string_view name(size_t at) const { return texts_[names_[at]]; }
  std::string_view base(size_t at) const { return bases_[names_[at]]; }  // aten_base(name)
  OpClass kind(size_t at) const { return kinds_[names_[at]]; }           // op_class(name)
  int64_t ns_at(size_t at) const { return ns[ops[at]]; }
  bool is_root(size_t at) const { return links.parent[ops[at]] == kNone; }
  // In trace.inputs; kNone if shapes were not recorded.
  uint32_t inputs_id(size_t at) const { return inputs_[at]; }
  std::span<const OpInput> inputs(size_t at) const;
  uint32_t outermost(size_t at) const;  // an event
  // Name and inputs in one number.
  uint64_t key(size_t at) const { return uint64_t{names_[at]} << 32 | inputs_[at]; }

 private:
  // Dozens of searches go over all ops and ask for names and inputs. Events lie far apart in
  // memory, and their args farther: these columns lie side by side.
  std::vector<StringId> names_;   // by position
  std::vector<uint32_t> inputs_;  // by position
  // By StringId; "" and unknown for what names no op.
  std::vector<std::string_view> texts_;
  std::vector<std::string_view> bases_;
  std::vector<OpClass> kinds_;
};

template <size_t n>
bool is_one(const std::array<std::string_view, n>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
inline std::string time_text(int64_t ns) { return format_duration_ns(static_cast<double>(ns)); }

// "autograd::engine::evaluate_function: MulBackward0"
bool is_autograd_node(std::string_view name);
// "autograd::engine::evaluate_function: MulBackward0" -> "MulBackward0"; other names as they are.
std::string_view node_name(std::string_view name);
// "aten::add_" -> "add"; other names as they are.
std::string_view aten_base(std::string_view name);
// The whole number that was passed as argument `at`; nothing if it is none or was not recorded.
std::optional<int64_t> whole_argument(std::span<const OpInput> inputs, size_t at);
// "[64, 512]"
std::string sizes_text(const std::vector<int64_t>& dims);
// "[64, 512] float, [512, 512]"; "" if there is no tensor.
std::string shapes_text(std::span<const OpInput> inputs);

// The places of moments of ops, from annotations and Python frames, whichever were recorded.
class Places {
 public:
  explicit Places(const CountedOps& ops) : all_(ops) {}
  // Where most time of these calls (positions in CountedOps::ops) is called from.
  CostPlace of(std::span<const uint32_t> calls) const;
  // A call of a module.
  struct Module {
    std::string_view name;  // "" none
    int64_t start_ns = 0;
  };
  // The innermost module at each of the calls.
  std::vector<Module> modules_at(std::span<const uint32_t> calls) const;
  struct ModuleCall {
    std::string_view name;  // without "nn.Module: "
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    uint32_t around = kNone;  // the call of a module around it
  };
  // All calls of modules, on the thread that has most of them, by start.
  std::vector<ModuleCall> module_calls() const;

 private:
  struct Spans;
  const Spans& spans() const;
  // The forward op of an autograd node, both as events; kNone if it is not known.
  uint32_t forward_of(uint32_t root) const;

  const CountedOps& all_;
  mutable std::shared_ptr<Spans> spans_;
  mutable std::shared_ptr<std::vector<std::pair<int64_t, uint32_t>>> forward_;  // by number
};

}  // namespace epilogue::trace
