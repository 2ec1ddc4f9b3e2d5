// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// In GB/s, over the median.
double moved_gb_per_s(const HostProduct& p) {
  return p.flops_per_byte > 0 ? p.gflops / p.flops_per_byte : 0;
}

// The product with the same weights and the most rows beyond those of `p`; null if there is none.
const HostProduct* with_more_rows(const HostTime& host, const HostProduct& p) {
  const HostProduct* most = nullptr;
  for (const HostProduct& other : host.products)
    if (other.type == p.type && other.shape.n == p.shape.n && other.shape.k == p.shape.k &&
        other.shape.m > p.shape.m && (most == nullptr || other.shape.m > most->shape.m))
      most = &other;
  return most;
}

// A square matrix for each of few rows: rotations, permutations, scales and shears.
bool is_matrix_for_each(const HostProduct& p) {
  return p.shape.batch >= 16 && p.shape.n == p.shape.k && 4 * p.shape.m <= p.shape.n;
}

// More rows are advised where the run shows that they help; else it is a question.
std::string rows_advice(const HostTime& host, const HostProduct& p) {
  constexpr std::string_view kFewerBytes = "weights of fewer bytes (bf16, int8) move less";
  const HostProduct* more = with_more_rows(host, p);
  if (more == nullptr)
    return fmt::format(
        "would more rows at once (batches) do? they read the weights once for all, "
        "which was not measured in this run; {}",
        kFewerBytes);
  const std::string measured = fmt::format("{} rows reach {:.1f} GFLOP/s here, {} rows {:.1f}",
                                           more->shape.m, more->gflops, p.shape.m, p.gflops);
  return more->gflops > p.gflops
             ? fmt::format("more rows at once (batches): {}; {}", measured, kFewerBytes)
             : fmt::format("{}; more rows at once do not help: {}", kFewerBytes, measured);
}

void find_bandwidth_products(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  // Products that move fewer bytes than one core does wait for something else: threads, mostly.
  // Those of attention that is written out are that finding's.
  const bool is_attention = is_said(out, kUnfusedAttentionRule);
  const auto waiting = products_that(host, [&](const HostProduct& p) {
    return p.waits_for_memory && moved_gb_per_s(p) >= kContendedGbPerS &&
           !(is_attention && p.op.find("bmm") != std::string::npos);
  });
  const int64_t ns = total_of(waiting);
  if (waiting.empty() || !is_notable(host, ns)) return;
  const HostProduct& first = *waiting.front();
  const bool is_few_rows = first.shape.m <= std::min(first.shape.n, first.shape.k);
  Finding f;
  f.cost_us = to_us(ns);
  f.title = fmt::format("{} take {}: memory's bandwidth limits them",
                        is_few_rows ? "products of few rows" : "narrow products", share(host, ns));
  add_product_lines(host, waiting, f);
  f.evidence.push_back(
      fmt::format("{:.1f} FLOPs for each byte: the first reads and writes {:.1f} GB/s",
                  first.flops_per_byte, moved_gb_per_s(first)));
  const std::string cpu =
      host.peaks && !host.peaks->family.empty() ? host.peaks->family : "this machine";
  f.evidence.push_back(
      host.is_cache_known
          ? fmt::format("operands are larger than the {} that the L2 caches hold ({})",
                        format_bytes(static_cast<double>(host.cache_bytes)), cpu)
          : fmt::format("the CPU's caches are not known: {} of L2 is assumed; --cpu names the CPU",
                        round_bytes(host.cache_bytes)));
  advise(f, is_matrix_for_each(first)
                ? "each of these batches multiplies few rows by a square matrix of its own: if the "
                  "matrices hold few numbers, apply these elementwise (a rotation by pairs, as "
                  "rotary positions: x * cos + rotate_half(x) * sin; a diagonal: x * d; a "
                  "permutation: index_select; low rank: two narrow products); if all are one "
                  "matrix, one product of all rows; else bf16, which halves what is read"
            : is_few_rows
                ? rows_advice(host, first)
                : "few columns or a short sum make them so: operands of fewer bytes (bf16) "
                  "help, larger batches do not");
  claim_products(f, waiting);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kBandwidthProductsRule = {
    .id = "bandwidth-products",
    .says = "which products of a run without a device wait for memory",
    .said_if =
        [] {
          return fmt::format(
              "they compute fewer than {} FLOPs for each byte, have operands of more than {} (with "
              "--cpu, than the L2 caches of its "
              "cores hold), run "
              "at less than {} of the rate of other shapes, move {} GB/s or more, and take {}",
              kLeastFlopsPerByte, round_bytes(kCoreCacheBytes), percent_text(kRateOfNoWait),
              kContendedGbPerS, share_of_wall());
        },
    .find = find_bandwidth_products};

}  // namespace epilogue::trace
