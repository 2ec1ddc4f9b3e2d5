// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/host.h"

#include <algorithm>
#include <map>

#include "explain/host/host_collectives.h"
#include "explain/host/host_functions.h"
#include "explain/host/op_visitor.h"
#include "explain/index/intervals.h"
#include "explain/index/op_tree.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/products/gemm_shape.h"
#include "explain/timeline/time_account.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, kHostParts> kHostPartNames = {
    "compute", "memory", "dispatch", "data", "between_ops", "profiler"};

using ThreadKey = std::pair<int32_t, int64_t>;

// The thread with the most time in ops: the run waits for it.
ThreadKey main_host_thread(const Trace& trace, const Links& links) {
  std::map<ThreadKey, int64_t> time;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::cpu_op && links.parent[i] == kNone)
      time[{e.pid, e.tid}] += e.dur_ns;
  }
  const auto longest = std::max_element(
      time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return longest == time.end() ? ThreadKey{} : longest->first;
}

std::optional<OpBytes> bytes_of_op(const VisitedOp& op) {
  const std::optional<TensorShape> output =
      op.inputs.empty() ? std::nullopt : output_shape(op.name, op.inputs);
  if (!output || !output->bytes()) return std::nullopt;
  OpBytes sum = {*output->bytes(), *output->bytes()};
  bool is_written_only = op.kind == OpClass::copy || op.kind == OpClass::fill;  // the first
  for (const TensorShape& input : tensor_inputs(op.inputs)) {
    if (!input.bytes()) return std::nullopt;
    if (!is_written_only) sum.moved += *input.bytes();
    is_written_only = false;
  }
  return sum;
}

std::span<const OpInput> recorded_inputs(const Trace& trace, const Event& op) {
  const OpArgs* args = trace.op_args(op);
  if (args == nullptr || args->inputs >= trace.inputs.size()) return {};
  return trace.inputs[args->inputs];
}

struct OpSums {
  HostOp op;
  int64_t bytes = 0;
  int64_t bytes_ns = 0;
  int64_t bytes_calls = 0;
};
struct ProductSums {
  HostProduct product;
  int64_t work_ns = 0;  // that counts as memory if it waits for memory, else as compute
  std::vector<int64_t> times_ns;
};

class HostAccount {
 public:
  HostAccount(const Trace& trace, const Links& links, std::span<OpVisitor* const> visitors,
              const CpuPeaks* cpu)
      : trace_(trace),
        links_(links),
        visitors_(visitors),
        thread_(main_host_thread(trace, links)),
        part_of_name_(trace.strings.size()),
        windows_(wall_windows(trace, links, true)),
        self_ns_(self_times_ns(trace, links)),
        profiler_ns_(static_cast<int64_t>(profiler_cost(trace, links).ns_per_op)) {
    if (cpu == nullptr || !cpu->l2_bytes) return;
    time_.cache_bytes = *cpu->l2_bytes * std::max(1, cpu->threads);
    time_.is_cache_known = true;
  }

  HostTime run() {
    time_.wall_ns = total_ns(windows_);
    find_data();
    const Coverage wall(windows_);
    const Coverage data(data_);
    part(HostPart::data) = total_ns(intersected(data_, windows_));
    const Coverage compiling(compiling_);
    std::vector<Interval> in_ops;
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const Event& e = trace_.events[i];
      if (e.category != Category::cpu_op || is_step(e)) continue;
      if (ThreadKey(e.pid, e.tid) != thread_) {
        if (links_.parent[i] == kNone)
          time_.other_threads_ns += wall.within_ns({e.ts_ns, e.end_ns()});
        continue;
      }
      if (!wall.contains(e.ts_ns) || data.contains(e.ts_ns) || compiling.contains(e.ts_ns))
        continue;
      in_ops.push_back({e.ts_ns, e.end_ns()});
      add_op(i);
    }
    const IntervalSet ops = subtracted(united(std::move(in_ops)), compiling_);
    IntervalSet between = subtracted(subtracted(windows_, ops), data_);
    for (const Interval& gap : between)
      part(gap.length_ns() <= kCallGapNs ? HostPart::dispatch : HostPart::between_ops) +=
          gap.length_ns();
    std::erase_if(between, [](const Interval& gap) { return gap.length_ns() <= kCallGapNs; });
    time_.collectives = host_collectives(trace_, between);
    time_.ranges = ranges_within(trace_, thread_.first, thread_.second, between);
    time_.functions = functions_within(trace_, thread_.first, thread_.second, between);
    finish();
    return std::move(time_);
  }

 private:
  int64_t& part(HostPart p) { return time_.part_ns[static_cast<size_t>(p)]; }
  // Old traces record steps as ops.
  bool is_step(const Event& e) const { return trace_.name(e).starts_with("ProfilerStep#"); }

  void find_data() {
    std::vector<Interval> list;
    std::vector<Interval> compiling;
    for (const Event& e : trace_.events) {
      if (ThreadKey(e.pid, e.tid) != thread_) continue;
      if (is_data_loading(trace_, e)) list.push_back({e.ts_ns, e.end_ns()});
      if (is_compilation(trace_.name(e))) compiling.push_back({e.ts_ns, e.end_ns()});
    }
    data_ = united(std::move(list));
    compiling_ = united(std::move(compiling));
  }

  // By its name alone; empty if nothing is known of it.
  static std::optional<HostPart> part_of_name(std::string_view name, OpClass kind) {
    if (kind == OpClass::view) return HostPart::dispatch;
    if (computes_on_host(name)) return HostPart::compute;
    const std::optional<WorkKind> work = work_kind_of_op(name);
    if (work) return *work == WorkKind::compute ? HostPart::compute : HostPart::memory;
    const OpKnowledge* known = op_knowledge(name);
    const auto costs = [&](OpCost cost) { return known != nullptr && known->cost == cost; };
    if (costs(OpCost::flops) || costs(OpCost::solve) || costs(OpCost::transform) ||
        costs(OpCost::search) || costs(OpCost::pairs))
      return HostPart::compute;
    return std::nullopt;
  }

  // The part that an op's own time counts for. An op of which nothing is known works for the
  // product or convolution around it, else it is taken to move bytes.
  HostPart part_of(const VisitedOp& op) {
    std::optional<std::optional<HostPart>>& known = part_of_name_[op.event.name];
    if (!known) known = part_of_name(op.name, op.kind);
    if (*known) return **known;
    for (uint32_t p = links_.parent[op.index]; p != kNone; p = links_.parent[p])
      if (work_kind_of_op(trace_.name(trace_.events[p])) == WorkKind::compute)
        return HostPart::compute;
    return HostPart::memory;
  }

  void add_op(uint32_t i) {
    const VisitedOp op(trace_, links_, i, self_ns_[i]);
    const HostPart kind = part_of(op);
    ++time_.op_calls;
    const int64_t self = op.self_ns;
    const int64_t profiler = std::min(self, profiler_ns_);
    const int64_t rest = self - profiler;
    ProductSums* product = kind == HostPart::compute ? add_product(op) : nullptr;
    const bool is_call = product != nullptr && product->product.is_dispatch;
    const int64_t dispatch =
        kind == HostPart::dispatch ? rest : std::min(rest, is_call ? kCallGapNs : kDispatchNsPerOp);
    part(HostPart::profiler) += profiler;
    part(HostPart::dispatch) += dispatch;
    OpSums& sums = ops_[op.event.name];
    sums.op.part = kind;
    ++sums.op.count;
    sums.op.self_ns += self;
    const int64_t work = kind == HostPart::dispatch ? 0 : rest - dispatch;
    if (product != nullptr)
      product->work_ns += work;  // counted once the rates of all products are known
    else
      part(kind) += work;
    if (op.event.dur_ns > 0)
      for (OpVisitor* visitor : visitors_) visitor->visit(op);
    if (!is_elementwise(op.kind) || !op.bytes()) return;
    sums.bytes += op.bytes()->moved;
    sums.bytes_ns += op.event.dur_ns;
    ++sums.bytes_calls;
  }

  // Null where the op is no product of known sizes. Among nested products (linear, addmm) the
  // innermost counts.
  ProductSums* add_product(const VisitedOp& op) {
    if (op.kind != OpClass::gemm || op.inputs.empty()) return nullptr;
    const auto problem = gemm_problem(op.name, op.inputs);
    if (!problem) return nullptr;
    const GemmShape& s = problem->shape;
    const std::string key = std::string(op.name) + '/' + std::to_string(s.batch) + '/' +
                            std::to_string(s.m) + '/' + std::to_string(s.n) + '/' +
                            std::to_string(s.k) + '/' + problem->a_type;
    ProductSums& sums = products_[key];
    if (sums.times_ns.empty()) describe(*problem, op.name, sums.product);
    // A bias that addmm copies and an activation that it calls are ops of their own.
    sums.times_ns.push_back(op.self_ns);
    return &sums;
  }

  void describe(const GemmProblem& problem, std::string_view op, HostProduct& product) const {
    const GemmShape& s = problem.shape;
    product.op = op;
    product.shape = s;
    product.type = problem.a_type;
    const auto m = static_cast<double>(s.m);
    const auto n = static_cast<double>(s.n);
    const auto k = static_cast<double>(s.k);
    const double bytes = static_cast<double>(element_bytes_x2(problem.a_type).value_or(8)) / 2 *
                         (m * k + k * n + m * n);
    product.flops_per_byte = bytes > 0 ? 2 * m * n * k / bytes : 0;
    const double sure_ns =
        (2 * m * n * k / kSlowProductGflops + bytes / kSureGbPerS) * static_cast<double>(s.batch);
    product.is_dispatch = sure_ns < static_cast<double>(kDispatchNsPerOp);
    product.waits_for_memory =
        !product.is_dispatch && product.flops_per_byte < kLeastFlopsPerByte &&
        bytes * static_cast<double>(s.batch) > static_cast<double>(time_.cache_bytes);
  }

  void finish() {
    for (auto& [name, sums] : ops_) {
      sums.op.name = std::string(trace_.strings[name]);
      if (sums.bytes_ns > 0)
        sums.op.gb_per_s = static_cast<double>(sums.bytes) / static_cast<double>(sums.bytes_ns);
      if (sums.bytes_calls > 0) sums.op.bytes_per_call = sums.bytes / sums.bytes_calls;
      time_.ops.push_back(std::move(sums.op));
    }
    std::stable_sort(time_.ops.begin(), time_.ops.end(),
                     [](const HostOp& a, const HostOp& b) { return a.self_ns > b.self_ns; });
    std::map<std::string_view, double> best_gflops;  // by type, of those that compute enough
    for (auto& [key, sums] : products_) {
      HostProduct& p = sums.product;
      p.time = *distribution(std::move(sums.times_ns));
      if (p.time.median_ns > 0) p.gflops = p.shape.flops() / static_cast<double>(p.time.median_ns);
      if (p.is_dispatch || p.flops_per_byte < kLeastFlopsPerByte) continue;
      double& best = best_gflops[p.type];
      best = std::max(best, p.gflops);
    }
    for (auto& [key, sums] : products_) {
      HostProduct& p = sums.product;
      if (const auto best = best_gflops.find(p.type); best != best_gflops.end())
        p.waits_for_memory = p.waits_for_memory && p.gflops < kRateOfNoWait * best->second;
      part(p.waits_for_memory ? HostPart::memory : HostPart::compute) += sums.work_ns;
      time_.products.push_back(p);
    }
    std::stable_sort(time_.products.begin(), time_.products.end(),
                     [](const HostProduct& a, const HostProduct& b) {
                       return a.time.total_ns > b.time.total_ns;
                     });
    judge();
  }

  // As for a device: what it works decides if that is half of the time, else the largest loss.
  void judge() {
    const int64_t work = part(HostPart::compute) + part(HostPart::memory);
    const int64_t overhead = part(HostPart::dispatch) + part(HostPart::between_ops);
    const int64_t data = part(HostPart::data);
    const auto judged = static_cast<double>(time_.wall_ns - part(HostPart::profiler));
    if (static_cast<double>(work) * 100 >= kDeviceBoundPct * judged && work > 0) {
      const bool is_compute = static_cast<double>(part(HostPart::compute)) * 100 >=
                              kComputeBoundPct * static_cast<double>(work);
      time_.bound = is_compute ? Bound::compute : Bound::memory;
    } else {
      time_.bound = data > overhead ? Bound::data : Bound::overhead;
    }
  }

  const Trace& trace_;
  const Links& links_;
  std::span<OpVisitor* const> visitors_;
  ThreadKey thread_;
  std::vector<std::optional<std::optional<HostPart>>> part_of_name_;  // by StringId
  IntervalSet windows_;
  IntervalSet data_;       // in the data loader
  IntervalSet compiling_;  // in torch.compile itself: Python, whatever ops it calls
  std::vector<int64_t> self_ns_;
  int64_t profiler_ns_;
  std::map<StringId, OpSums> ops_;
  std::map<std::string, ProductSums> products_;
  HostTime time_;
};

}  // namespace

std::string_view host_part_name(HostPart part) { return kHostPartNames[static_cast<size_t>(part)]; }

VisitedOp::VisitedOp(const Trace& of, const Links& its_links, uint32_t at, int64_t own_ns)
    : trace(of),
      links(its_links),
      index(at),
      event(of.events[at]),
      name(of.name(event)),
      kind(op_class(name)),
      self_ns(own_ns),
      inputs(recorded_inputs(of, event)) {}

const std::optional<OpBytes>& VisitedOp::bytes() const {
  if (!bytes_) bytes_ = bytes_of_op(*this);
  return *bytes_;
}

std::optional<HostTime> host_time(const Trace& trace, const Links& links,
                                  std::span<OpVisitor* const> visitors, const CpuPeaks* cpu) {
  if (!links.device_work.empty() || !links.launches.empty()) return std::nullopt;
  const bool has_ops = std::any_of(trace.events.begin(), trace.events.end(),
                                   [](const Event& e) { return e.category == Category::cpu_op; });
  if (!has_ops) return std::nullopt;
  return HostAccount(trace, links, visitors, cpu).run();
}

std::optional<HostTime> host_time(const Trace& trace, const Links& links) {
  return host_time(trace, links, {}, nullptr);
}

}  // namespace epilogue::trace
