// SPDX-License-Identifier: Apache-2.0
// What is known of traces that others captured.
#include "trace/real_traces.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/fusion.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/ranks.h"
#include "epilogue/trace/time.h"
#include "support/test.h"

namespace epilogue::trace::real_traces_test {

using namespace testing;

struct Loaded {
  Trace trace;
  Links links;
};

Loaded load(std::string_view name, bool python_functions = false) {
  Loaded loaded;
  loaded.trace =
      read_trace(real_trace_path(name),
                 {.python_frames = python_functions ? PythonFrames::events : PythonFrames::counted})
          .value();
  loaded.links = link(loaded.trace);
  return loaded;
}

const HealthItem* find(const std::vector<HealthItem>& items, std::string_view id) {
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const HealthItem& i) { return i.id == id; });
  return it == items.end() ? nullptr : &*it;
}

struct Expected {
  const char* name;
  int64_t kernels;
  int64_t kernels_without_launch;
  int64_t launches_without_kernel;
  size_t steps;
  double busy_pct;  // rounded to a whole; -1: no device
  Bound bound;
};

class RealTrace : public ::testing::TestWithParam<Expected> {};

TEST_P(RealTrace, GivesTheFactsThatAreKnownOfIt) {
  const Expected& e = GetParam();
  if (!has_real_trace(e.name)) GTEST_SKIP() << real_trace_path(e.name) << " is not there";
  const Loaded t = load(e.name);
  EXPECT_EQ(t.links.kernels, e.kernels);
  EXPECT_EQ(t.links.kernels_without_launch, e.kernels_without_launch);
  EXPECT_EQ(t.links.launches_without_kernel, e.launches_without_kernel);
  EXPECT_EQ(t.links.steps.size(), e.steps);
  const Timeline time = timeline(t.trace, t.links);
  EXPECT_NEAR(time.busy_pct().value_or(-1), e.busy_pct, 0.5);
  const Verdicts verdicts = judge_time(t.trace, t.links);
  EXPECT_EQ(bound_name(verdicts.whole.bound), bound_name(e.bound));
}

INSTANTIATE_TEST_SUITE_P(
    , RealTrace,
    ::testing::Values(
        Expected{"tracelens/h100_bert_small.json.gz", 60, 0, 0, 1, 7, Bound::overhead},
        Expected{"tracelens/h100_vit.json.gz", 154, 0, 0, 1, 15, Bound::overhead},
        Expected{"tracelens/mi300_bert_small.json.gz", 60, 0, 0, 1, 10, Bound::overhead},
        Expected{"tracelens/h100_qwen_0.5b.json.gz", 1465, 436, 0, 1, 92, Bound::memory},
        Expected{"tracelens/mi300_flux_compiled.json.gz", 5549, 0, 0, 1, 92, Bound::compute},
        Expected{"zoology/a100_launches_without_kernels.json.gz", 0, 0, 260, 0, -1,
                 Bound::no_kernels},
        Expected{"hta/cpu_only.json.gz", 0, 0, 0, 5, -1, Bound::cpu_only}),
    [](const auto& test) {
      std::string name = test.param.name;
      name = name.substr(0, name.find('.'));
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
      return name;
    });

// All that can be read: whatever it holds. Returns how many these are.
template <class Check>
int for_each_real_trace(const Check& check) {
  int traces = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(real_traces_folder())) {
    const std::string path = entry.path().string();
    if (!entry.is_regular_file() || path.find(".json") == std::string::npos) continue;
    const Result<Trace> read = read_trace(path);
    if (!read.ok()) continue;
    SCOPED_TRACE(path);
    ++traces;
    check(read.value(), link(read.value()));
  }
  return traces;
}

// Findings about a device's idle time save no more together than there is.
TEST(RealTraces, IdleTimeIsSavedOnce) {
  if (!std::filesystem::exists(real_traces_folder())) GTEST_SKIP() << "no real traces";
  int traces = 0;
  for_each_real_trace([&](const Trace& trace, const Links& links) {
    const Explanation e = explain(trace, links);
    if (e.idle.empty()) return;
    double saved_us = 0;
    for (const Finding& f : e.findings)
      if (!f.claims.empty() && f.claims.front().ops.front().starts_with("idle: "))
        saved_us += f.saving_us.value_or(0);
    traces += saved_us > 0 ? 1 : 0;
    EXPECT_LE(saved_us, 1.03 * static_cast<double>(e.idle.front().idle_ns) / 1000);
  });
  EXPECT_GT(traces, 10);
}

// explain() computes once what several of these read.
TEST(RealTraces, WhatAnalysesShareGivesWhatEachGivesByItself) {
  if (!std::filesystem::exists(real_traces_folder())) GTEST_SKIP() << "no real traces";
  const int traces = for_each_real_trace([](const Trace& trace, const Links& links) {
    const Explanation e = explain(trace, links);
    const Verdicts verdicts = judge_time(trace, links);
    EXPECT_EQ(e.verdicts.whole.part_pct, verdicts.whole.part_pct);
    EXPECT_EQ(e.verdicts.whole.evidence, verdicts.whole.evidence);
    const std::vector<DeviceIdle> idle = idle_times(trace, links);
    ASSERT_EQ(e.idle.size(), idle.size());
    for (size_t d = 0; d < idle.size(); ++d) {
      EXPECT_EQ(e.idle[d].device, idle[d].device);
      EXPECT_EQ(e.idle[d].cause_ns, idle[d].cause_ns);
    }
    const std::vector<IdleGap> gaps = idle_gaps(trace, links);
    ASSERT_EQ(e.gaps.size(), gaps.size());
    for (size_t g = 0; g < gaps.size(); ++g) {
      EXPECT_EQ(e.gaps[g].start_ns, gaps[g].start_ns);
      EXPECT_EQ(e.gaps[g].cause_ns, gaps[g].cause_ns);
    }
    const std::vector<Region> own_steps = steps(trace, links);
    ASSERT_EQ(e.steps.size(), own_steps.size());
    for (size_t s = 0; s < own_steps.size(); ++s) {
      EXPECT_EQ(e.steps[s].name, own_steps[s].name);
      EXPECT_EQ(e.steps[s].device_busy_ns, own_steps[s].device_busy_ns);
    }
    const std::vector<HealthItem> items = health(trace, links);
    ASSERT_EQ(e.health.size(), items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(e.health[i].id, items[i].id);
      EXPECT_EQ(e.health[i].count, items[i].count);
    }
  });
  EXPECT_GT(traces, 0);
}

// For whatever a trace holds.
TEST(RealTraces, TimesAddUp) {
  if (!std::filesystem::exists(real_traces_folder())) GTEST_SKIP() << "no real traces";
  const int traces = for_each_real_trace([](const Trace& trace, const Links& links) {
    const Timeline time = timeline(trace, links);
    const std::vector<DeviceIdle> idle = idle_times(trace, links);
    for (size_t d = 0; d < idle.size(); ++d)
      EXPECT_EQ(idle[d].idle_ns, time.span_ns() - time.devices[d].busy_ns);
    const Verdicts verdicts = judge_time(trace, links);
    const auto sum = [](const Verdict& v) {
      return std::accumulate(v.part_pct.begin(), v.part_pct.end(), 0.0);
    };
    for (const RegionVerdict& r : verdicts.regions) {
      if (r.verdict.part_pct.empty()) continue;
      EXPECT_NEAR(sum(r.verdict), 100, 1e-6) << r.region.name;
    }
    if (!verdicts.whole.part_pct.empty()) {
      EXPECT_NEAR(sum(verdicts.whole), 100, 1e-6);
      EXPECT_NEAR(verdicts.whole.pct(TimePart::compute) + verdicts.whole.pct(TimePart::memory) +
                      verdicts.whole.pct(TimePart::communication),
                  time.busy_pct().value_or(-1), 1e-6);
    }
  });
  EXPECT_GT(traces, 0);
}

TEST(RealTraces, SamBeforeAndAfter) {
  if (!has_real_trace("sam/a100_eager.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded eager = load("sam/a100_eager.json.gz");
  const Loaded fast = load("sam/a100_optimised.json.gz");
  EXPECT_EQ(timeline(eager.trace, eager.links).span_ns() / 1'000'000, 1405);
  EXPECT_EQ(timeline(fast.trace, fast.links).span_ns() / 1'000'000, 525);
  // External id is the correlation here and names unrelated ops.
  EXPECT_EQ(eager.links.external_id_disagrees, 6092);
  int64_t without_op = 0;
  for (const uint32_t i : eager.links.device_work) without_op += eager.links.op[i] == kNone;
  EXPECT_LT(without_op, 10);
  EXPECT_NE(find(health(eager.trace, eager.links), "external-id-wrong"), nullptr);
  const LaunchStats stats = launch_stats(fast.trace, fast.links);
  EXPECT_EQ(stats.graph_launches, 32);
  EXPECT_EQ(stats.graph_kernels, 1296);
}

// Integer microseconds, thousands of spans without length: nesting and the External ids, which are
// right in 2021, name the same op for every kernel.
TEST(RealTraces, NestingAgreesWithRightExternalIds) {
  for (const char* name :
       {"kineto/v100_resnet50_2021_bare_array.json.gz", "tracelens/h100_qwen_0.5b.json.gz",
        "tracelens/mi300_flux_compiled.json.gz", "tracelens/b200_vllm_gpt_oss.json.gz"}) {
    if (!has_real_trace(name)) GTEST_SKIP() << real_trace_path(name) << " is not there";
    EXPECT_EQ(load(name).links.external_id_disagrees, 0) << name;
  }
}

TEST(RealTraces, FusionsOfAGatedMlp) {
  if (!has_real_trace("tracelens/h100_qwen_0.5b.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded qwen = load("tracelens/h100_qwen_0.5b.json.gz");
  // 24 layers; gate, up and their product are 8944 x 2816 bf16, 50.4 MB, x is 8944 x 1024.
  constexpr double result = 24.0 * 8944 * 2816 * 2;
  constexpr double x = 24.0 * 8944 * 1024 * 2;
  constexpr double weight = 24.0 * 1024 * 2816 * 2;
  std::map<FusionKind, Fusion> found;
  for (const Fusion& f : find_fusions(qwen.trace, qwen.links).fusions) {
    EXPECT_NE(f.ops.front(), "aten::neg") << "of q and of k: each goes into a concatenation";
    if (f.count == 24 && f.ops.front() == "aten::mm") found[f.kind] = f;
  }
  const Fusion& epilogue = found[FusionKind::gemm_epilogue];
  EXPECT_EQ(epilogue.ops,
            (std::vector<std::string>{"aten::mm", "aten::silu", "aten::mm", "aten::mul"}));
  EXPECT_EQ(epilogue.kernels_now, 72);  // cuBLAS's memsets are no kernels
  EXPECT_EQ(epilogue.kernels_after, 48);
  EXPECT_DOUBLE_EQ(epilogue.bytes_now, 5 * result);
  EXPECT_DOUBLE_EQ(epilogue.bytes_after, 3 * result);
  const Fusion& merged = found[FusionKind::merged_gemms];
  EXPECT_EQ(merged.kernels_now, 48);
  EXPECT_EQ(merged.kernels_after, 24);
  EXPECT_DOUBLE_EQ(merged.bytes_now, 2 * (x + weight + result));
  EXPECT_DOUBLE_EQ(merged.bytes_after, x + 2 * (weight + result));
}

TEST(RealTraces, NoFusionTakesInACopyBetweenHostAndDevice) {
  size_t fused = 0;
  for (const char* name : {"sam/a100_eager.json.gz", "tracelens/b200_vllm_gpt_oss.json.gz",
                           "hta/mi250_toy_train.json.gz"}) {
    if (!has_real_trace(name)) GTEST_SKIP() << real_trace_path(name) << " is not there";
    const Loaded t = load(name);
    for (const Fusion& f : find_fusions(t.trace, t.links).fusions) {
      fused += f.kernels.size();
      for (const std::string& kernel : f.kernels)
        EXPECT_TRUE(kernel.find("HtoD") == std::string::npos &&
                    kernel.find("DtoH") == std::string::npos)
            << name << ": " << kernel;
    }
  }
  EXPECT_GT(fused, 0U);
}

TEST(RealTraces, HealthNamesWhatIsMissing) {
  if (!has_real_trace("tracelens/h100_qwen_0.5b.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded qwen = load("tracelens/h100_qwen_0.5b.json.gz");
  const std::vector<HealthItem> items = health(qwen.trace, qwen.links);
  ASSERT_NE(find(items, "kernels-without-launch"), nullptr);
  EXPECT_EQ(find(items, "kernels-without-launch")->count, 436);
  const Loaded lost = load("zoology/a100_launches_without_kernels.json.gz");
  EXPECT_EQ(health(lost.trace, lost.links).at(0).id, "kernel-data-lost");
  const Loaded b200 = load("tracelens/b200_vllm_gpt_oss.json.gz");
  const std::vector<HealthItem> overlaps = health(b200.trace, b200.links);
  ASSERT_NE(find(overlaps, "overlapping-kernels"), nullptr);
  EXPECT_EQ(find(overlaps, "overlapping-kernels")->count, 74);
}

TEST(RealTraces, ModulesOfAStackTrace) {
  if (!has_real_trace("sidnb13/h100_transformer_layer.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded t = load("sidnb13/h100_transformer_layer.json.gz", true);
  const std::vector<ModuleTime> modules = module_times(t.trace, t.links);
  ASSERT_FALSE(modules.empty());
  EXPECT_EQ(modules[0].name, "SimpleTransformerLayer_0");
  EXPECT_EQ(modules[0].count, 3);
  EXPECT_EQ(modules[0].kernels, 48) << "all of the trace's";
}

// By the trace's own rows: 832 calls of addmm before.
TEST(RealTraces, ADifferenceBooksKernelsToTheOpThatLaunchedThem) {
  if (!has_real_trace("sam/a100_eager.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded eager = load("sam/a100_eager.json.gz");
  const Loaded fast = load("sam/a100_optimised.json.gz");
  const TraceDiff d =
      diff_traces(eager.trace, eager.links, fast.trace, fast.links, {.min_part_pct = 0});
  const auto before = [&](std::string_view op) {
    std::pair<double, double> sum;
    for (const DiffPart& part : d.parts)
      if (part.what.starts_with(op)) {
        sum.first += part.kernels[0];
        sum.second += static_cast<double>(part.before_ns) / 1e6;
      }
    return sum;
  };
  EXPECT_EQ(before("aten::addmm:").first, 832);
  EXPECT_NEAR(before("aten::addmm:").second, 455.6, 0.1);
  EXPECT_NEAR(before("aten::mm:").second, 45.233, 0.001);
  EXPECT_NEAR(before("aten::bmm:").second, 30.3, 0.1);
  std::set<std::string> whats;
  for (const DiffPart& part : d.parts) EXPECT_TRUE(whats.insert(part.what).second) << part.what;
}

TEST(RealTraces, HalfOfTheRanksGiveBounds) {
  const std::filesystem::path folder = real_traces_folder() / "param/dlrm";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no real traces";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  names.resize(4);
  std::deque<Loaded> loaded;
  std::vector<RankTrace> ranks;
  for (const std::string& name : names) {
    loaded.push_back(load("param/dlrm/" + name));
    ranks.push_back({loaded.back().trace, loaded.back().links});
  }
  const RanksExplanation e = explain_ranks(ranks);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.missing, (std::vector<RankRange>{{4, 7}}));
  EXPECT_FALSE(e.has_all_ranks());
}

// Worked out from the JSON alone: 201,088 elements of bf16 reach 8 ranks in 21.953 us.
TEST(RealTraces, BandwidthOfAnAllGather) {
  if (!has_real_trace("tracelens/b200_vllm_gpt_oss.json.gz")) GTEST_SKIP() << "no real traces";
  const Loaded b200 = load("tracelens/b200_vllm_gpt_oss.json.gz");
  const RankTrace rank{b200.trace, b200.links};
  const RankCollectives found = collectives({&rank, 1}).ranks.front();
  const auto kind = [&](std::string_view name) {
    return *std::find_if(found.kinds.begin(), found.kinds.end(),
                         [&](const CollectiveStats& c) { return c.name == name; });
  };
  ASSERT_TRUE(kind("all_gather").rates);
  EXPECT_NEAR(kind("all_gather").rates->algbw_gb_s, 18.3199, 1e-4);
  EXPECT_NEAR(*kind("all_gather").rates->busbw_gb_s, 16.0299, 1e-4);
  EXPECT_FALSE(kind("all_reduce").rates) << "its kernels say no size";
}

TEST(RealTraces, RanksOfOneStepWaitForTheLast) {
  const std::filesystem::path folder = real_traces_folder() / "param/dlrm";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no real traces";
  std::vector<std::unique_ptr<Loaded>> loaded;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    loaded.push_back(
        std::make_unique<Loaded>(load("param/dlrm/" + entry.path().filename().string())));
  std::vector<RankTrace> ranks;
  for (const auto& l : loaded) ranks.push_back({l->trace, l->links});
  const Collectives c = collectives(ranks);
  ASSERT_EQ(c.ranks.size(), 8u);
  const auto waits = std::find_if(c.waits.begin(), c.waits.end(),
                                  [](const CollectiveWaits& w) { return w.name == "all_to_all"; });
  ASSERT_NE(waits, c.waits.end());
  EXPECT_EQ(waits->count, 5);
  const auto last = static_cast<size_t>(
      std::min_element(waits->wait_ns.begin(), waits->wait_ns.end()) - waits->wait_ns.begin());
  EXPECT_EQ(c.ranks[last].rank, 7);
  // Time by kind is what the verdict of each trace divides.
  const RanksExplanation e = explain_ranks(ranks);
  for (size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_TRUE(e.ranks[r].time);
    const DeviceTime& time = *e.ranks[r].time;
    const Verdict whole = judge_time(ranks[r].trace, ranks[r].links).whole;
    const auto pct = [&](int64_t ns) {
      return 100.0 * static_cast<double>(ns) / static_cast<double>(e.ranks[r].span_ns);
    };
    EXPECT_NEAR(pct(time.compute_ns), whole.pct(TimePart::compute), 1e-6);
    EXPECT_NEAR(pct(time.memory_ns), whole.pct(TimePart::memory), 1e-6);
    EXPECT_NEAR(pct(time.communication_ns), whole.pct(TimePart::communication), 1e-6);
    EXPECT_EQ(time.compute_ns + time.memory_ns + time.communication_ns + time.idle_ns,
              e.ranks[r].span_ns);
  }
  // Summed from the JSON: rank 1 ran five for 9506 us, rank 7 for 389.
  const KernelOverRanks& largest = e.kernels.front();
  EXPECT_TRUE(largest.name.starts_with("ncclKernel_SendRecv")) << largest.name;
  EXPECT_EQ(largest.count, 40);
  EXPECT_EQ(largest.max_ns, 9'506'000);
  EXPECT_EQ(largest.max_rank, 1);
  EXPECT_EQ(largest.min_ns, 389'000);
  EXPECT_EQ(largest.min_rank, 7);
  ASSERT_EQ(e.collectives.steps.size(), 1u);
  EXPECT_EQ(e.collectives.steps[0].step, 10);
  EXPECT_EQ(e.collectives.steps[0].count, 8);
  EXPECT_EQ(e.collectives.steps[0].last_rank, 7);
}

}  // namespace epilogue::trace::real_traces_test
