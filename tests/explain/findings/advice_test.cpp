// SPDX-License-Identifier: Apache-2.0
// What findings say and advise, where an expert would say something else of another run.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::advice_test {

using namespace testing;

// An op that launches one kernel at its start.
void launching(GpuTrace& b, const char* op, const char* kernel, int64_t at_us, int64_t kernel_us) {
  static int64_t correlation = 0;
  ++correlation;
  b.op(op, at_us * kUs, (at_us + 4) * kUs);
  b.call("cudaLaunchKernel", at_us * kUs, (at_us + 2) * kUs, correlation);
  b.gpu_kernel(kernel, (at_us + 5) * kUs, (at_us + 5 + kernel_us) * kUs, correlation);
}

TEST(Advice, WhereTheDeviceLimitsTheRunTheVerdictNamesWhatItWorksOn) {
  GpuTrace b;
  const char* gather =
      "void at::native::(anonymous namespace)::gather<16, at::f(int)>(char*, char*, long*)";
  launching(b, "aten::index", gather, 0, 400);
  launching(b, "aten::index", gather, 410, 200);
  launching(b, "aten::bmm", "ampere_sgemm_128x64_tn", 620, 360);
  launching(b, "aten::add", "vectorized_elementwise_kernel", 990, 40);
  const Explanation e = explain(b);
  EXPECT_EQ(e.verdicts.whole.bound, Bound::memory);
  const Finding& verdict = e.findings.front();
  EXPECT_TRUE(has_line(verdict,
                       "at::native::(anonymous namespace)::gather<16, at::f(int)> in aten::index: "
                       "600 us (60 % of the device's work), 2 times"));
  EXPECT_TRUE(has_line(verdict,
                       "ampere_sgemm_128x64_tn in aten::bmm: 360 us (36 % of the device's "
                       "work), 1 time"));
  for (const std::string& line : verdict.evidence)
    EXPECT_LACKS(line, "elementwise") << "4 % is no reason";
  EXPECT_EQ(verdict.where, FindingPlace::device);

  GpuTrace idle;
  launching(idle, "aten::index", "vectorized_gather_kernel<16, long>", 0, 40);
  launching(idle, "aten::index", "vectorized_gather_kernel<16, long>", 900, 40);
  const Explanation waiting = explain(idle);
  for (const std::string& line : waiting.findings.front().evidence)
    EXPECT_LACKS(line, "gather") << "the host limits it";
  EXPECT_EQ(waiting.findings.front().where, FindingPlace::host);
}

// Two steps of a run on CPUs whose ranks sum their gradients; the other rank is late.
GpuTrace gloo_trace(const char* collective) {
  GpuTrace b;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t at = 1000 * i * kUs;
    b.annotation("ProfilerStep#" + std::to_string(i), at, at + 1000 * kUs);
    b.op("aten::mm", at, at + 150 * kUs);
    b.inputs({tensor({256, 256}), tensor({256, 256})});
    b.annotation(collective, at + 100 * kUs, at + 900 * kUs, 7);
    b.op("aten::add_", at + 900 * kUs, at + 1000 * kUs);
  }
  return b;
}

TEST(Advice, WaitingForCollectivesIsNoPython) {
  const Explanation e = explain(gloo_trace("gloo:all_reduce"));
  const Finding f = finding_of(e, "exposed-collectives");
  EXPECT_EQ(f.title,
            "collectives run for 1.50 ms of 2.00 ms (75 %) in which no op does: the run most "
            "likely waits for them");
  EXPECT_EQ(f.evidence.front(), "gloo:all_reduce: 2 collectives, median 800 us, in all 1.60 ms");
  EXPECT_DOUBLE_EQ(*f.cost_us, 1500);
  EXPECT_FALSE(f.saving_us) << "they have to be";
  EXPECT_EQ(f.where, FindingPlace::host);
  EXPECT_EQ(find_finding(e, "between-ops"), nullptr);
  EXPECT_EQ(e.findings.front().title,
            "overhead-bound on the CPU: waiting for collectives takes 75 % of the time");
  ASSERT_TRUE(e.host->collectives);
  EXPECT_EQ(e.host->collectives->alone_ns, 1500 * kUs);

  const Explanation python = explain(gloo_trace("my_annotation"));
  EXPECT_EQ(find_finding(python, "exposed-collectives"), nullptr);
  EXPECT_NE(find_finding(python, "between-ops"), nullptr);
  EXPECT_HAS(python.findings.front().title, "Python between them");
}

// Views before each of 6 kernels, of which the first are started by compiled code.
GpuTrace views_trace(int compiled) {
  GpuTrace b;
  if (compiled > 0) b.op("Torch-Compiled Region: 0/0", 0, (100 * compiled - 20) * kUs);
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t at = 100 * i * kUs;
    b.op("aten::view", at, at + 30 * kUs);
    b.op("aten::add", at + 30 * kUs, at + 60 * kUs);
    b.call("cudaLaunchKernel", at + 40 * kUs, at + 45 * kUs, i + 1);
    b.gpu_kernel("vectorized_elementwise_kernel", at + 50 * kUs, at + 55 * kUs, i + 1);
  }
  return b;
}

TEST(Advice, ACompiledRunIsNotToldToCompile) {
  const Explanation eager = explain(views_trace(2));
  const Explanation compiled = explain(views_trace(3));
  for (const char* id : {"no-launch-ops", "host-overhead"}) {
    const Finding* before = find_finding(eager, id);
    const Finding* after = find_finding(compiled, id);
    ASSERT_NE(before, nullptr) << id;
    ASSERT_NE(after, nullptr) << id;
    EXPECT_NE(before->action.find(", torch.compile;"),
              before->action.find("torch.compile leaves out"))
        << before->action;
    EXPECT_LACKS(after->action, ", torch.compile;");
    EXPECT_LACKS(after->action, "torch.compile leaves out");
    EXPECT_HAS(after->action, "CUDA graphs");
  }
}

TEST(Advice, OneFirstCallIsNoReasonForCudaGraphs) {
  for (const int64_t first_us : {2000, 200}) {
    GpuTrace b;
    b.op("aten::empty", 0, first_us * kUs);
    for (int64_t i = 0; i < 4; ++i)
      launching(b, "aten::add", "vectorized_elementwise_kernel", first_us + 100 * (i + 1), 5);
    const Explanation e = explain(b);
    const Finding& f = test::found(find_finding(e, "host-overhead"));
    const bool is_one = first_us == 2000;
    EXPECT_EQ(has_line(f, "one aten::empty takes 2.00 ms of that"), is_one);
    EXPECT_EQ(f.action.find("first calls") != std::string::npos, is_one) << f.action;
    EXPECT_EQ(f.action.find("CUDA graphs") == std::string::npos, is_one) << f.action;
  }
}

// A run whose only launches are of graphs is not told to use graphs.
TEST(Advice, LaunchesOfGraphsAreNotToldToBecomeGraphs) {
  for (const char* call : {"cudaGraphLaunch", "cudaLaunchKernel"}) {
    GpuTrace b;
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t at = 300 * i * kUs;
      b.op("aten::step", at, at + 100 * kUs);
      b.call(call, at + 50 * kUs, at + 90 * kUs, i + 1);
      b.gpu_kernel("vectorized_elementwise_kernel", at + 90 * kUs, at + 150 * kUs, i + 1);
    }
    const Explanation e = explain(b);
    const bool is_graph = std::string_view(call) == "cudaGraphLaunch";
    for (const char* id : {"launch-cost", "host-overhead"}) {
      const Finding* f = find_finding(e, id);
      ASSERT_NE(f, nullptr) << call << " " << id;
      EXPECT_EQ(f->action.find("CUDA graphs (") == std::string::npos, is_graph) << f->action;
      EXPECT_EQ(f->action.find("one graph for more of the step") != std::string::npos, is_graph)
          << f->action;
    }
  }
}

TEST(Advice, WithoutShortKernelsNothingIsSaidOfThem) {
  GpuTrace b;
  launching(b, "aten::mul", "vectorized_elementwise_kernel", 0, 5);
  launching(b, "aten::mul", "vectorized_elementwise_kernel", 50, 5);
  const Finding f = finding_of(explain(b), "launch-cost");
  for (const std::string& line : f.evidence) EXPECT_LACKS(line, "0 of 2");
}

TEST(Advice, ALoaderInTheTrainingProcessAsksForWorkers) {
  for (const char* name : {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                           "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"}) {
    GpuTrace b;
    b.annotation(name, 0, 400 * kUs);
    launching(b, "aten::mul", "vectorized_elementwise_kernel", 500, 40);
    b.annotation(name, 600 * kUs, 900 * kUs);
    launching(b, "aten::mul", "vectorized_elementwise_kernel", 950, 40);
    const Explanation e = explain(b);
    const Finding* f = find_finding(e, "data-loader");
    ASSERT_NE(f, nullptr) << name;
    const bool is_single = std::string_view(name).find("SingleProcess") != std::string_view::npos;
    EXPECT_EQ(f->action.find("num_workers > 0") != std::string::npos, is_single) << f->action;
    EXPECT_EQ(f->where, FindingPlace::host);
  }
}

TEST(Advice, OfManyCopiesTheLongestAreNamed) {
  GpuTrace b;
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t at = 200 * i * kUs;
    b.op("aten::op" + std::to_string(i), at, at + 100 * kUs);
    b.call("cudaMemcpyAsync", at, at + 100 * kUs, i + 1);
    b.work(Category::gpu_memcpy, "Memcpy HtoD (Pageable -> Device)", at + 10 * kUs,
           at + (90 - 10 * i) * kUs, i + 1);
  }
  const Finding f = finding_of(explain(b), "pageable-copies");
  ASSERT_EQ(f.evidence.size(), 5U);
  EXPECT_HAS(f.evidence[0], "aten::op0");
  EXPECT_EQ(f.evidence[3], "and 2 more, each shorter");
}

Explanation product_of(int64_t m, int64_t n, int64_t k, int64_t us) {
  GpuTrace b;
  b.op("aten::mm", 0, us * kUs);
  b.inputs({tensor({m, k}), tensor({k, n})});
  return explain(b);
}

TEST(Advice, AProductThatMovesNextToNothingDoesNotWaitForMemory) {
  const Explanation row = product_of(1, 4096, 4096, 8000);  // 67 MB: 8.4 GB/s
  const Finding few = finding_of(row, "bandwidth-products");
  EXPECT_EQ(few.title.find("products of few rows take 8.00 ms"), 0U);
  EXPECT_EQ(few.action.find("would more rows at once (batches) do?"), 0U) << "nobody measured it";
  const Explanation columns = product_of(256, 10, 1024, 115);  // 1.1 MB: 9.5 GB/s
  const Finding narrow = finding_of(columns, "bandwidth-products");
  EXPECT_EQ(narrow.title.find("narrow products take"), 0U);
  EXPECT_HAS(narrow.action, "larger batches do not");
  EXPECT_EQ(find_finding(product_of(256, 10, 1024, 60'000), "bandwidth-products"), nullptr)
      << "0.02 GB/s: something else is in its way";
}

TEST(Advice, MoreRowsAreAdvisedWhereTheRunShowsThatTheyHelp) {
  const auto action = [](int64_t us_of_four_rows) {
    GpuTrace b;
    b.op("aten::mm", 0, 8000 * kUs);  // 4.2 GFLOP/s
    b.inputs({tensor({1, 4096}), tensor({4096, 4096})});
    b.op("aten::mm", 8000 * kUs, (8000 + us_of_four_rows) * kUs);
    b.inputs({tensor({4, 4096}), tensor({4096, 4096})});
    const Explanation e = explain(b);
    const Finding* f = find_finding(e, "bandwidth-products");
    return f == nullptr ? std::string() : f->action;
  };
  EXPECT_EQ(action(9000).find("would more rows at once"), 0U)
      << "of the longest product nobody ran more rows";
  EXPECT_EQ(action(7900),
            "more rows at once (batches): 4 rows reach 17.0 GFLOP/s here, 1 rows 4.2; weights of "
            "fewer bytes (bf16, int8) move less");
}

TEST(Advice, CountsOfKernelsAreWrittenAlike) {
  GpuTrace b;
  for (int64_t i = 0; i < 1200; ++i) {
    const int64_t at = 20 * i * kUs;
    b.op("aten::mul", at, at + 12 * kUs);
    b.call("cudaLaunchKernel", at + 1 * kUs, at + 11 * kUs, i + 1);
    b.gpu_kernel("vectorized_elementwise_kernel", at + 12 * kUs, at + 14 * kUs, i + 1);
  }
  const Finding f = finding_of(explain(b), "launch-cost");
  EXPECT_EQ(f.evidence[0],
            "1,200 of 1,200 kernels take less time than the call that launches them");
}

// Two copies one after the other: one is a kernel, the other the copy engine's.
TEST(Advice, WhereNoKernelIsSavedNoneIsCounted) {
  GpuTrace b;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t at = 400 * i * kUs;
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t start = at + 150 * k * kUs;
      b.op("aten::copy_", start, start + 10 * kUs);
      const int64_t rows = 4096 - 64 * i;  // each pair is of its own
      b.inputs({tensor({rows, 4096}), tensor({rows, 4096}, k == 0 ? "double" : "float")});
      b.call(k == 0 ? "cudaLaunchKernel" : "cudaMemcpyAsync", start, start + 5 * kUs,
             2 * i + k + 1);
      if (k == 0)
        b.gpu_kernel("elementwise_kernel", start + 10 * kUs, start + 150 * kUs, 2 * i + k + 1);
      else
        b.work(Category::gpu_memcpy, "Memcpy DtoD (Device -> Device)", start + 10 * kUs,
               start + 150 * kUs, 2 * i + k + 1);
    }
  }
  const Finding f = finding_of(explain(b), "fusion");
  EXPECT_EQ(f.evidence[0].find("1 time, 280 us in all, result ["), 0U) << f.evidence[0];
}

TEST(Advice, FindingsSayWhoseTimeTheyAreAbout) {
  GpuTrace b;
  for (int64_t i = 0; i < 40; ++i)  // no gap is long by itself
    launching(b, "aten::mul", "vectorized_elementwise_kernel", 400 * i, 5);
  const Explanation e = explain(b);
  EXPECT_EQ(finding_of(e, "host-overhead").where, FindingPlace::host);
  for (const Finding& f : e.findings) EXPECT_TRUE(f.where) << f.id;
  EXPECT_EQ(finding_place_name(FindingPlace::host), "host");
  EXPECT_EQ(finding_place_name(FindingPlace::device), "device");
}

}  // namespace epilogue::trace::advice_test
