// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/bench_case.h"

#include <fmt/format.h>

#include "bench/agreement.h"
#include "epilogue/ops.h"

namespace epilogue::tool {
namespace {

// The result that every other one is compared with.
struct Judge {
  std::vector<int64_t> rows;
  Tensor exact;  // those rows, in double
  bench::Tolerance tolerance;

  double error_of(const Tensor& y) const {
    const Tensor all = reshape(y, {-1, exact.size(1)});
    return bench::relative_l2(bench::rows_of(all, rows), exact);
  }
};

Judge make_judge(const BenchOptions& o, const bench::Model& model, const Tensor& x) {
  const Tensor rows = reshape(x, {-1, x.size(-1)});
  Judge judge{bench::checked_rows(rows.size(0)), {}, bench::tolerance_for(x.dtype(), model)};
  if (o.tolerance) judge.tolerance.against_exact = *o.tolerance;
  judge.exact = bench::exact_rows(model, rows, judge.rows);
  return judge;
}

// Appends a line for each result that is too far from the product in double, or, in the rows that
// are not computed in double, from eager's. Returns the errors.
std::vector<double> judge_all(const Judge& judge, const std::vector<BenchContender>& contenders,
                              std::vector<std::string>& disagreements) {
  std::vector<double> errors;
  for (const BenchContender& c : contenders) {
    errors.push_back(judge.error_of(c.result));
    const double difference = bench::relative_l2(c.result, contenders.front().result);
    const double allowed = c.allowed_error.value_or(judge.tolerance.against_exact);
    // Negated: NaN is no agreement.
    if (!(errors.back() <= allowed)) {
      disagreements.push_back(
          fmt::format("{}: relative L2 error {:.1e} against double, allowed {:.1e}", c.timed.name,
                      errors.back(), allowed));
    } else if (!c.allowed_error && !(difference <= judge.tolerance.between)) {
      disagreements.push_back(
          fmt::format("{}: relative L2 distance {:.1e} from eager, allowed {:.1e}", c.timed.name,
                      difference, judge.tolerance.between));
    }
  }
  return errors;
}

}  // namespace

BenchCase run_bench_case(const BenchOptions& o, TorchChoice& torch,
                         const std::function<void(const std::string&)>& progress) {
  const Workload workload = make_workload(exact_options(o.workload));
  const bench::Model model = model_of(workload);
  const Judge judge = make_judge(o, model, workload.input);
  BenchContenders all = make_contenders(workload, model, o.workload, torch, progress);
  BenchCase result{workload.what, workload.shape, {}, std::move(all.skipped), {}};
  const std::vector<double> errors = judge_all(judge, all.present, result.disagreements);
  if (!result.disagreements.empty()) return result;

  progress("timing");
  std::vector<bench::Contender> timed;
  for (BenchContender& c : all.present) {
    c.result = {};  // its memory is free for the calls
    timed.push_back(c.timed);
  }
  const auto timings =
      bench::interleave(timed, bench::plan_for(timed, o.seconds, bench::kSampleUs));
  const int64_t rows = workload.input.numel() / workload.input.size(-1);
  const double flops = bench::product_flops(model, rows);
  for (size_t i = 0; i < timings.size(); ++i)
    result.rows.push_back({timings[i], flops / timings[i].min_ns,
                           timings.front().min_ns / timings[i].min_ns, errors[i],
                           all.present[i].peak_intermediate_bytes});
  return result;
}

}  // namespace epilogue::tool
