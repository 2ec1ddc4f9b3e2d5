// SPDX-License-Identifier: Apache-2.0
// Memory that goes back to the system after each use comes back page by page.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Results of so many bytes may be new memory; they are if the op is so many times slower than ops
// in place.
constexpr int64_t kPerhapsFreshBytes = 4 << 20;
constexpr double kSurelyFresh = 4;
// Ops in place on so many bytes show the rate of memory in use.
constexpr int64_t kWarmBytes = kFreshBytes / 4;
constexpr double kMuchFaster = 2;

std::string page_faults_text() {
  return fmt::format(
      "results of {} or more at less than 1 / {} of the rate of simple ops on memory in use, or, "
      "if ops in place on {} or more show that rate, results of {} or more at less than 1 / {} of "
      "it and below {} GB/s; {}",
      round_bytes(kFreshBytes), kMuchFaster, round_bytes(kWarmBytes),
      round_bytes(kPerhapsFreshBytes), kSurelyFresh, kSureGbPerS / kSurelyFresh, share_of_wall());
}

// Simple ops that write into new memory: kFreshBytes or more, or less if they are much slower than
// ops in place.
class NewPages : public OpVisitor {
 public:
  struct Result {
    OpLosses ops;
    int64_t least_bytes = 0;   // the smallest result of `ops`
    double warm_gb_per_s = 0;  // of simple ops in memory that was used before
  };

  void visit(const VisitedOp& op) override {
    if (!op.is_simple() || !op.bytes() || !op.works_itself()) return;
    const auto [bytes, written] = *op.bytes();
    const int64_t ns = op.event.dur_ns;
    const double rate = static_cast<double>(bytes) / static_cast<double>(ns);
    const bool is_pointwise = op.kind == OpClass::pointwise;
    // Fills and copies may be the first to write a tensor, whatever their names end with.
    const bool overwrites = is_in_place(op.name) && is_pointwise;
    if (overwrites && written >= kWarmBytes) {
      has_large_warm_ = true;
      large_warm_ = std::max(large_warm_, rate);
    } else if (!overwrites && written >= kFreshBytes && is_pointwise) {
      add(found_, {op.name, ns, bytes, written});
    } else if (written >= kManyBytes && written < kFreshBytes) {
      if (is_pointwise) small_warm_ = std::max(small_warm_, rate);
      if (!overwrites && written >= kPerhapsFreshBytes)
        perhaps_.push_back({op.name, ns, bytes, written});
    }
  }

  Result result() const {
    Result all = found_;
    all.warm_gb_per_s = has_large_warm_ ? large_warm_ : std::min(small_warm_, kSureGbPerS);
    if (!has_large_warm_) return all;
    // Smaller blocks come from the system as well if what lies behind them in memory was given
    // back.
    for (const Call& call : perhaps_)
      if (static_cast<double>(call.bytes) * kSurelyFresh <
          std::min(large_warm_, kSureGbPerS) * static_cast<double>(call.ns))
        add(all, call);
    return all;
  }

 private:
  struct Call {
    std::string_view name;
    int64_t ns;
    int64_t bytes;
    int64_t written;
  };
  static void add(Result& result, const Call& call) {
    result.least_bytes =
        result.ops.empty() ? call.written : std::min(result.least_bytes, call.written);
    result.ops.add(call.name, call.ns, call.bytes);
  }

  Result found_;
  std::vector<Call> perhaps_;
  bool has_large_warm_ = false;
  double large_warm_ = 0;
  double small_warm_ = 0;
};

void find_page_faults(const Explanation& e, const NewPages& pages, std::vector<Finding>& out) {
  const NewPages::Result found = pages.result();
  double saved_ns = 0;
  int64_t ns = 0;
  std::vector<std::string> lines;
  std::vector<Claim> claims;
  for (const OpLoss& op : found.ops.by_time()) {
    if (op.gb_per_s() * kMuchFaster >= found.warm_gb_per_s) continue;
    ns += op.ns;
    const double op_saved_ns =
        static_cast<double>(op.ns) * (1 - op.gb_per_s() / found.warm_gb_per_s);
    // The rest is what the op takes on memory in use: other findings may be about it.
    claims.push_back({{std::string(op.name)}, op_saved_ns / kNsPerUs});
    saved_ns += op_saved_ns;
    if (lines.size() < kHostFindings)
      lines.push_back(fmt::format("{}: {} in {}, {}, {:.1f} GB/s", op.name, duration(op.ns),
                                  counted(op.count, "call", "calls"), bytes_each(op),
                                  op.gb_per_s()));
  }
  if (lines.empty() || !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("results of {} or more are written to new memory each time, which takes {}",
                        format_bytes(static_cast<double>(found.least_bytes)), share(*e.host, ns));
  f.evidence = std::move(lines);
  f.claims = std::move(claims);
  f.evidence.push_back(fmt::format("ops on memory in use reach {:.1f} GB/s", found.warm_gb_per_s));
  advise(f,
         "write in place or with out=, work in smaller blocks, or keep freed memory in the process "
         "(jemalloc or tcmalloc by LD_PRELOAD)");
  f.saving_us = saved_ns / kNsPerUs;
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kPageFaultsRule = {
    .id = "page-faults",
    .says = "that simple ops of a run without a device write into new memory each time",
    .said_if = [] { return page_faults_text(); },
    .visits = visits_of<NewPages, find_page_faults>()};

}  // namespace epilogue::trace
