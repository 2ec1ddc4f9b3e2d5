// SPDX-License-Identifier: Apache-2.0
// Findings about runs without a device: what the host's time goes to.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/aten_ops.h"
#include "analysis/findings/rules.h"

namespace epilogue::trace {
namespace {

constexpr double kNotableShare = 0.1;  // of the wall time
constexpr size_t kHostFindings = 3;

bool is_notable(const HostTime& host, int64_t ns) {
  return static_cast<double>(ns) >= kNotableShare * static_cast<double>(host.wall_ns);
}

double share_of_run_pct(const HostTime& host, int64_t ns) {
  return host.wall_ns > 0 ? 100.0 * static_cast<double>(ns) / static_cast<double>(host.wall_ns) : 0;
}

std::string share(const HostTime& host, int64_t ns) {
  return fmt::format("{} of {} ({:.0f} %)", duration(ns), duration(host.wall_ns),
                     share_of_run_pct(host, ns));
}

std::string product_line(const HostProduct& p) {
  const std::string batch = p.shape.batch > 1 ? fmt::format("{} x ", p.shape.batch) : "";
  return fmt::format("{} {}{} x {} x {} {}: {}, {} in all, {:.1f} GFLOP/s", p.op, batch, p.shape.m,
                     p.shape.n, p.shape.k, p.type, counted(p.time.count, "execution", "executions"),
                     duration(p.time.total_ns), p.gflops);
}

// Products of one kind, by time.
template <class Predicate>
std::vector<const HostProduct*> products_that(const HostTime& host, Predicate&& is_one) {
  std::vector<const HostProduct*> list;
  for (const HostProduct& p : host.products)
    if (is_one(p)) list.push_back(&p);
  return list;
}

int64_t total_of(const std::vector<const HostProduct*>& products) {
  int64_t ns = 0;
  for (const HostProduct* p : products) ns += p->time.total_ns;
  return ns;
}

void add_product_lines(const std::vector<const HostProduct*>& products, Finding& f) {
  for (size_t i = 0; i < std::min(kHostFindings, products.size()); ++i)
    f.evidence.push_back(product_line(*products[i]));
  if (products.size() > kHostFindings)
    f.evidence.push_back(fmt::format("and {} more", products.size() - kHostFindings));
}

double flops_of(const HostProduct& p) { return p.gflops * static_cast<double>(p.time.median_ns); }

bool is_16_bit(const HostProduct& p) { return p.type == "bf16" || p.type == "f16"; }

// The fastest large f32 product of the trace in GFLOP/s: what the machine is known to do.
double fastest_f32(const HostTime& host) {
  double best = 0;
  for (const HostProduct& p : host.products)
    if (p.type == "f32" && flops_of(p) >= kLargeProductFlops) best = std::max(best, p.gflops);
  return best;
}

// Simple ops that move far fewer bytes than one core does, by time.
std::vector<const HostOp*> contended_ops(const HostTime& host) {
  std::vector<const HostOp*> list;
  for (const HostOp& op : host.ops)
    if (op.gb_per_s && *op.gb_per_s < kContendedGbPerS && op.bytes_per_call >= kManyBytes &&
        !is_transcendental(op.name))
      list.push_back(&op);
  return list;
}

void find_contention(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const std::vector<const HostOp*> ops = contended_ops(*e.host);
  int64_t ns = 0;
  for (const HostOp* op : ops) ns += op->self_ns;
  if (ops.empty() || !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "simple ops move {:.2f} GB/s, less than one core does: threads wait for each other or for "
      "busy cores",
      *ops.front()->gb_per_s);
  for (size_t i = 0; i < std::min(kHostFindings, ops.size()); ++i)
    f.evidence.push_back(
        fmt::format("{}: {} in {}, {} each, {:.2f} GB/s", ops[i]->name, duration(ops[i]->self_ns),
                    counted(ops[i]->count, "call", "calls"),
                    format_bytes(static_cast<double>(ops[i]->bytes_per_call)), *ops[i]->gb_per_s));
  f.evidence.emplace_back(
      "all other ops suffer as well: use no more threads than free cores (OMP_NUM_THREADS, "
      "torch.set_num_threads), one process per core, or an idle machine");
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

// A type that the CPU has no instructions for: slower than a third of the trace's own f32, or
// slower than any CPU with them is.
void find_slow_dtype(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const double f32 = fastest_f32(host);
  // Where everything is slow, the type need not be the cause.
  if (f32 == 0 && !contended_ops(host).empty()) return;
  const double limit = f32 > 0 ? f32 / 3 : kSlowProductGflops;
  const auto slow = products_that(host, [&](const HostProduct& p) {
    return is_16_bit(p) && !p.waits_for_memory && flops_of(p) >= kLargeProductFlops &&
           p.gflops < limit;
  });
  const int64_t ns = total_of(slow);
  if (slow.empty() || !is_notable(host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("products in {} take {}: this CPU most likely has no instructions for {}",
                        slow.front()->type, share(host, ns), slow.front()->type);
  add_product_lines(slow, f);
  if (f32 > 0) {
    f.evidence.push_back(fmt::format("f32 products of this trace reach {:.1f} GFLOP/s", f32));
    double saved_ns = 0;
    for (const HostProduct* p : slow)
      saved_ns += static_cast<double>(p->time.total_ns) * (1 - p->gflops / f32);
    f.saving_us = saved_ns / kNsPerUs;
  } else {
    f.evidence.push_back(fmt::format(
        "one core does more than {:.0f} GFLOP/s in f32: compare with f32 products of these sizes",
        kSlowProductGflops));
  }
  f.cost_us = to_us(ns);
  f.evidence.emplace_back(
      "run in float32 (without torch.autocast), or on a CPU with AVX512-BF16 or AMX");
  out.push_back(std::move(f));
}

// oneDNN did not take the convolution.
void find_fallback_convolution(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  for (const HostOp& op : e.host->ops) {
    if (op.name.find("_slow_conv") == std::string::npos &&
        op.name.find("thnn_conv") == std::string::npos)
      continue;
    if (!is_notable(*e.host, op.self_ns)) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("{} takes {}: oneDNN did not take this convolution", op.name,
                          share(*e.host, op.self_ns));
    f.evidence.push_back(fmt::format("{}, mean {}", counted(op.count, "call", "calls"),
                                     duration(op.self_ns / op.count)));
    f.cost_us = to_us(op.self_ns);
    f.evidence.emplace_back(
        "oneDNN takes float32, and bf16 or f16 only on CPUs with instructions for it: run it in "
        "float32, and see that torch.backends.mkldnn.enabled is True");
    out.push_back(std::move(f));
  }
}

void find_host_data(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const int64_t ns = e.host->of(HostPart::data);
  if (!is_worth_it(e, to_us(ns))) return;
  Finding f;
  f.id = "data-loader";
  f.severity = Severity::warning;
  f.title = fmt::format("the data loader takes {}", share(*e.host, ns));
  bool is_single = false;
  for (size_t i = 0; i < std::min(kHostFindings, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    is_single = is_single || spot.name.find("SingleProcess") != std::string::npos;
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  f.evidence.emplace_back(
      is_single ? "it loads in the training process: num_workers > 0 loads beside the model, "
                  "persistent_workers keeps the workers; cheaper decoding helps in any case"
                : "more loader workers (num_workers), fetching ahead (prefetch_factor) or cheaper "
                  "decoding help");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_between_ops(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const int64_t ns = host.of(HostPart::between_ops);
  if (!is_notable(host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("{} pass between ops: Python, or code that is not traced", share(host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, host.functions.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", host.functions[i].name,
                                     counted(host.functions[i].count, "call", "calls"),
                                     duration(host.functions[i].self_ns)));
  if (host.functions.empty()) f.evidence.emplace_back("with_stack=True names the functions");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_dispatch(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const int64_t ns = host.of(HostPart::dispatch);
  if (!is_notable(host, ns) || host.op_calls == 0) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("calling {} takes {}", counted(host.op_calls, "op", "ops"), share(host, ns));
  std::vector<const HostOp*> most;
  for (const HostOp& op : host.ops) most.push_back(&op);
  std::stable_sort(most.begin(), most.end(),
                   [](const HostOp* a, const HostOp* b) { return a->count > b->count; });
  for (size_t i = 0; i < std::min(kHostFindings, most.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, mean {}", most[i]->name,
                                     counted(most[i]->count, "call", "calls"),
                                     duration(most[i]->self_ns / most[i]->count)));
  f.evidence.emplace_back(
      "fewer, larger ops help: batches instead of loops over elements, torch.compile; recording "
      "is left out");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_bandwidth_products(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const auto waiting = products_that(host, [](const HostProduct& p) { return p.waits_for_memory; });
  const int64_t ns = total_of(waiting);
  if (waiting.empty() || !is_notable(host, ns)) return;
  const HostProduct& first = *waiting.front();
  Finding f;
  f.cost_us = to_us(ns);
  f.title =
      fmt::format("products of few rows take {}: memory's bandwidth limits them", share(host, ns));
  add_product_lines(waiting, f);
  if (first.flops_per_byte > 0)
    f.evidence.push_back(
        fmt::format("{:.1f} FLOPs for each byte: the first reads and writes {:.1f} GB/s",
                    first.flops_per_byte, first.gflops / first.flops_per_byte));
  f.evidence.emplace_back(
      "more rows at once (batches), or weights of fewer bytes (bf16, int8), help");
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kContentionRule = {"thread-contention", find_contention};
constinit const ExplanationRule kSlowDtypeRule = {"slow-dtype", find_slow_dtype};
constinit const ExplanationRule kFallbackConvolutionRule = {"fallback-convolution",
                                                            find_fallback_convolution};
constinit const ExplanationRule kHostDataRule = {"", find_host_data};
constinit const ExplanationRule kBetweenOpsRule = {"between-ops", find_between_ops};
constinit const ExplanationRule kDispatchRule = {"dispatch", find_dispatch};
constinit const ExplanationRule kBandwidthProductsRule = {"bandwidth-products",
                                                          find_bandwidth_products};

}  // namespace epilogue::trace
