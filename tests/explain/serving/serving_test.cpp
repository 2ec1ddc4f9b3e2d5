// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/serving.h"

#include "epilogue/trace/file.h"
#include "explain/gpu_trace.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::serving_test {

using namespace testing;

// --- Graphs -------------------------------------------------------------------------------------

const std::vector<std::string> kLayer = {"norm_a", "gemm_q", "rope",    "cache", "attend",
                                         "gemm_o", "norm_b", "gemm_up", "act",   "gemm_down"};

// An op with one kernel each, from `at` on, of a length of 10 us; the correlation counts on.
void run_eagerly(GpuTrace& t, const std::vector<std::string>& kernels, int64_t at,
                 int64_t& correlation) {
  for (const std::string& kernel : kernels) {
    t.op("op::" + kernel, at, at + 5 * kUs);
    t.call("cudaLaunchKernel", at + kUs, at + 2 * kUs, ++correlation);
    t.gpu_kernel(kernel, at + 100 * kUs, at + 110 * kUs, correlation);
    at += 10 * kUs;
  }
}

void replay(GpuTrace& t, const std::vector<std::string>& kernels, int64_t at,
            int64_t& correlation) {
  t.call("cudaGraphLaunch", at, at + 5 * kUs, ++correlation);
  for (const std::string& kernel : kernels) {
    at += 10 * kUs;
    t.gpu_kernel(kernel, at, at + 10 * kUs, correlation);
  }
}

GraphReport report_of(const Trace& trace, const GraphReference* capture = nullptr) {
  return graph_report(trace, link(trace), capture);
}

const GraphOwner* find_kernel(const GraphReport& report, std::string_view kernel) {
  for (const GraphOwner& owner : report.owners)
    if (owner.kernel == kernel) return &owner;
  return nullptr;
}

TEST(Graphs, ATraceWithoutReplaysHasNoReport) {
  GpuTrace t;
  int64_t correlation = 0;
  run_eagerly(t, kLayer, 0, correlation);
  EXPECT_TRUE(report_of(t.trace).is_empty());
}

TEST(Graphs, KernelsInTheOrderOfAnEagerRunTakeItsOps) {
  GpuTrace t;
  int64_t correlation = 0;
  run_eagerly(t, kLayer, 0, correlation);
  replay(t, kLayer, 10'000 * kUs, correlation);
  replay(t, kLayer, 20'000 * kUs, correlation);
  const GraphReport report = report_of(t.trace);
  EXPECT_EQ(report.launches, 2);
  EXPECT_EQ(report.sequences, 1);
  EXPECT_EQ(report.kernels, 20);
  EXPECT_EQ(report.device_ns, 200 * kUs);
  EXPECT_EQ(report.named_ns, report.all_device_ns);
  ASSERT_EQ(report.owners.size(), kLayer.size());
  for (const std::string& kernel : kLayer) {
    const GraphOwner* owner = find_kernel(report, kernel);
    ASSERT_NE(owner, nullptr) << kernel;
    EXPECT_EQ(owner->op, "op::" + kernel);
    EXPECT_EQ(owner->source, GraphSource::same_trace);
    EXPECT_EQ(owner->confidence, Confidence::high);
    EXPECT_EQ(owner->kernels, 2);
  }
}

// Another batch takes other tiles: a run of other names between matches is the same run.
TEST(Graphs, OneOtherNameBetweenMatchesTakesThePlaceOfItsCounterpart) {
  GpuTrace t;
  int64_t correlation = 0;
  run_eagerly(t, kLayer, 0, correlation);
  std::vector<std::string> other = kLayer;
  other[5] = "gemm_o_of_another_tile";
  replay(t, other, 10'000 * kUs, correlation);
  const GraphReport report = report_of(t.trace);
  const GraphOwner& owner = test::found(find_kernel(report, "gemm_o_of_another_tile"));
  EXPECT_EQ(owner.op, "op::gemm_o");
  EXPECT_EQ(owner.confidence, Confidence::medium);  // 9 of 10 match
}

TEST(Graphs, AnInsertedKernelShiftsNoOther) {
  GpuTrace t;
  int64_t correlation = 0;
  std::vector<std::string> eager = kLayer;
  eager.insert(eager.begin() + 3, "only_eagerly");
  std::vector<std::string> graph = kLayer;
  graph.insert(graph.begin() + 7, "only_in_the_graph");
  run_eagerly(t, eager, 0, correlation);
  replay(t, graph, 10'000 * kUs, correlation);
  const GraphReport report = report_of(t.trace);
  for (const std::string& kernel : kLayer) {
    const GraphOwner* owner = find_kernel(report, kernel);
    ASSERT_NE(owner, nullptr) << kernel;
    EXPECT_EQ(owner->op, "op::" + kernel);
  }
  const GraphOwner& extra = test::found(find_kernel(report, "only_in_the_graph"));
  EXPECT_EQ(extra.source, GraphSource::none);
}

TEST(Graphs, AnotherOrderNamesNothing) {
  GpuTrace t;
  int64_t correlation = 0;
  run_eagerly(t, kLayer, 0, correlation);
  std::vector<std::string> shuffled = {kLayer.rbegin(), kLayer.rend()};
  replay(t, shuffled, 10'000 * kUs, correlation);
  const GraphReport report = report_of(t.trace);
  ASSERT_EQ(report.kernels, 10);
  EXPECT_EQ(report.source_ns[static_cast<size_t>(GraphSource::same_trace)], 0);
}

// The replay begins in the middle of a long order of equal layers.
TEST(Graphs, ALongReplayIsAlignedAcrossLayers) {
  GpuTrace t;
  int64_t correlation = 0;
  std::vector<std::string> model = {"embed"};
  for (int layer = 0; layer < 40; ++layer) model.insert(model.end(), kLayer.begin(), kLayer.end());
  model.emplace_back("head");
  run_eagerly(t, {"warm", "up", "warm", "up"}, 0, correlation);
  run_eagerly(t, model, 1000 * kUs, correlation);
  replay(t, model, 100'000 * kUs, correlation);
  const GraphReport report = report_of(t.trace);
  EXPECT_EQ(report.kernels, 402);
  EXPECT_EQ(report.source_ns[static_cast<size_t>(GraphSource::same_trace)], report.device_ns);
  for (const GraphOwner& owner : report.owners) EXPECT_EQ(owner.op, "op::" + owner.kernel);
}

// ROCm's launch calls name their kernels: a profile of the capture has them without any work.
TEST(Graphs, ACaptureOfRocmNamesKernelsModulesAndFrames) {
  GpuTrace capture;
  int64_t at = 0;
  const auto frame = [&](std::string_view name, int64_t from, int64_t to) {
    capture.event(Category::python_function, name, from, to);
  };
  frame("nn.Module: Model_0", 0, 1000 * kUs);
  frame("nn.Module: Attention_3", 0, 50 * kUs);
  frame("model.py(12): attend", 0, 50 * kUs);
  for (const std::string& kernel : kLayer) {
    capture.op("op::" + kernel, at, at + 5 * kUs);
    capture.call("hipLaunchKernel", at + kUs, at + 2 * kUs, 100 + at);
    capture.trace.events.back().args = static_cast<uint32_t>(capture.trace.runtime_calls.size());
    capture.trace.runtime_calls.push_back({.kernel_name = capture.trace.strings.intern(kernel)});
    at += 10 * kUs;
  }
  const GraphReference reference(capture.trace, link(capture.trace));
  GpuTrace t;
  int64_t correlation = 0;
  replay(t, kLayer, 0, correlation);
  const GraphReport report = report_of(t.trace, &reference);
  const GraphOwner& first = test::found(find_kernel(report, "norm_a"));
  EXPECT_EQ(first.op, "op::norm_a");
  EXPECT_EQ(first.module, "Attention_3");
  EXPECT_EQ(first.frame, "model.py(12): attend");
  EXPECT_EQ(first.source, GraphSource::capture);
  EXPECT_EQ(first.confidence, Confidence::high);
  const GraphOwner& last = test::found(find_kernel(report, "gemm_down"));
  EXPECT_EQ(last.module, "Model_0");
  EXPECT_EQ(last.frame, "");
}

GpuTrace capture_of_cuda(size_t launches) {
  GpuTrace capture;
  capture.call("cudaStreamBeginCapture", 0, kUs, 1);
  int64_t at = 10 * kUs;
  for (size_t i = 0; i < launches; ++i) {
    capture.op("op::" + std::to_string(i), at, at + 5 * kUs);
    capture.call("cudaLaunchKernel", at + kUs, at + 2 * kUs, 100 + static_cast<int64_t>(i));
    at += 10 * kUs;
  }
  capture.call("cudaStreamEndCapture", at, at + kUs, 2);
  return capture;
}

TEST(Graphs, ACaptureOfCudaNamesByTheNumberOfLaunches) {
  GpuTrace t;
  int64_t correlation = 0;
  replay(t, kLayer, 0, correlation);
  const GpuTrace same = capture_of_cuda(kLayer.size());
  const GraphReference reference(same.trace, link(same.trace));
  const GraphReport report = report_of(t.trace, &reference);
  for (size_t i = 0; i < kLayer.size(); ++i) {
    const GraphOwner& owner = test::found(find_kernel(report, kLayer[i]));
    EXPECT_EQ(owner.op, "op::" + std::to_string(i));
    EXPECT_EQ(owner.confidence, Confidence::medium);
  }
  const GpuTrace more = capture_of_cuda(kLayer.size() + 1);
  const GraphReference other(more.trace, link(more.trace));
  EXPECT_EQ(report_of(t.trace, &other).source_ns[static_cast<size_t>(GraphSource::capture)], 0);
}

TEST(Graphs, AnnotationsOfNodesComeFirst) {
  const std::string text =
      R"({"schemaVersion": 1, "cudaGraphInlineAnnotated": true, "traceEvents": [
{"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":9,"tid":9,"ts":1,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"k1","pid":0,"tid":7,"ts":10,"dur":4,"args":{"device":0,"stream":7,"correlation":7,"grid":[1,1,1],"block":[1,1,1],"graph id":3,"graph node id":41,"name":"attention","module_fqn":"layers.0.attn"}},
{"ph":"X","cat":"kernel","name":"k2","pid":0,"tid":7,"ts":20,"dur":6,"args":{"device":0,"stream":7,"correlation":7,"grid":[1,1,1],"block":[1,1,1],"graph id":3,"graph node id":42}}]})";
  const Trace trace = read_trace_text(text, "made").value();
  EXPECT_TRUE(trace.import.repairs.empty());
  const GraphReport report = report_of(trace);
  const GraphOwner& k1 = test::found(find_kernel(report, "k1"));
  EXPECT_EQ(k1.op, "attention");
  EXPECT_EQ(k1.module, "layers.0.attn");
  EXPECT_EQ(k1.source, GraphSource::annotation);
  EXPECT_EQ(k1.device_ns, 4000);
  const GraphOwner& k2 = test::found(find_kernel(report, "k2"));
  EXPECT_EQ(k2.source, GraphSource::none);
}

// --- Labels -------------------------------------------------------------------------------------

TEST(StepLabels, AreReadOfVllm) {
  const auto prefill = parse_step_label("execute_context_1(888_788544)_generation_0(0)").value();
  EXPECT_EQ(prefill.server, "vLLM");
  EXPECT_EQ(prefill.phase, ServingPhase::prefill);
  EXPECT_EQ(prefill.requests, 1);
  EXPECT_EQ(prefill.prefill_tokens, 888);
  const auto decode =
      parse_step_label(
          "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)")
          .value();
  EXPECT_EQ(decode.phase, ServingPhase::decode);
  EXPECT_EQ(decode.requests, 32);
  EXPECT_EQ(decode.decode_tokens, 32);
  EXPECT_EQ(decode.context_tokens, 55086);
  const auto mixed = parse_step_label("execute_context_2(512)_generation_30(30)").value();
  EXPECT_EQ(mixed.phase, ServingPhase::mixed);
  EXPECT_EQ(mixed.requests, 32);
  EXPECT_EQ(mixed.prefill_tokens, 512);
  EXPECT_EQ(mixed.decode_tokens, 30);
  const auto old = parse_step_label("execute_new_0_cached_8").value();
  EXPECT_EQ(old.phase, ServingPhase::decode);
  EXPECT_EQ(old.requests, 8);
}

TEST(StepLabels, AreReadOfSglang) {
  const auto decode = parse_step_label("step[DECODE bs=32]").value();
  EXPECT_EQ(decode.server, "SGLang");
  EXPECT_EQ(decode.phase, ServingPhase::decode);
  EXPECT_EQ(decode.requests, 32);
  EXPECT_EQ(decode.decode_tokens, 32);
  const auto prefill = parse_step_label("step[prefill bs=2 toks=4096]").value();
  EXPECT_EQ(prefill.phase, ServingPhase::prefill);
  EXPECT_EQ(prefill.prefill_tokens, 4096);
  const auto mixed = parse_step_label("step[mixed bs=9 ext=256 dec=8]").value();
  EXPECT_EQ(mixed.phase, ServingPhase::mixed);
  EXPECT_EQ(mixed.prefill_tokens, 256);
  EXPECT_EQ(mixed.decode_tokens, 8);
  EXPECT_EQ(parse_step_label("step[idle]")->phase, ServingPhase::other);
}

TEST(StepLabels, OtherNamesAreNone) {
  for (const char* name :
       {"", "execute", "execute_", "execute_context_", "execute_context_1(", "execute_context_1(2",
        "execute_context_x(1)_generation_0(0)", "execute_context_1(1)_generation_",
        "execute_99999999999999999999_context_1(1)_generation_0(0)", "execute_new_1", "step",
        "step[", "step[decode", "ProfilerStep#3", "execute_context_-1(2)_generation_0(0)"})
    EXPECT_FALSE(parse_step_label(name)) << name;
}

// --- Steps --------------------------------------------------------------------------------------

// A prefill of 300 us and three decodes; kernels follow their launches.
GpuTrace served() {
  GpuTrace t;
  int64_t correlation = 0;
  const auto run = [&](int64_t launch_us, std::string_view kernel, int64_t from_us, int64_t to_us) {
    t.call("cudaLaunchKernel", launch_us * kUs, (launch_us + 1) * kUs, ++correlation);
    t.gpu_kernel(kernel, from_us * kUs, to_us * kUs, correlation);
  };
  t.annotation("execute_context_2(64)_generation_0(0)", 0, 50 * kUs);
  run(10, "flash_fwd_kernel", 100, 200);
  run(20, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 200, 400);
  int64_t at = 1000;
  for (const int64_t length : {100, 110, 190}) {
    t.annotation("execute_context_0(0)_generation_2(2)", at * kUs, (at + 50) * kUs);
    run(at + 10, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        at + 20, at + 20 + length / 2);
    // After the annotation: still of this step.
    run(at + 60, "argmax_kernel", at + 20 + length / 2, at + 20 + length);
    at += 1000;
  }
  return t;
}

TEST(Serving, StepsAreSummedByPhase) {
  const GpuTrace t = served();
  const ServingReport report = serving_report(t.trace, link(t.trace));
  EXPECT_EQ(report.server, "vLLM");
  EXPECT_FALSE(report.is_inferred);
  ASSERT_EQ(report.steps.size(), 4U);
  ASSERT_EQ(report.phases.size(), 2U);
  const auto part = [](const ServingPhaseTime& p, ServingPart which) {
    return p.part_ns[static_cast<size_t>(which)];
  };
  const ServingPhaseTime& prefill = report.phases[0];
  EXPECT_EQ(prefill.phase, ServingPhase::prefill);
  EXPECT_EQ(prefill.count, 1);
  EXPECT_EQ(prefill.requests, 2);
  EXPECT_EQ(prefill.tokens, 64);
  EXPECT_EQ(prefill.median_ns, 300 * kUs);
  EXPECT_EQ(prefill.busy_pct, 100);
  EXPECT_EQ(part(prefill, ServingPart::attention), 100 * kUs);
  EXPECT_EQ(part(prefill, ServingPart::products), 200 * kUs);
  EXPECT_FALSE(prefill.gap_ns);
  EXPECT_EQ(prefill.limit, "products");
  const ServingPhaseTime& decode = report.phases[1];
  EXPECT_EQ(decode.phase, ServingPhase::decode);
  EXPECT_EQ(decode.count, 3);
  EXPECT_EQ(decode.median_ns, 110 * kUs);
  EXPECT_EQ(decode.p99_ns, 190 * kUs);
  EXPECT_EQ(decode.total_ns, 400 * kUs);
  EXPECT_EQ(part(decode, ServingPart::collectives), 200 * kUs);
  EXPECT_EQ(part(decode, ServingPart::sampling), 200 * kUs);
  EXPECT_EQ(report.steps[1].gap_ns, 620 * kUs);  // from 400 to 1020
  EXPECT_EQ(report.steps[2].gap_ns, 900 * kUs);  // from 1120 to 2020
  EXPECT_EQ(decode.gap_ns, 890 * kUs);           // the median of 620, 900, 890
  EXPECT_EQ(decode.limit, "collectives");
}

TEST(Serving, ADeviceThatWaitsForLaunchesIsLimitedByTheHost) {
  GpuTrace t;
  t.annotation("step[DECODE bs=4]", 0, 500 * kUs);
  for (int64_t i = 0; i < 4; ++i) {
    t.call("cudaLaunchKernel", (i * 100) * kUs, (i * 100 + 5) * kUs, i + 1);
    t.gpu_kernel("flash_fwd_kernel", (i * 100 + 10) * kUs, (i * 100 + 30) * kUs, i + 1);
  }
  const ServingReport report = serving_report(t.trace, link(t.trace));
  ASSERT_EQ(report.phases.size(), 1U);
  EXPECT_EQ(report.phases[0].limit, "host");
  EXPECT_NEAR(report.phases[0].busy_pct, 25, 0.1);  // 80 of 320
}

TEST(Serving, WhatChangedOverTheRunIsSaid) {
  GpuTrace t;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t at = i * 1000;
    t.annotation("step[decode bs=" + std::to_string(i < 5 ? 8 : 16) + "]", at * kUs,
                 (at + 50) * kUs);
    t.call("cudaLaunchKernel", (at + 1) * kUs, (at + 2) * kUs, i + 1);
    t.gpu_kernel("flash_fwd_kernel", (at + 10) * kUs, (at + 110 + 10 * i) * kUs, i + 1);
  }
  const ServingReport report = serving_report(t.trace, link(t.trace));
  ASSERT_EQ(report.phases.size(), 1U);
  EXPECT_EQ(report.phases[0].change,
            "the median went from 110 us in the first third to 170 us in the last, attention by "
            "60.0 us; requests from 8 to 16");
}

// Without annotations: each step ends with the copy of its tokens.
GpuTrace rhythm(int64_t steps, std::string_view kernel) {
  GpuTrace t;
  int64_t correlation = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t at = i * 1000 * kUs;
    const bool is_prefill = i == 0;
    t.call(is_prefill ? "cudaLaunchKernel" : "cudaGraphLaunch", at, at + 5 * kUs, ++correlation);
    t.gpu_kernel(kernel, at + 10 * kUs, at + 100 * kUs, correlation);
    t.call("cudaMemcpyAsync", at + 20 * kUs, at + 22 * kUs, ++correlation);
    t.work(Category::gpu_memcpy, "Memcpy DtoH (Device -> Pinned)", at + 110 * kUs, at + 111 * kUs,
           correlation);
    t.trace.kernels.back().bytes = 256;
  }
  return t;
}

TEST(Serving, StepsAreFoundByTheirRhythm) {
  const GpuTrace t = rhythm(5, "kernel_unified_attention_2d");
  const ServingReport report = serving_report(t.trace, link(t.trace));
  EXPECT_TRUE(report.is_inferred);
  EXPECT_EQ(report.server, "");
  ASSERT_EQ(report.steps.size(), 5U);
  EXPECT_EQ(report.steps[0].label.phase, ServingPhase::prefill);
  EXPECT_EQ(report.steps[0].device_ns, 101 * kUs);
  EXPECT_EQ(report.steps[1].label.phase, ServingPhase::decode);
  EXPECT_EQ(report.steps[1].graph_launches, 1);
  EXPECT_EQ(report.steps[4].gap_ns, 899 * kUs);
}

TEST(Serving, OtherRunsHaveNoSteps) {
  const GpuTrace no_cache = rhythm(5, "some_kernel");
  EXPECT_TRUE(serving_report(no_cache.trace, link(no_cache.trace)).is_empty());
  const GpuTrace few = rhythm(2, "kernel_unified_attention_2d");
  EXPECT_TRUE(serving_report(few.trace, link(few.trace)).is_empty());
  GpuTrace stepped = rhythm(5, "kernel_unified_attention_2d");
  stepped.annotation("ProfilerStep#1", 0, 5000 * kUs);
  EXPECT_TRUE(serving_report(stepped.trace, link(stepped.trace)).is_empty());
  EXPECT_TRUE(serving_report(Trace(), link(Trace())).is_empty());
}

TEST(Serving, TokensOfExpertsComeFromTheRoutersShapes) {
  GpuTrace t = served();
  t.op("_moe_C::topk_softmax", 20 * kUs, 21 * kUs);
  t.inputs({tensor({64, 4}), tensor({64, 4}, "int"), tensor({64, 4}, "int"), tensor({64, 128})});
  t.op("vllm::moe_forward", 22 * kUs, 23 * kUs);
  t.inputs({tensor({64, 2880}), tensor({64, 128})});
  t.op("_moe_C::topk_softmax", 24 * kUs, 25 * kUs);  // without shapes
  const ServingReport report = serving_report(t.trace, link(t.trace));
  ASSERT_EQ(report.experts.size(), 2U);
  EXPECT_EQ(report.experts[0].op, "_moe_C::topk_softmax");
  EXPECT_EQ(report.experts[0].calls, 1);
  EXPECT_EQ(report.experts[0].experts, 128);
  EXPECT_EQ(report.experts[0].per_token, 4);
  EXPECT_EQ(report.experts[0].tokens_per_expert, 2);
  EXPECT_EQ(report.experts[1].experts, 128);
  EXPECT_FALSE(report.experts[1].per_token);
}

// --- Imbalance ----------------------------------------------------------------------------------

// A layer with a loop over experts, as transformers has it: router, top-k, and for each expert with
// tokens a product up (twice, if it is gated) and one down. A row of a product takes 1 us.
class ExpertLoop {
 public:
  explicit ExpertLoop(GpuTrace& t) : t_(t) {}

  void product(int64_t rows, int64_t inner, int64_t columns) {
    t_.op("aten::mm", at_, at_ + 10 * kUs);
    t_.inputs({tensor({rows, inner}), tensor({inner, columns})});
    t_.call("cudaLaunchKernel", at_ + kUs, at_ + 2 * kUs, ++correlation_);
    t_.gpu_kernel("gemm", at_ + 20 * kUs, at_ + (20 + rows) * kUs, correlation_);
    at_ += 20 * kUs;
  }
  void topk(int64_t tokens, int64_t experts, int64_t per_token) {
    t_.op("aten::topk", at_, at_ + 5 * kUs);
    t_.inputs({tensor({tokens, experts}), scalar(std::to_string(per_token)), scalar("-1")});
    at_ += 10 * kUs;
  }
  void layer(int64_t tokens, int64_t experts, int64_t per_token, const std::vector<int64_t>& rows,
             int ups = 2) {
    product(tokens, 64, experts);
    topk(tokens, experts, per_token);
    for (const int64_t m : rows) {
      for (int i = 0; i < ups; ++i) product(m, 64, 256);
      product(m, 256, 64);
    }
  }
  void step(const std::string& name) { t_.annotation(name, at_, at_ + kUs); }

 private:
  GpuTrace& t_;
  int64_t at_ = 0;
  int64_t correlation_ = 0;
};

std::vector<ExpertImbalance> imbalance_of(const GpuTrace& t) {
  return serving_report(t.trace, link(t.trace)).imbalance;
}

TEST(Imbalance, RowsOfALoopOverExpertsTellIt) {
  GpuTrace t;
  ExpertLoop loop(t);
  loop.step("execute_context_1(10)_generation_0(0)");
  // 10 tokens, 2 of 8 experts each: 20 rows, 2.5 for an expert in the mean.
  loop.layer(10, 8, 2, {1, 9, 4, 0, 6});
  loop.product(10, 64, 64);  // the next layer's attention
  loop.product(10, 64, 64);
  loop.layer(10, 8, 2, {2, 3, 5, 2, 3, 2, 2, 1});
  loop.layer(10, 8, 2, {5, 5, 5, 5});
  loop.product(10, 64, 1000);  // the head
  loop.step("execute_context_0(0)_generation_6(6)");
  loop.layer(6, 8, 2, {6, 3, 3}, 1);
  const std::vector<ExpertImbalance> found = imbalance_of(t);
  ASSERT_EQ(found.size(), 2U);
  const ExpertImbalance& prefill = found[0];
  EXPECT_EQ(prefill.phase, ServingPhase::prefill);
  EXPECT_EQ(prefill.op, "aten::mm");
  EXPECT_EQ(prefill.layers, 3);
  EXPECT_EQ(prefill.experts, 8);
  EXPECT_EQ(prefill.per_token, 2);
  EXPECT_EQ(prefill.tokens, 10);
  EXPECT_DOUBLE_EQ(prefill.max_over_mean, 5 / 2.5);
  EXPECT_DOUBLE_EQ(prefill.worst_max_over_mean, 9 / 2.5);
  EXPECT_EQ(prefill.device_ns, 3 * 3 * 20 * kUs) << "three products of 20 rows in each layer";
  EXPECT_EQ(prefill.largest_ns, 3 * (9 + 5 + 5) * kUs);
  const ExpertImbalance& decode = found[1];
  EXPECT_EQ(decode.phase, ServingPhase::decode);
  EXPECT_EQ(decode.layers, 1);
  EXPECT_DOUBLE_EQ(decode.max_over_mean, 6 / 1.5);
  EXPECT_EQ(decode.largest_ns, 2 * 6 * kUs);
}

TEST(Imbalance, ASharedExpertOfTheSameSizesIsLeftOut) {
  for (const bool comes_first : {true, false}) {
    GpuTrace t;
    ExpertLoop loop(t);
    loop.step("step[prefill bs=1 toks=9]");
    loop.topk(9, 4, 1);
    const auto shared = [&] {
      loop.product(9, 64, 256);
      loop.product(9, 256, 64);
    };
    if (comes_first) shared();
    for (const int64_t m : {2, 4, 3}) {
      loop.product(m, 64, 256);
      loop.product(m, 256, 64);
    }
    if (!comes_first) shared();
    const std::vector<ExpertImbalance> found = imbalance_of(t);
    ASSERT_EQ(found.size(), 1U) << comes_first;
    EXPECT_DOUBLE_EQ(found[0].max_over_mean, 4 / 2.25);
    EXPECT_EQ(found[0].device_ns, 2 * 9 * kUs);
  }
}

TEST(Imbalance, AListOfMatricesTellsTokensAndNoTimeOfOne) {
  GpuTrace t;
  t.annotation("step[decode bs=4]", 0, 50 * kUs);
  t.op("_moe_C::topk_softmax", 2 * kUs, 3 * kUs);
  t.inputs({tensor({4, 2}), tensor({4, 2}, "int"), tensor({4, 4})});
  t.op("fbgemm::bf16bf16bf16_grouped", 5 * kUs, 15 * kUs);
  t.inputs(
      {testing::tensor_list({tensor({4, 64}), tensor({1, 64}), tensor({0, 64}), tensor({3, 64})}),
       testing::tensor_list(
           {tensor({32, 64}), tensor({32, 64}), tensor({32, 64}), tensor({32, 64})})});
  t.call("cudaLaunchKernel", 6 * kUs, 7 * kUs, 1);
  t.gpu_kernel("grouped_gemm", 20 * kUs, 60 * kUs, 1);
  const std::vector<ExpertImbalance> found = imbalance_of(t);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].op, "fbgemm::bf16bf16bf16_grouped");
  EXPECT_DOUBLE_EQ(found[0].max_over_mean, 2);
  EXPECT_EQ(found[0].device_ns, 40 * kUs);
  EXPECT_FALSE(found[0].largest_ns);
}

TEST(Imbalance, NothingIsSaidWhereShapesDoNotTell) {
  using Fill = std::function<void(GpuTrace&, ExpertLoop&)>;
  const std::vector<std::pair<const char*, Fill>> cases = {
      {"one expert is missing (on another rank)",
       [](GpuTrace&, ExpertLoop& l) {
         l.layer(10, 8, 2, {1, 9, 4});
       }},
      {"more experts than the router has",
       [](GpuTrace&, ExpertLoop& l) {
         l.layer(6, 4, 2, {3, 3, 2, 2, 2});
       }},
      {"an expert with more rows than tokens",
       [](GpuTrace&, ExpertLoop& l) {
         l.layer(6, 4, 2, {8, 4});
       }},
      {"key and value of a dense layer",
       [](GpuTrace&, ExpertLoop& l) {
         l.topk(10, 8, 2);
         l.product(10, 64, 64);
         l.product(10, 64, 64);
       }},
      {"one token",
       [](GpuTrace&, ExpertLoop& l) {
         l.layer(1, 8, 2, {1, 1});
       }},
      {"no router",
       [](GpuTrace&, ExpertLoop& l) {
         for (const int64_t m : {1, 9, 4, 6}) l.product(m, 64, 256);
       }},
      {"offsets in a tensor",
       [](GpuTrace& t, ExpertLoop& l) {
         l.topk(10, 8, 2);
         t.op("aten::_grouped_mm", 500 * kUs, 510 * kUs);
         t.inputs({tensor({20, 64}), tensor({8, 64, 256}), tensor({8}, "int")});
       }},
      {"a padded batch of experts",
       [](GpuTrace& t, ExpertLoop& l) {
         l.topk(10, 8, 2);
         t.op("aten::bmm", 500 * kUs, 510 * kUs);
         t.inputs({tensor({8, 4, 64}), tensor({8, 64, 256})});
       }},
      {"gate and down disagree",
       [](GpuTrace&, ExpertLoop& l) {
         l.topk(4, 4, 1);
         for (const int64_t m : {1, 3}) l.product(m, 64, 256);
         for (const int64_t m : {2, 2}) l.product(m, 256, 64);
       }},
  };
  for (const auto& [what, fill] : cases) {
    GpuTrace t;
    ExpertLoop loop(t);
    loop.step("execute_context_1(10)_generation_0(0)");
    loop.product(3, 7, 9);
    fill(t, loop);
    ASSERT_FALSE(serving_report(t.trace, link(t.trace)).is_empty()) << what;
    EXPECT_TRUE(imbalance_of(t).empty()) << what;
  }
  GpuTrace unserved;
  ExpertLoop(unserved).layer(10, 8, 2, {1, 9, 4, 6});
  EXPECT_TRUE(imbalance_of(unserved).empty()) << "no step of a server";
}

// --- Real traces --------------------------------------------------------------------------------
// Expected numbers: sums over the trace's events by another program (Python's json), by kernels'
// names and by the range of vllm::moe_forward.

int64_t us_of(const ServingPhaseTime& phase, ServingPart part) {
  return (phase.part_ns[static_cast<size_t>(part)] + 500) / 1000;
}

TEST(ServingOfRealTraces, APrefillOfVllmOnB200) {
  constexpr std::string_view kName = "tracelens/b200_vllm_gpt_oss.json.gz";
  if (!has_real_trace(kName)) GTEST_SKIP() << real_trace_path(kName) << " is not there";
  const Trace trace = read_trace(real_trace_path(kName)).value();
  const ServingReport report = serving_report(trace, link(trace));
  ASSERT_EQ(report.phases.size(), 1U);
  const ServingPhaseTime& phase = report.phases.front();
  EXPECT_EQ(phase.phase, ServingPhase::prefill);
  EXPECT_EQ(phase.requests, 1);
  EXPECT_EQ(phase.tokens, 888);
  EXPECT_EQ(phase.median_ns / 1000, 84487);
  EXPECT_NEAR(phase.busy_pct, 100 * 11596.5 / 84487.2, 0.01);
  EXPECT_EQ(us_of(phase, ServingPart::attention), 486);
  EXPECT_EQ(us_of(phase, ServingPart::collectives), 2142);
  EXPECT_EQ(us_of(phase, ServingPart::experts), 6078);
  EXPECT_EQ(us_of(phase, ServingPart::products), 785);
  EXPECT_EQ(us_of(phase, ServingPart::sampling), 0);
  EXPECT_EQ(phase.limit, "host");
  ASSERT_EQ(report.experts.size(), 1U);
  EXPECT_EQ(report.experts.front().calls, 36);
  EXPECT_EQ(report.experts.front().experts, 128);
  EXPECT_EQ(report.experts.front().tokens, 888);
}

TEST(ServingOfRealTraces, ADecodeOfVllmOnMi300IsOneGraph) {
  constexpr std::string_view kName = "tracelens/mi300_vllm_graph_decode.json.gz";
  if (!has_real_trace(kName)) GTEST_SKIP() << real_trace_path(kName) << " is not there";
  const Trace trace = read_trace(real_trace_path(kName)).value();
  const Links links = link(trace);
  const ServingReport report = serving_report(trace, links);
  ASSERT_EQ(report.phases.size(), 1U);
  const ServingPhaseTime& phase = report.phases.front();
  EXPECT_EQ(phase.phase, ServingPhase::decode);
  EXPECT_EQ(phase.requests, 32);
  EXPECT_EQ(phase.context_tokens, 55086);
  EXPECT_EQ(phase.median_ns / 1000, 10743);
  EXPECT_EQ(us_of(phase, ServingPart::attention), 724);
  EXPECT_EQ(us_of(phase, ServingPart::products), 1231);
  EXPECT_EQ(us_of(phase, ServingPart::experts), 7789);
  EXPECT_EQ(phase.limit, "experts");
  const GraphReport graphs = graph_report(trace, links);
  EXPECT_EQ(graphs.launches, 1);
  EXPECT_EQ(graphs.kernels, 421);
}

}  // namespace epilogue::trace::serving_test
