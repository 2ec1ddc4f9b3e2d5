// SPDX-License-Identifier: Apache-2.0
// Findings about time that is lost for one reason: traces that have it, and traces that just do
// not.
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::loss_findings_test {

using namespace testing;

// Ops one after the other.
struct Line : GpuTrace {
  int64_t at_us = 0;
  void add(const char* name, int64_t us, std::vector<OpInput> of = {}) {
    op(name, at_us * kUs, (at_us + us) * kUs);
    if (!of.empty()) inputs(std::move(of));
    at_us += us;
  }
};

TEST(LossFindings, ProductsInDoubleTakeTwiceAsLong) {
  Line b;
  b.add("aten::mm", 900, {tensor({256, 256}, "double"), tensor({256, 256}, "double")});
  b.add("aten::relu", 100);
  const Finding f = finding_of(explain(b), "double-precision");
  EXPECT_DOUBLE_EQ(*f.saving_us, 450);
  EXPECT_DOUBLE_EQ(*f.remains_us(), 450);
  Line single;
  single.add("aten::mm", 900, {tensor({256, 256}), tensor({256, 256})});
  EXPECT_EQ(find_finding(explain(single), "double-precision"), nullptr);
}

// 64 MiB in 16 ms is 8.4 GB/s with what is read; in place 3.2 ms is 42.
TEST(LossFindings, LargeResultsInNewMemoryAreComparedWithOpsInPlace) {
  const OpInput large = tensor({16 << 20});
  Line b;
  b.add("aten::neg", 16'000, {large});
  b.add("aten::neg_", 3'200, {large});
  const Finding f = finding_of(explain(b), "page-faults");
  EXPECT_NEAR(*f.saving_us, 12'800, 1);
  EXPECT_NEAR(*f.cost_us, 16'000, 1e-9);
  Line fast;
  fast.add("aten::neg", 6'000, {large});
  fast.add("aten::neg_", 3'200, {large});
  EXPECT_EQ(find_finding(explain(fast), "page-faults"), nullptr);
  Line unknown;  // nothing to compare with
  unknown.add("aten::neg", 16'000, {large});
  EXPECT_EQ(find_finding(explain(unknown), "page-faults"), nullptr);
}

TEST(LossFindings, CopiesAreNamedByWhatAskedForThem) {
  GpuTrace b;
  b.op("aten::contiguous", 0, 500 * kUs);
  b.op("aten::clone", 1 * kUs, 499 * kUs);
  b.op("aten::copy_", 2 * kUs, 498 * kUs);
  b.op("aten::relu", 500 * kUs, 1000 * kUs);
  const Finding f = finding_of(explain(b), "copies");
  EXPECT_EQ(f.title, "copies take 496 us of 1.00 ms (50 %), most of it in aten::contiguous");
  GpuTrace bias;  // the copy of a bias is part of the product
  bias.op("aten::addmm", 0, 500 * kUs);
  bias.op("aten::copy_", 2 * kUs, 498 * kUs);
  EXPECT_EQ(find_finding(explain(bias), "copies"), nullptr);
}

TEST(LossFindings, JoiningWithinARollIsNoCacheThatGrows) {
  GpuTrace b;
  b.op("aten::roll", 0, 500 * kUs);
  b.op("aten::cat", 2 * kUs, 498 * kUs);
  b.op("aten::relu", 500 * kUs, 1000 * kUs);
  const Explanation e = explain(b);
  const Finding* f = find_finding(e, "copies");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title, "copies take 496 us of 1.00 ms (50 %), most of it in aten::roll");
  EXPECT_EQ(f->action.find("roll copies the whole tensor"), 0U) << f->action;
}

TEST(LossFindings, IndexingByAMaskIsTheCallThatSearches) {
  GpuTrace b;
  b.op("aten::index", 0, 300 * kUs);
  b.op("aten::nonzero", 10 * kUs, 200 * kUs);
  b.op("aten::relu", 300 * kUs, 1000 * kUs);
  EXPECT_DOUBLE_EQ(*finding_of(explain(b), "boolean-mask").cost_us, 300);
  GpuTrace plain;  // by numbers
  plain.op("aten::index", 0, 300 * kUs);
  EXPECT_EQ(find_finding(explain(plain), "boolean-mask"), nullptr);
}

// Products of one shape: decayed numbers make later ones 50 times as slow.
TEST(LossFindings, CallsOfOneShapeThatAreFarSlowerHintAtDenormalNumbers) {
  const auto run = [](std::vector<int64_t> times_us, const char* op) {
    GpuTrace b;
    int64_t at_us = 0;
    for (const int64_t us : times_us) {
      b.op(op, at_us * kUs, (at_us + us) * kUs);
      b.inputs({tensor({512, 512}), tensor({512, 512})});
      at_us += us;
    }
    return explain(b);
  };
  const Finding f = finding_of(run({2'000, 50'000, 150'000}, "aten::mm"), "uneven-calls");
  EXPECT_EQ(f.title,
            "2 of 3 calls of aten::mm with the same sizes take 50 times as long as the fastest: "
            "200 ms of 202 ms (99 %)");
  EXPECT_EQ(f.evidence.at(0), "512 x 512, 512 x 512: the fastest takes 2.00 ms, these 100 ms each");
  EXPECT_HAS(f.action, "torch.set_flush_denormal(True)");
  EXPECT_EQ(f.confidence, Confidence::medium);
  EXPECT_DOUBLE_EQ(*f.saving_us, 196'000);
  EXPECT_EQ(find_finding(run({20'000, 100'000, 100'000}, "aten::mm"), "uneven-calls"), nullptr)
      << "5 times";
  EXPECT_EQ(find_finding(run({2'000, 2'000, 100'000}, "aten::mm"), "uneven-calls"), nullptr)
      << "one call alone may have met other work on the machine";
  const Explanation sort = run({2'000, 100'000, 100'000}, "aten::cumsum");
  ASSERT_NE(find_finding(sort, "uneven-calls"), nullptr);
  EXPECT_LACKS(find_finding(sort, "uneven-calls")->action, "denormal");
}

TEST(LossFindings, TimeBetweenOpsIsBookedToTheRangeThatTheProgramNamed) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100'000 * kUs);
  b.annotation("preprocess", 10'000 * kUs, 61'000 * kUs);
  b.event(Category::python_function, "train.py(10): train", 0, 100'000 * kUs);
  b.op("aten::mm", 0, 10'000 * kUs);
  b.op("aten::relu", 61'000 * kUs, 100'000 * kUs);
  const Explanation e = explain(b);
  ASSERT_EQ(e.host->ranges.size(), 1U);
  EXPECT_EQ(e.host->ranges[0].name, "preprocess");
  EXPECT_EQ(e.host->ranges[0].self_ns, 51'000 * kUs);
  const Finding f = finding_of(e, "between-ops");
  EXPECT_EQ(f.title,
            "51.0 ms of 100 ms (51 %) pass between ops, most of it in preprocess: Python, or code "
            "that is not traced");
  EXPECT_EQ(f.evidence.at(0), "range preprocess: 1 time, 51.0 ms");
  EXPECT_EQ(f.action.find("take preprocess out of the step"), 0U);
}

// 218 ms of preprocessing and many short gaps of 5 ms in all: CUDA graphs help with the latter
// alone.
TEST(LossFindings, WhatOneLongGapTakesIsNotClaimedTwice) {
  const auto run = [](int64_t short_gap_us) {
    GpuTrace b;
    b.annotation("preprocess", 0, 218'000 * kUs);
    int64_t at = 218'000;
    for (int64_t i = 1; i <= 100; ++i) {
      b.op("aten::relu", at * kUs, (at + short_gap_us) * kUs);
      b.call("cudaLaunchKernel", (at + short_gap_us - 2) * kUs, (at + short_gap_us - 1) * kUs, i);
      b.gpu_kernel("relu", (at + short_gap_us) * kUs, (at + short_gap_us + 100) * kUs, i);
      at += short_gap_us + 100;
    }
    return explain(b);
  };
  const Explanation e = run(50);
  const Finding gap = finding_of(e, "idle-gap");
  EXPECT_EQ(gap.title.find("the device idles 218 ms at one stretch in preprocess"), 0U)
      << gap.title;
  EXPECT_EQ(gap.action.find("move preprocess to where the device works"), 0U);
  EXPECT_EQ(find_finding(e, "host-overhead"), nullptr) << "5 ms of 233";
  EXPECT_LT(*finding_of(run(1000), "host-overhead").saving_us, 101'000) << "without the 218 ms";
}

TEST(LossFindings, WhatCompilesIsNoWorkOfTheRun) {
  GpuTrace b;
  b.op("_compile.compile_inner (dynamo_timed)", 0, 900 * kUs);
  b.op("aten::mm", 100 * kUs, 800 * kUs);  // of the tracer
  b.inputs({tensor({1, 256}), tensor({256, 256})});
  b.op("aten::relu", 900 * kUs, 1000 * kUs);
  const Explanation e = explain(b);
  EXPECT_DOUBLE_EQ(*finding_of(e, "recompilation").saving_us, 900);
  EXPECT_EQ(find_finding(e, "bandwidth-products"), nullptr);
  EXPECT_EQ(find_finding(e, "between-ops"), nullptr) << "it is told once";
  EXPECT_EQ(e.host->of(HostPart::between_ops), 900 * kUs);
}

TEST(LossFindings, AnInterruptedSmallOpIsNoContention) {
  Line b;
  for (int i = 0; i < 2; ++i) b.add("aten::neg", 2'000, {tensor({64})});
  EXPECT_EQ(find_finding(explain(b), "thread-contention"), nullptr);
  Line many;
  for (int i = 0; i < 5; ++i) many.add("aten::neg", 2'000, {tensor({64})});
  EXPECT_NE(find_finding(explain(many), "thread-contention"), nullptr);
}

TEST(LossFindings, WhereOtherOpsAreFastNoThreadsContend) {
  Line b;
  for (int i = 0; i < 5; ++i) b.add("aten::neg", 2'000, {tensor({64})});
  for (int i = 0; i < 3; ++i) b.add("aten::mul_", 100, {tensor({512, 512}), tensor({512, 512})});
  EXPECT_EQ(find_finding(explain(b), "thread-contention"), nullptr) << "31 GB/s";
}

TEST(LossFindings, AnOpThatCallsAnotherOfItsKindCountsOnce) {
  GpuTrace b;
  for (int64_t i = 0; i < 5; ++i) {
    b.op("aten::zero_", i * 4000 * kUs, (i + 1) * 4000 * kUs);
    b.inputs({tensor({512, 512})});
    b.op("aten::fill_", i * 4000 * kUs + 2 * kUs, (i + 1) * 4000 * kUs - 2 * kUs);
    b.inputs({tensor({512, 512})});
  }
  const Finding f = finding_of(explain(b), "thread-contention");
  EXPECT_DOUBLE_EQ(*f.cost_us, 5 * 3996);
  EXPECT_EQ(f.evidence.front().find("aten::fill_"), 0U) << f.evidence.front();
}

// 16 MiB: in place 2 ms, 16.8 GB/s; a result elsewhere 20 ms.
TEST(LossFindings, SmallerResultsAreNewMemoryIfTheyAreFarSlowerThanOpsInPlace) {
  const OpInput middle = tensor({4 << 20});
  Line b;
  b.add("aten::neg_", 2'000, {middle});
  b.add("aten::neg", 20'000, {middle});
  b.add("aten::fill_", 20'000, {middle});
  const Finding f = finding_of(explain(b), "page-faults");
  EXPECT_EQ(f.title.find("results of 16.0 MiB or more"), 0U) << f.title;
  EXPECT_NEAR(*f.cost_us, 40'000, 1e-9) << "a fill may be the first to write a tensor";
  Line fast;
  fast.add("aten::neg_", 2'000, {middle});
  fast.add("aten::neg", 10'000, {middle});  // 3.4 GB/s
  EXPECT_EQ(find_finding(explain(fast), "page-faults"), nullptr);
}

TEST(LossFindings, OpsInDoubleCountBesideProducts) {
  Line b;
  b.add("aten::mul", 900, {tensor({256, 256}, "double"), tensor({256, 256}, "double")});
  b.add("aten::relu", 100, {tensor({256, 256})});
  const Finding f = finding_of(explain(b), "double-precision");
  EXPECT_EQ(f.title.find("ops in float64 take"), 0U) << f.title;
  EXPECT_DOUBLE_EQ(*f.saving_us, 450);
  Line small;
  small.add("aten::mul", 900, {tensor({256}, "double")});
  EXPECT_EQ(find_finding(explain(small), "double-precision"), nullptr);
}

TEST(LossFindings, BatchNormsThatTrainWithoutABackwardPass) {
  const auto finds = [](const char* training, const char* last) {
    Line b;
    const OpInput t = tensor({64, 64});
    b.add("aten::batch_norm", 200, {t, t, t, t, t, testing::scalar(training)});
    b.add(last, 800, {t, t});
    return find_finding(explain(b), "training-norms") != nullptr;
  };
  EXPECT_TRUE(finds("True", "aten::mm"));
  EXPECT_FALSE(finds("False", "aten::mm"));
  EXPECT_FALSE(finds("True", "ConvolutionBackward0")) << "it trains";
}

TEST(LossFindings, AttentionThatRunsOpByOpIsNamed) {
  const auto finds = [](const char* attention) {
    Line b;
    const OpInput t = tensor({4, 8, 64, 64});
    b.add(attention, 200, {t, t, t});
    b.add("aten::mm", 800, {tensor({64, 64}), tensor({64, 64})});
    return find_finding(explain(b), "plain-attention") != nullptr;
  };
  EXPECT_TRUE(finds("aten::_scaled_dot_product_attention_math"));
  EXPECT_FALSE(finds("aten::_scaled_dot_product_flash_attention_for_cpu"));
}

TEST(LossFindings, AnomalyModesChecksAreNamed) {
  Line b;
  b.add("aten::mm", 700, {tensor({256, 256}), tensor({256, 256})});
  b.add("aten::isnan", 200, {tensor({256, 256})});
  b.add("aten::_is_any_true", 100, {tensor({256, 256}, "bool")});
  const Finding f = finding_of(explain(b), "nan-checks");
  EXPECT_DOUBLE_EQ(*f.saving_us, 300 + 2 * 4 * 2) << "with calling four more ops for each";
  Line own;  // a program may look for NaN itself
  own.add("aten::mm", 700, {tensor({256, 256}), tensor({256, 256})});
  own.add("aten::isnan", 200, {tensor({256, 256})});
  EXPECT_EQ(find_finding(explain(own), "nan-checks"), nullptr);
}

TEST(LossFindings, AnOpThatNoOtherFindingIsAboutIsNamed) {
  Line b;
  b.add("aten::_cdist_forward", 600, {tensor({256, 256}), tensor({256, 256})});
  b.add("aten::mm", 400, {tensor({256, 256}), tensor({256, 256})});
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "long-op");
  EXPECT_EQ(f.title.find("aten::_cdist_forward takes 600 us of 1.00 ms (60 %)"), 0U) << f.title;
  EXPECT_HAS(f.action, "use_mm_for_euclid_dist");
  EXPECT_TRUE(has_line(f, "a loss if p = 2 over many points is computed pair by pair"));
  EXPECT_EQ(e.host->of(HostPart::memory), 0) << "distances compute";
  Line two;
  two.add("aten::_cdist_forward", 600, {tensor({256, 256}), tensor({256, 256})});
  two.add("aten::topk", 400, {tensor({256, 256})});
  const Explanation both = explain(two);
  EXPECT_EQ(std::count_if(both.findings.begin(), both.findings.end(),
                          [](const Finding& x) { return x.id == "long-op"; }),
            2);
  Line products;
  products.add("aten::mm", 900, {tensor({256, 256}), tensor({256, 256})});
  EXPECT_EQ(find_finding(explain(products), "long-op"), nullptr);
}

TEST(LossFindings, AnOpOfNoFamilyHasNoRemedy) {
  Line b;
  b.add("aten::_no_such_op", 900, {tensor({256, 256})});
  b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
  const Finding f = finding_of(explain(b), "long-op");
  EXPECT_EQ(f.evidence.back(), "no remedy known");
  EXPECT_EQ(f.action, "");
}

// The name has no underscore before "slow".
TEST(LossFindings, DilatedConvolutionsWithoutALibraryAreFound) {
  Line b;
  b.add("aten::slow_conv_dilated2d", 910, {tensor({1, 8, 64, 64}), tensor({8, 8, 3, 3})});
  b.add("aten::relu", 90, {tensor({1, 8, 64, 64})});
  const Finding f = finding_of(explain(b), "fallback-convolution");
  EXPECT_EQ(f.title.find("aten::slow_conv_dilated2d takes 910 us of 1.00 ms (91 %)"), 0U)
      << f.title;
  Line good;
  good.add("aten::mkldnn_convolution", 910, {tensor({1, 8, 64, 64}), tensor({8, 8, 3, 3})});
  good.add("aten::relu", 90, {tensor({1, 8, 64, 64})});
  EXPECT_EQ(find_finding(explain(good), "fallback-convolution"), nullptr);
}

TEST(LossFindings, ADeviceThatWaitsForTheHostIsToldWithoutTheProfilersPart) {
  GpuTrace b;
  for (int i = 0; i < 40; ++i) {  // no gap is long by itself
    const int64_t at = i * 100 * kUs;
    b.op("aten::relu", at, at + 50 * kUs);
    b.call("cudaLaunchKernel", at + 40 * kUs, at + 45 * kUs, i + 1);
    b.gpu_kernel("relu", at + 45 * kUs, at + 50 * kUs, i + 1);
  }
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "host-overhead");
  const double idle_us = static_cast<double>(e.idle.front().host_ns()) / 1e3;
  EXPECT_GT(*f.saving_us, 0.9 * idle_us);
  EXPECT_LT(*f.saving_us, idle_us);
  GpuTrace busy;
  busy.op("aten::relu", 0, 50 * kUs);
  busy.call("cudaLaunchKernel", 40 * kUs, 45 * kUs, 1);
  busy.gpu_kernel("relu", 45 * kUs, 1000 * kUs, 1);
  EXPECT_EQ(find_finding(explain(busy), "host-overhead"), nullptr);
}

void expect_sane_times(const std::filesystem::path& path) {
  const Result<Trace> trace = read_trace(path.string());
  if (!trace.ok()) return;  // broken on purpose
  const Explanation e = explain(trace.value(), link(trace.value()));
  const double span_us = static_cast<double>(e.timeline.span_ns()) / 1e3;
  for (const Finding& f : e.findings) {
    if (f.cost_us) {
      EXPECT_LE(*f.cost_us, span_us) << path << ": " << f.title;
    }
    if (!f.saving_us) continue;
    ASSERT_TRUE(f.cost_us) << path << ": " << f.title;
    EXPECT_LE(*f.saving_us, *f.cost_us) << path << ": " << f.title;
    EXPECT_GE(*f.saving_us, 0) << path << ": " << f.title;
    EXPECT_TRUE(f.confidence) << path << ": " << f.title;
  }
}

TEST(LossFindings, NoSavingIsAboveTheTimeThatItIsTakenFrom) {
  const std::filesystem::path here = __FILE__;
  int seen = 0;
  for (const auto& folder :
       {(here / "../../../data/torch").lexically_normal(), testing::real_traces_folder()}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".json.gz") || entry.file_size() > (2 << 20)) continue;
      expect_sane_times(entry.path());
      ++seen;
    }
  }
  EXPECT_GT(seen, 10);
}

}  // namespace epilogue::trace::loss_findings_test
