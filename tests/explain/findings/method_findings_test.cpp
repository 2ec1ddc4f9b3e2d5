// SPDX-License-Identifier: Apache-2.0
// The method's findings: for each sign a trace that has it, and one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::method_findings_test {

using namespace testing;

OpInput number(int64_t value) { return scalar(std::to_string(value)); }

OpInput expanded(std::vector<int64_t> dims, size_t at) {
  OpInput input = tensor(std::move(dims));
  input.strides[at] = 0;
  return input;
}

// Ops one after the other, and one that is no question: the rest of the run.
struct Line : GpuTrace {
  int64_t at_us = 0;
  void add(const char* name, int64_t us, std::vector<OpInput> of = {}) {
    op(name, at_us * kUs, (at_us + us) * kUs);
    if (!of.empty()) inputs(std::move(of));
    at_us += us;
  }
  void rest(int64_t us) { add("aten::mm", us, {tensor({256, 256}), tensor({256, 256})}); }
  // An op within the one before, of all but its last microsecond.
  void within(const char* name, int64_t us, std::vector<OpInput> of = {}) {
    op(name, (at_us - us) * kUs, (at_us - 1) * kUs);
    if (!of.empty()) inputs(std::move(of));
  }
};

const Finding* long_op(const Explanation& e) { return find_finding(e, "long-op"); }

void expect_says(const Explanation& e, std::string_view title, std::string_view action) {
  const Finding f = finding_of(e, "long-op");
  EXPECT_HAS(f.title, title);
  EXPECT_HAS(f.action, action);
}

// The addmm within computes what the sizes of both say.
TEST(MethodFindings, ALayerHasNoRateOfTheProductThatItCalls) {
  GpuTrace b;
  b.op("aten::linear", 0, 1100 * kUs);
  b.inputs({tensor({512, 512}), tensor({512, 512}), tensor({512})});
  b.op("aten::addmm", 100 * kUs, 1100 * kUs);
  b.inputs({tensor({512}), tensor({512, 512}), tensor({512, 512})});
  bool has_product = false;
  for (const CostItem& item : explain(b).method.items)
    for (const CostAnswer& answer : item.answers) {
      const bool is_rate = answer.text.find("of the best product") != std::string::npos;
      EXPECT_FALSE(is_rate && item.op == "aten::linear") << answer.text;
      has_product |= is_rate && item.op == "aten::addmm";
    }
  EXPECT_TRUE(has_product);
}

TEST(MethodFindings, ASortOfWhichASliceIsReadIsTopk) {
  const OpInput rows = tensor({16, 50'000});
  const auto trace = [&](int64_t end) {
    Line b;
    b.add("aten::sort", 70, {rows, number(-1), scalar("True")});
    b.add("aten::slice", 1, {rows, number(1), number(0), number(end), number(1)});
    b.rest(929);
    return explain(b);
  };
  expect_says(trace(40), "aten::slice of the result reads 40 of 50000", "topk");
  EXPECT_EQ(long_op(trace(49'000)), nullptr) << "7 % alone is no question";
}

TEST(MethodFindings, AGradientOfATableThatIsHardlyReadIsDense) {
  const auto trace = [&](int64_t rows) {
    Line b;
    b.add("aten::embedding_dense_backward", 400,
          {tensor({256, 16}), tensor({256}, "long int"), number(rows), number(-1)});
    b.rest(600);
    return explain(b);
  };
  expect_says(trace(300'000), "a table of 300000 rows, and the batch reads 256", "sparse=True");
  EXPECT_EQ(long_op(trace(512)), nullptr);
}

TEST(MethodFindings, TheGradientOfIndexingAddsOneByOne) {
  const auto trace = [&](const char* accumulate) {
    Line b;
    b.add("aten::_index_put_impl_", 80,
          {tensor({20'000, 64}), tensor_list({tensor({40'000})}), tensor({40'000, 64}),
           scalar(accumulate)});
    b.rest(920);
    return explain(b);
  };
  expect_says(trace("True"), "accumulate=True adds element by element", "index_select");
  EXPECT_EQ(long_op(trace("False")), nullptr);
}

TEST(MethodFindings, ACatThatGrowsIsCopiedEachTime) {
  const auto trace = [&](bool grows) {
    Line b;
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t rows = grows ? 512 + i : 512;
      b.add("aten::cat", 15, {tensor_list({tensor({rows, 64}), tensor({1, 64})})});
    }
    b.rest(820);
    return explain(b);
  };
  expect_says(trace(true), "11 calls join the result of a call before", "allocate the whole once");
  EXPECT_EQ(long_op(trace(false)), nullptr);
}

TEST(MethodFindings, AnExpandedOperandIsWrittenOut) {
  const auto trace = [&](const OpInput& source) {
    Line b;
    b.add("aten::clone", 101, {source});
    b.within("aten::copy_", 101, {tensor({64, 128, 128}), source});
    b.rest(899);
    return explain(b);
  };
  expect_says(trace(expanded({64, 128, 128}, 0)), "that was expanded 64 times", "one matmul");
  EXPECT_EQ(long_op(trace(tensor({64, 128, 128}))), nullptr);
}

TEST(MethodFindings, DropoutWithoutABackwardPassIsALoss) {
  const auto trace = [&](bool trains) {
    Line b;
    b.add("aten::native_dropout", 100, {tensor({512, 512}), scalar("0.5"), scalar("True")});
    if (trains) b.add("autograd::engine::evaluate_function: MulBackward0", 1);
    b.rest(899);
    return explain(b);
  };
  expect_says(trace(false), "dropout is active", "model.eval()");
  EXPECT_EQ(long_op(trace(true)), nullptr);
}

TEST(MethodFindings, AProductWithOneHotVectorsIsAnEmbedding) {
  const auto trace = [&](const char* maker) {
    Line b;
    b.add(maker, 10, {tensor({256}, "long int"), number(5000)});
    b.add("aten::mm", 900, {tensor({256, 5000}), tensor({5000, 64})});
    b.add("aten::relu", 90, {tensor({256, 64})});
    return explain(b);
  };
  EXPECT_HAS(finding_of(trace("aten::one_hot"), "built-matrix").action, "embedding");
  EXPECT_EQ(long_op(trace("aten::to")), nullptr);
}

TEST(MethodFindings, AScanAlongAStridedDimensionIsNamed) {
  const auto trace = [&](int64_t dim) {
    Line b;
    b.add("aten::cumsum", 200, {tensor({512, 512}), number(dim)});
    b.rest(800);
    return explain(b);
  };
  expect_says(trace(0), "whose elements lie 512 apart", "last, contiguous dimension");
  EXPECT_EQ(long_op(trace(1)), nullptr);
}

TEST(MethodFindings, AllPairsByBroadcastingAreADistance) {
  const auto trace = [&](std::vector<int64_t> other) {
    Line b;
    b.add("aten::sub", 200, {tensor({300, 1, 64}), tensor(std::move(other)), number(1)});
    b.rest(800);
    return explain(b);
  };
  expect_says(trace({1, 400, 64}), "all pairs, 300 times", "torch.cdist");
  EXPECT_EQ(long_op(trace({300, 400, 64})), nullptr) << "one operand is as large as the result";
}

TEST(MethodFindings, SolvingForOneColumnAtATimeIsABatch) {
  const auto trace = [&](int64_t columns) {
    Line b;
    for (int i = 0; i < 6; ++i)
      b.add("aten::_linalg_solve_ex", 20, {tensor({32, 32}), tensor({32, columns})});
    b.rest(880);
    return explain(b);
  };
  expect_says(trace(1), "each of 6 calls solves [32, 32] for a single column", "stack");
  EXPECT_EQ(long_op(trace(32)), nullptr);
}

TEST(MethodFindings, AnInverseThatIsMultipliedIsASolution) {
  const auto trace = [&](std::vector<int64_t> other) {
    Line b;
    b.add("aten::linalg_inv_ex", 90, {tensor({300, 300}), scalar("False")});
    b.add("aten::mm", 910, {tensor(other), tensor({other.back(), 8})});
    return explain(b);
  };
  expect_says(trace({300, 300}), "the inverse of [300, 300] is multiplied next", "linalg.solve");
  EXPECT_EQ(long_op(trace({64, 64})), nullptr);
}

// Two kinds of values in products of one shape: half of the calls are slow.
TEST(MethodFindings, CallsOfOneShapeThatDifferAreNamed) {
  const auto trace = [&](int64_t slow_us, bool is_random = false) {
    Line b;
    for (int step = 0; step < 2; ++step) {
      const int64_t start = b.at_us;
      for (int i = 0; i < 2; ++i) {
        b.rest(is_random && step == 0 ? slow_us : 30);
        b.rest(is_random && step == 0 ? 30 : slow_us);
      }
      b.annotation("ProfilerStep#" + std::to_string(step), start * kUs, b.at_us * kUs);
    }
    return explain(b);
  };
  const Explanation e = trace(1500);
  const Finding f = finding_of(e, "uneven-calls");
  EXPECT_EQ(f.title.find("4 of 8 calls of aten::mm with the same sizes take 50 times as long"), 0U)
      << f.title;
  EXPECT_HAS(f.action, "denormal");
  EXPECT_EQ(long_op(e), nullptr) << "it is said once";
  EXPECT_EQ(long_op(trace(60)), nullptr);
  EXPECT_EQ(long_op(trace(1500, true)), nullptr) << "other calls in each step: the machine";
  EXPECT_EQ(find_finding(trace(1500, true), "uneven-calls"), nullptr);
}

TEST(MethodFindings, WhatTheProgramAskedForIsNamedForItsParts) {
  const auto trace = [&](const char* name) {
    Line b;
    b.add(name, 301, {tensor({256}, "long int"), number(5000)});
    b.within("aten::fill_", 301, {tensor({256, 5000}, "long int"), number(0)});
    b.rest(699);
    return explain(b);
  };
  const Explanation e = trace("aten::one_hot");
  const Finding f = finding_of(e, "long-op");
  EXPECT_EQ(f.title.find("aten::fill_ takes 300 us"), 0U) << f.title;
  EXPECT_HAS(f.action, "index_select on the weight");
  EXPECT_EQ(long_op(trace("aten::zeros")), nullptr) << "a fill alone is no question";
}

TEST(MethodFindings, AnOpIsNamedWithItsPlace) {
  GpuTrace b;
  b.annotation("prepare", 0, 700 * kUs);
  b.event(Category::python_function, "train.py(12): prepare", 0, 690 * kUs);
  b.event(Category::python_function, "nn.Module: Encoder_0", 0, 690 * kUs);
  b.op("aten::_unique2", 10 * kUs, 500 * kUs);
  b.inputs({tensor({4096}, "long int")});
  b.op("aten::mm", 700 * kUs, 1000 * kUs);
  b.inputs({tensor({256, 256}), tensor({256, 256})});
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "long-op");
  EXPECT_EQ(f.title, "aten::_unique2 takes 490 us of 1.00 ms (49 %)");
  EXPECT_TRUE(
      has_line(f,
               "most of it in module Encoder_0, in the range prepare, called from train.py(12): "
               "prepare"));
  EXPECT_TRUE(has_line(f, "on [4096] long int: 1 call, 490 us in all"));
  EXPECT_FALSE(f.action.empty());
}

TEST(MethodFindings, WithADeviceTheTimeIsThatOfTheKernels) {
  GpuTrace b;
  b.op("aten::sort", 0, 20 * kUs);
  b.inputs({tensor({16, 50'000}), number(-1)});
  b.call("cudaLaunchKernel", 5 * kUs, 10 * kUs, 1);
  b.op("aten::mm", 20 * kUs, 40 * kUs);
  b.call("cudaLaunchKernel", 25 * kUs, 30 * kUs, 2);
  b.gpu_kernel("at::native::sort", 30 * kUs, 500 * kUs, 1);
  b.gpu_kernel("sgemm", 500 * kUs, 1000 * kUs, 2);
  const Explanation e = explain(b);
  EXPECT_TRUE(e.method.is_device);
  expect_says(e, "aten::sort takes 470 us", "topk");
}

// --- Loops -------------------------------------------------------------------------------

// `iterations` times a small op of each kind, within a step.
Explanation loop_of(int iterations, std::vector<const char*> ops, int64_t op_us,
                    bool layers = false) {
  GpuTrace b;
  int64_t at = 10;
  for (int i = 0; i < iterations; ++i) {
    const int64_t start = at;
    for (const char* name : ops) {
      b.op(name, at * kUs, (at + op_us) * kUs);
      b.inputs({tensor({4, 16}), tensor({4, 16})});
      at += op_us + 4;
    }
    const std::string module = "nn.Module: Cell_" + std::to_string(layers ? i : 0);
    b.event(Category::python_function, module, start * kUs, at * kUs);
  }
  b.annotation("ProfilerStep#1", 0, (at + 10) * kUs);
  return explain(b);
}

TEST(MethodFindings, ALoopOfSmallCallsIsNamed) {
  const Finding f = finding_of(loop_of(20, {"aten::select", "aten::add"}, 3), "call-loop");
  EXPECT_EQ(f.title.find("a loop calls aten::select, aten::add 20 times"), 0U) << f.title;
  EXPECT_EQ(f.confidence, Confidence::medium);
  EXPECT_FALSE(f.action.empty());
  EXPECT_EQ(find_finding(loop_of(6, {"aten::select", "aten::add"}, 3), "call-loop"), nullptr);
  EXPECT_EQ(find_finding(loop_of(20, {"aten::select", "aten::add"}, 300), "call-loop"), nullptr)
      << "the ops work";
}

// Three layers of a step each loop over 20 chunks, and so do their nodes of the backward pass.
Explanation loops_of_layers(bool has_numbers) {
  OpSequence b;
  int64_t number = 1;
  for (int step = 0; step < 2; ++step) {
    const int64_t first = number;
    for (int layer = 0; layer < 3; ++layer) {
      b.add("aten::relu", 300, {}, has_numbers ? number : -1);
      ++number;
      for (int i = 0; i < 20; ++i) {
        b.add("aten::add_", 3, {}, has_numbers ? number : -1);
        b.add("aten::div", 3, {}, has_numbers ? number : -1);
        ++number;
      }
    }
    for (int64_t n = number; n-- > first;)
      b.node((n - first) % 21 == 0 ? "ReluBackward0" : "DivBackward0",
             (n - first) % 21 == 0 ? 300 : 6, has_numbers ? n : -1, "aten::mul");
    b.end_step();
  }
  return explain(b);
}

TEST(MethodFindings, EachBackwardPassOfALoopCountsOnce) {
  for (const bool has_numbers : {true, false}) {
    const Explanation e = loops_of_layers(has_numbers);
    const Finding* f = find_finding(e, "call-loop");
    ASSERT_NE(f, nullptr);
    EXPECT_EQ(f->title.find("a loop calls aten::add_, aten::div 120 times, which takes 1.44 ms"),
              0U)
        << f->title;
    // Two ops forward, a node and its op backward.
    EXPECT_NE(f->evidence.front().find("6 times, 20 iterations each, 480 ops in all"),
              std::string::npos)
        << f->evidence.front();
  }
}

TEST(MethodFindings, LayersOfAModelAreNoLoop) {
  EXPECT_NE(find_finding(loop_of(20, {"aten::linear", "aten::tanh"}, 3), "call-loop"), nullptr);
  EXPECT_EQ(find_finding(loop_of(20, {"aten::linear", "aten::tanh"}, 3, true), "call-loop"),
            nullptr);
}

TEST(MethodFindings, ALoopClaimsTheTimeOfCalling) {
  const Explanation e = loop_of(100, {"aten::select", "aten::add"}, 2);
  const Finding loop = finding_of(e, "call-loop");
  const Finding* dispatch = find_finding(e, "dispatch");
  EXPECT_TRUE(dispatch == nullptr || *dispatch->cost_us < 0.2 * *loop.cost_us);
}

// --- Work that was done before -----------------------------------------------------------

TEST(MethodFindings, AForwardPassWithinTheBackwardPassIsCheckpointing) {
  const auto trace = [](bool again) {
    Line b;
    for (int i = 0; i < 2; ++i) {
      b.add("aten::linear", 200, {tensor({64, 64}), tensor({64, 64})});
      b.add("autograd::engine::evaluate_function: AddmmBackward0", 301);
      if (again) b.within("aten::linear", 201, {tensor({64, 64}), tensor({64, 64})});
    }
    return explain(b);
  };
  const Finding f = finding_of(trace(true), "recomputed-forward");
  EXPECT_DOUBLE_EQ(*f.saving_us, 400);
  EXPECT_HAS(f.action, "checkpoint");
  EXPECT_EQ(find_finding(trace(false), "recomputed-forward"), nullptr);
}

TEST(MethodFindings, AMaskThatEveryStepMakesAnewIsAConstant) {
  const auto trace = [](bool is_data) {
    Line b;
    const OpInput square = tensor({512, 512});
    for (int i = 0; i < 3; ++i) {
      b.add("aten::ones", 50, {scalar("[512, 512]", "ScalarList")});
      b.add("aten::tril", 50, {is_data ? tensor({512, 256}) : square, number(0)});
      b.add("aten::logical_not", 50, {is_data ? tensor({512, 256}) : square});
      b.rest(600);
    }
    return explain(b);
  };
  const Finding f = finding_of(trace(false), "rebuilt-constant");
  EXPECT_DOUBLE_EQ(*f.cost_us, 450);
  EXPECT_EQ(f.evidence.front(), "aten::ones, aten::tril, aten::logical_not (262144 elements)");
  EXPECT_EQ(find_finding(trace(true), "rebuilt-constant"), nullptr)
      << "what reads other sizes reads data, and a fill alone is memory to write to";
}

// --- Caches and places -------------------------------------------------------------------

// 1.6 MiB of operands: more than the L2 of a Zen 4 core holds, less than that of Sapphire Rapids.
TEST(MethodFindings, WhatTheL2CachesHoldDoesNotWaitForMemory) {
  Line b;
  for (int i = 0; i < 10; ++i) b.add("aten::mm", 1260, {tensor({16, 768}), tensor({768, 512})});
  b.add("aten::mm", 8000, {tensor({1024, 768}), tensor({768, 512})});
  const Links links = link(b.trace);
  const auto of = [&](const char* cpu) {
    ExplainOptions options;
    if (cpu != nullptr) options.cpu = estimate_cpu_peaks(cpu, 1).value();
    return explain(b.trace, links, options);
  };
  EXPECT_TRUE(
      has_line(finding_of(of(nullptr), "bandwidth-products"),
               "the CPU's caches are not known: 1 MiB of L2 is assumed; --cpu names the CPU"));
  EXPECT_TRUE(has_line(finding_of(of("Zen 4"), "bandwidth-products"),
                       "operands are larger than the 1.00 MiB that the L2 caches hold (Zen 4)"));
  EXPECT_EQ(find_finding(of("Sapphire Rapids"), "bandwidth-products"), nullptr);
}

TEST(MethodFindings, ElementwiseOpsAreRatedAmongThoseOfTheirCaches) {
  Line b;
  for (int i = 0; i < 4; ++i) {
    b.add("aten::add", 25, {tensor({256, 256}), tensor({256, 256})});        // 0.75 MiB
    b.add("aten::mul", 4000, {tensor({2048, 2048}), tensor({2048, 2048})});  // 48 MiB
  }
  const Explanation e = explain(b);
  ASSERT_EQ(e.method.items.size(), 1U) << "add takes less than a per cent";
  ASSERT_FALSE(e.method.items[0].answers.empty());
  EXPECT_EQ(
      e.method.items[0].answers[0].text,
      "12.6 GB/s, 100 % of the best elementwise op beyond 1 MiB (the caches are not known) of "
      "the run");
}

TEST(MethodFindings, AUnitOfALongOpIsComparedWithWhereItWasMeasured) {
  Line b;
  b.add("aten::logcumsumexp", 800'000, {tensor({1024, 1024}), number(-1)});
  b.rest(100);
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "long-op");
  EXPECT_TRUE(std::any_of(f.evidence.begin(), f.evidence.end(), [](const std::string& line) {
    return line.find(" ns for each element; ") != std::string::npos &&
           line.find(" times as long") != std::string::npos;
  }));
}

TEST(MethodFindings, RecurrentLayersHaveNoTimeForEachElement) {
  Line b;
  b.add("aten::mkldnn_rnn_layer", 800'000, {tensor({48, 64, 192}), tensor({768, 192})});
  b.rest(100);
  const Explanation e = explain(b);
  ASSERT_FALSE(e.method.items.empty());
  for (const CostAnswer& answer : e.method.items[0].answers)
    EXPECT_EQ(answer.text.find("for each"), std::string::npos) << answer.text;
}

TEST(MethodFindings, RangesAndGapsStandBesideOps) {
  Line b;
  b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
  b.annotation("preprocess", 100 * kUs, 400 * kUs);
  b.at_us = 400;
  b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
  const Explanation e = explain(b);
  ASSERT_EQ(e.method.spots.size(), 1U);
  EXPECT_EQ(cost_spot_name(e.method.spots[0].kind), "range");
  EXPECT_EQ(e.method.spots[0].name, "preprocess");
  EXPECT_EQ(e.method.spots[0].ns, 300 * kUs);
  GpuTrace device;
  for (int64_t i = 0; i < 2; ++i) {
    device.op("aten::relu", i * 500 * kUs, (i * 500 + 10) * kUs);
    device.call("cudaLaunchKernel", (i * 500 + 5) * kUs, (i * 500 + 8) * kUs, i + 1);
    device.gpu_kernel("relu", (i * 500 + 10) * kUs, (i * 500 + 60) * kUs, i + 1);
  }
  const Explanation idle = explain(device);
  ASSERT_EQ(idle.method.spots.size(), 1U);
  EXPECT_EQ(cost_spot_name(idle.method.spots[0].kind), "gap");
  EXPECT_EQ(idle.method.spots[0].ns, 450 * kUs);
  EXPECT_EQ(idle.method.spots[0].text, "the host was between ops");
}

// --- The division ------------------------------------------------------------------------

TEST(MethodFindings, TheSameTimeIsClaimedOnce) {
  Line b;
  b.add("aten::index", 400, {tensor({4096, 64}, "double"), tensor_list({tensor({4096})})});
  b.within("aten::nonzero", 200, {tensor({4096}, "bool")});
  b.rest(600);
  const Explanation e = explain(b);
  ASSERT_NE(find_finding(e, "boolean-mask"), nullptr);
  double claimed = 0;
  for (const Finding& f : e.findings)
    if (f.id != "verdict" && f.id != "profiler-cost") claimed += f.cost_us.value_or(0);
  EXPECT_LE(claimed, 1000);
  EXPECT_EQ(long_op(e), nullptr) << "it is said";
}

TEST(MethodFindings, EveryOpUntilMostIsToldHasARow) {
  Line b;
  for (const char* name : {"aten::mm", "aten::addmm", "aten::bmm", "aten::relu", "aten::sort"})
    b.add(name, 200, {tensor({64, 64}), tensor({64, 64})});
  const Explanation e = explain(b);
  EXPECT_EQ(e.method.items.size(), 5U);
  EXPECT_EQ(e.method.told_ns, 1000 * kUs);
  for (const Finding& f : e.findings)
    if (f.id == "long-op") {
      EXPECT_TRUE(!f.action.empty() || f.evidence.back() == "no remedy known");
    }
}

}  // namespace epilogue::trace::method_findings_test
