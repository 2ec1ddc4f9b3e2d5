// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/gemms.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "explain/index/trace_era.h"
#include "explain/products/gemm_rates.h"
#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

constexpr int kMostParents = 64;  // how far up a product's op is looked for

// Launches that are alike: op, its inputs, kernel, device, whether it is the op's only product, and
// the FLOPs that the kernel states, which count where no op gives the shapes.
using Key = std::tuple<StringId, uint32_t, StringId, int32_t, bool, int64_t>;

struct GemmGroup {
  uint32_t kernel = kNone;  // the first of them, in Trace::events
  uint32_t op = kNone;      // the op that gives the shapes
  bool is_enclosing = false;
  std::vector<int64_t> times_ns;
  int64_t reduction_ns = 0;
};

class Collector {
 public:
  Collector(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  GemmReport run() {
    count_products();
    for (const uint32_t i : links_.device_work) {
      const Event& e = trace_.events[i];
      if (e.category != Category::kernel) continue;
      const KernelKind kind = name_of(e).kind;
      if (kind == KernelKind::gemm || kind == KernelKind::gemv) add_product(i);
      if (kind == KernelKind::split_k_reduce) add_reduction(i);
    }
    for (auto& [key, group] : groups_) report_.gemms.push_back(finish(key, group));
    std::stable_sort(report_.gemms.begin(), report_.gemms.end(), [](const Gemm& a, const Gemm& b) {
      return a.time.total_ns + a.reduction_ns > b.time.total_ns + b.reduction_ns;
    });
    report_.comparisons = compare_gemms(report_.gemms, clock_step_ns(trace_));
    return std::move(report_);
  }

 private:
  const KernelName& name_of(const Event& e) {
    const auto [it, is_new] = names_.try_emplace(e.name);
    if (is_new) it->second = decode_kernel_name(trace_.name(e));
    return it->second;
  }

  struct Found {
    uint32_t op = kNone;
    bool is_enclosing = false;
    bool is_hidden = false;
  };

  // An op with several products cannot say which of its FLOPs a kernel has.
  void count_products() {
    for (const uint32_t i : links_.device_work) {
      const Event& e = trace_.events[i];
      if (e.category != Category::kernel) continue;
      const KernelKind kind = name_of(e).kind;
      if (kind == KernelKind::gemm || kind == KernelKind::gemv) ++products_[find_op(i).op];
    }
  }

  // The innermost op around the launch that is a product with recorded shapes.
  Found find_op(uint32_t kernel) const {
    Found found;
    uint32_t op = links_.op[kernel];
    for (int depth = 0; op != kNone && depth < kMostParents; ++depth) {
      const Event& e = trace_.events[op];
      const std::string_view name = trace_.name(e);
      if (hides_gemms(name)) {
        found.is_hidden = true;
        return found;
      }
      const OpArgs* args = trace_.op_args(e);
      if (found.op == kNone && is_gemm_op(name) && args != nullptr && args->inputs != kNone &&
          gemm_problem(name, trace_.inputs[args->inputs])) {
        found.op = op;
        found.is_enclosing = depth > 0;
      }
      op = links_.parent[op];
    }
    return found;
  }

  void add_product(uint32_t i) {
    const Event& e = trace_.events[i];
    const Found found = find_op(i);
    if (found.is_hidden) return;
    ++report_.kernels;
    report_.total_ns += e.dur_ns;
    const KernelArgs* args = trace_.kernel_args(e);
    const uint32_t launcher = links_.op[i];
    const bool is_only = products_[found.op] == 1;
    const Event* op = found.op == kNone ? nullptr : &trace_.events[found.op];
    if (op != nullptr) ++report_.kernels_with_shape;
    GemmGroup& group =
        groups_[{op == nullptr ? 0 : op->name, op == nullptr ? kNone : trace_.op_args(*op)->inputs,
                 e.name, args == nullptr ? e.pid : args->device, is_only,
                 op == nullptr && args != nullptr ? args->flops : -1}];
    if (group.kernel == kNone) {
      group.kernel = i;
      group.op = found.op;
      group.is_enclosing = found.is_enclosing;
    }
    group.times_ns.push_back(e.dur_ns);
    if (launcher != kNone) last_of_op_[launcher] = &group;
  }

  // Belongs to the product that the same op launched before it.
  void add_reduction(uint32_t i) {
    const auto it = last_of_op_.find(links_.op[i]);
    if (links_.op[i] != kNone && it != last_of_op_.end())
      it->second->reduction_ns += trace_.events[i].dur_ns;
  }

  Gemm finish(const Key& key, GemmGroup& group) {
    const Event& kernel = trace_.events[group.kernel];
    const KernelArgs* args = trace_.kernel_args(kernel);
    Gemm g;
    g.kernel = std::string(trace_.name(kernel));
    g.name = name_of(kernel);
    g.device = std::get<3>(key);
    g.time = distribution(std::move(group.times_ns)).value_or(Distribution());
    g.reduction_ns = group.reduction_ns;
    if (group.op != kNone) {
      const Event& op = trace_.events[group.op];
      const auto problem = gemm_problem(trace_.name(op), trace_.inputs[trace_.op_args(op)->inputs]);
      g.op = std::string(trace_.name(op));
      g.is_shape_of_enclosing_op = group.is_enclosing;
      g.shape = problem->shape;
      g.a_type = problem->a_type;
      g.b_type = problem->b_type;
      const bool is_only = std::get<4>(key);
      if (is_only)
        g.flops = 2.0 * static_cast<double>(g.shape->m) * static_cast<double>(g.shape->n) *
                  static_cast<double>(g.shape->k) * static_cast<double>(g.shape->batch);
    }
    if (group.op == kNone && args != nullptr && args->flops > 0) {
      g.flops = static_cast<double>(args->flops);
      if (args->bytes > 0) g.bytes = static_cast<double>(args->bytes);
    }
    add_types(g);
    const DeviceProperties* device = find_device(trace_, g.device);
    add_rates(g, trace_);
    add_tensor_cores(g, device);
    if (g.flops) add_tiling(g, args, device);
    return g;
  }

  static void add_types(Gemm& g) {
    const std::optional<GemmFacts>& facts = g.name.gemm;
    if (facts) {
      if (g.a_type.empty()) g.a_type = facts->a_type;
      if (g.b_type.empty()) g.b_type = facts->b_type;
      g.c_type = facts->c_type;
    }
    // Products of one type give that type, but for fp8 and integers.
    const bool is_float =
        g.a_type == "f32" || g.a_type == "f64" || g.a_type == "f16" || g.a_type == "bf16";
    if (g.c_type.empty() && is_float && g.a_type == g.b_type) g.c_type = g.a_type;
  }

  const Trace& trace_;
  const Links& links_;
  std::unordered_map<StringId, KernelName> names_;
  std::unordered_map<uint32_t, int64_t> products_;       // by the op that gives the shapes
  std::unordered_map<uint32_t, GemmGroup*> last_of_op_;  // the last product that an op launched
  std::map<Key, GemmGroup> groups_;
  GemmReport report_;
};

}  // namespace

GemmReport gemm_report(const Trace& trace, const Links& links) {
  return Collector(trace, links).run();
}

}  // namespace epilogue::trace
