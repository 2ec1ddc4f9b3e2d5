// SPDX-License-Identifier: Apache-2.0
// Findings about work that steps need not do: each with a trace that has it, and with one that just
// does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::need_findings_test {

using namespace testing;

// --- Numbers near zero -------------------------------------------------------------------

// 63 MFLOP, in so many microseconds at first and at last.
Explanation multiplied(int64_t first_us, int64_t last_us) {
  return explain_steps(4, [&](OpSequence& b, int i) {
    // Simple ops as slow as under threads that wait.
    for (int k = 0; k < 16; ++k) b.add("aten::mul", 700, {tensor({64, 1024}), scalar("0.5")});
    b.add("aten::mm", i < 3 ? first_us : last_us, {tensor({1536, 513}), tensor({513, 40})});
  });
}

TEST(NeedFindings, AProductBelowScalarSpeedReadsDenormalNumbers) {
  const Explanation e = multiplied(84'000, 85'000);
  const Finding* f = find_finding(e, "denormal-values");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "0.75 GFLOP/s");
  EXPECT_HAS(f->action, "set_flush_denormal");
  EXPECT_EQ(find_finding(e, "thread-contention"), nullptr) << "denormal numbers say why";
  EXPECT_EQ(find_finding(e, "main-work"), nullptr);
  EXPECT_EQ(&e.findings[1], f);
  EXPECT_EQ(find_finding(multiplied(60'000, 61'000), "denormal-values"), nullptr) << "1.05 GFLOP/s";
  const Explanation busy = multiplied(84'000, 170'000);
  EXPECT_EQ(find_finding(busy, "denormal-values"), nullptr) << "other work on the machine";
  EXPECT_NE(find_finding(busy, "thread-contention"), nullptr);
}

// --- Gradients that are zeros ------------------------------------------------------------

Explanation trained(int64_t parameters, int64_t gradients) {
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t start = b.at_us;
    for (int64_t p = 0; p < parameters; ++p) b.add("aten::zero_", 10, {tensor({64, 64})});
    b.annotation("Optimizer.zero_grad#Adam.zero_grad", start * kUs, b.at_us * kUs);
    b.add("aten::linear", 100, {tensor({64, 64}), tensor({64, 64}), tensor({64})}, 1);
    b.node("AddmmBackward0", 50, 1, "aten::mm");
    for (int64_t g = 0; g < gradients; ++g)
      b.node("torch::autograd::AccumulateGrad", 5, 100 + g, "aten::add_");
    b.annotation("Optimizer.step#Adam.step", b.at_us * kUs, (b.at_us + 600) * kUs);
    b.add("aten::_fused_adam_", 600);
  });
}

TEST(NeedFindings, AnOptimizerOverZerosIsNamed) {
  const Finding f = finding_of(trained(16, 4), "idle-gradients");
  EXPECT_HAS(f.title, "updates 16 parameters, and the backward pass gives 4 of them");
  EXPECT_NEAR(*f.saving_us, 2 * 0.75 * (160 + 600), 2);
  EXPECT_HAS(f.action, "set_to_none=True");
  EXPECT_EQ(find_finding(trained(16, 9), "idle-gradients"), nullptr) << "more than half";
  EXPECT_EQ(find_finding(trained(7, 1), "idle-gradients"), nullptr) << "few";
}

// --- A penalty in each step --------------------------------------------------------------

Explanation penalised(std::string_view taken, bool in_each_step = true) {
  return explain_steps(4, [&](OpSequence& b, int i) {
    const int64_t n = 100 * i;
    b.add("aten::conv2d", 300, {tensor({8, 8, 32, 32})}, n);
    if (i == 0 || in_each_step) {
      const std::string node = "autograd::engine::evaluate_function: ConvolutionBackward0";
      b.op(node, b.at_us * kUs, (b.at_us + 300) * kUs);
      b.last_args().sequence_number = n;
      b.op("aten::convolution_backward", b.at_us * kUs, (b.at_us + 299) * kUs);
      b.last_args().sequence_number = n + 1;
      b.at_us += 300;
      b.add(taken, 20, {tensor({8, 4096})}, n + 2);
      b.node("ConvolutionBackwardBackward0", 200, n + 1);
    }
    b.node("ConvolutionBackward0", 300, n);
  });
}

TEST(NeedFindings, APenaltyOfGradientsMayBeTakenInSomeSteps) {
  const Finding f = finding_of(penalised("aten::linalg_vector_norm"), "gradient-penalty");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_HAS(f.action, "every 16th step");
  EXPECT_FALSE(f.saving_us) << "a question";
  EXPECT_EQ(find_finding(penalised("aten::mean"), "gradient-penalty"), nullptr)
      << "the gradient is the loss's own";
  EXPECT_EQ(find_finding(penalised("aten::norm", false), "gradient-penalty"), nullptr)
      << "it is lazy";
}

// --- Python functions --------------------------------------------------------------------

Explanation kept(std::string_view function, int steps_with) {
  return explain_steps(3, [&](OpSequence& b, int i) {
    b.add("aten::linear", 100, {tensor({64, 64}), tensor({64, 64}), tensor({64})});
    if (i < steps_with) {
      b.event(Category::python_function, "train.py(7): keep_best", b.at_us * kUs,
              (b.at_us + 200) * kUs);
      b.event(Category::python_function, function, b.at_us * kUs, (b.at_us + 200) * kUs);
      b.event(Category::python_function, function, b.at_us * kUs, (b.at_us + 150) * kUs);
      b.add_around("aten::clone", "aten::copy_", 120, {tensor({512, 512}), tensor({512, 512})});
      b.at_us += 80;
    }
    // A product's own copies, which nobody asked for.
    b.add_around("aten::addmm", "aten::copy_", 200, {tensor({64, 64}), tensor({64, 64})});
  });
}

TEST(NeedFindings, CopiesThatDeepcopyMakesAreItsOwn) {
  const Explanation e = kept("copy.py(128): deepcopy", 3);
  Finding f = finding_of(e, "aside-function");
  EXPECT_NEAR(*f.saving_us, 3 * 200, 1) << "the outer call alone";
  EXPECT_HAS(f.action, "_foreach_copy_");
  EXPECT_EQ(find_finding(e, "copies"), nullptr);
  EXPECT_NE(find_finding(kept("train.py(9): clone_weights", 3), "copies"), nullptr);
  EXPECT_EQ(find_finding(kept("copy.py(128): deepcopy", 1), "aside-function"), nullptr)
      << "in one step";
  EXPECT_EQ(find_finding(kept("train.py(9): clone_weights", 3), "aside-function"), nullptr);
  f = finding_of(kept("torch/serialization.py(1316): load", 3), "aside-function");
  EXPECT_HAS(f.action, "when the program starts");
}

Explanation watched(int first, int last, std::string_view caller) {
  OpSequence b;
  for (const int runs : {first, last}) {
    b.add("aten::linear", 300, {tensor({64, 64}), tensor({64, 64}), tensor({64})});
    const int64_t start = b.at_us;
    for (int r = 0; r < runs; ++r) {
      b.event(Category::python_function, "train.py(20): note", b.at_us * kUs, (b.at_us + 40) * kUs);
      b.add("aten::std", 40, {tensor({64, 64})});
    }
    b.event(Category::python_function, caller, start * kUs, (b.at_us + 1) * kUs);
    b.at_us += 2;
    b.end_step();
  }
  return explain(b);
}

TEST(NeedFindings, HooksThatPileUpAreNamed) {
  constexpr std::string_view kCall = "torch/nn/modules/module.py(1791): _call_impl";
  Finding f = finding_of(watched(4, 5, kCall), "piled-hooks");
  EXPECT_HAS(f.title, "train.py(20): note runs 5 times for one call");
  EXPECT_NEAR(*f.saving_us, (3 + 4) * 40, 1) << "all but one of each call";
  EXPECT_EQ(f.confidence, Confidence::high);
  EXPECT_EQ(find_finding(watched(5, 5, kCall), "piled-hooks"), nullptr) << "they do not grow";
  EXPECT_EQ(find_finding(watched(4, 5, "train.py(3): step"), "piled-hooks"), nullptr) << "a loop";
  f = finding_of(watched(8, 8, kCall), "piled-hooks");
  EXPECT_EQ(f.confidence, Confidence::low);
}

// --- Tables ------------------------------------------------------------------------------

Explanation searched(int64_t queries, bool is_made) {
  return explain_steps(3, [&](OpSequence& b) {
    if (is_made) b.add("aten::mm", 10, {tensor({8000, 16}), tensor({16, 64})});  // makes the matrix
    b.add("aten::linalg_vector_norm", 100, {tensor({8000, 64}), scalar("2")});
    b.add("aten::div", 300, {tensor({8000, 64}), tensor({8000, 64})});
    b.add("aten::mm", 100, {tensor({queries, 64}), tensor({64, 8000})});
  });
}

TEST(NeedFindings, ATableIsNormalisedOnce) {
  const Finding f = finding_of(searched(8, false), "fixed-operand");
  EXPECT_HAS(f.title, "a table of [8000, 64] is normalised 3 times");
  EXPECT_NEAR(*f.cost_us, 3 * 400, 1);
  EXPECT_EQ(find_finding(searched(2000, false), "fixed-operand"), nullptr) << "as many rows";
  EXPECT_EQ(find_finding(searched(8, true), "fixed-operand"), nullptr) << "the run makes it";
}

TEST(NeedFindings, RowsAreTakenBeforeTheTableIsStandardised) {
  const auto batches = [](int64_t rows) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::sub", 200, {tensor({8000, 40}), tensor({40})});
      b.add("aten::div", 200, {tensor({8000, 40}), tensor({40})});
      b.add("aten::index", 10, {tensor({8000, 40}), tensor({})});
      b.add("aten::index", 10, {tensor({8000}), tensor({})});  // of the targets
      b.add("aten::linear", 300, {tensor({rows, 40}), tensor({256, 40}), tensor({256})});
    });
  };
  const Finding f = finding_of(batches(100), "cut-result");
  EXPECT_HAS(f.title, "aten::div computes [8000, 40]");
  EXPECT_HAS(f.action, "take the rows first");
  EXPECT_EQ(find_finding(batches(7000), "cut-result"), nullptr) << "most rows";
}

TEST(NeedFindings, WhatIsCutSaysHowToComputeLess) {
  OpSequence causal;
  for (int i = 0; i < 2; ++i) {
    causal.add("aten::conv1d", 600,
               {tensor({16, 48, 64}), tensor({48, 48, 7}), tensor({48}), scalar("[1]"),
                scalar("[192]"), scalar("[32]"), number(1)});
    causal.add("aten::slice", 1,
               {tensor({16, 48, 256}), number(2), number(0), number(64), number(1)});
    causal.add("aten::relu", 300, {tensor({16, 48, 64})});
    causal.end_step();
  }
  const Explanation padded = explain(causal);
  const Finding* f = find_finding(padded, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->action, "F.pad on the side that stays");
  OpSequence graph;
  for (int i = 0; i < 2; ++i) {
    graph.add("aten::index_add", 500,
              {tensor({6000, 64}), number(0), tensor({36000}, "long int"), tensor({6000, 64})});
    graph.add("aten::linear", 300, {tensor({6000, 64}), tensor({5, 64}), tensor({5})});
    graph.add("aten::index_select", 5, {tensor({6000, 5}), number(0), tensor({24}, "long int")});
    graph.end_step();
  }
  const Explanation nodes = explain(graph);
  ASSERT_NE(f = find_finding(nodes, "cut-result"), nullptr);
  EXPECT_HAS(f->action, "k_hop_subgraph");
}

// --- Graphs that hold memory -----------------------------------------------------------

Explanation simulated(int64_t freed_each) {
  return explain_rounds(80, [&](OpSequence& b, int64_t i) {
    b.add("aten::add", 100, {tensor({512, 512}), tensor({512, 512})}, 100 + i);
    b.memory((b.at_us - 50) * kUs, 1 << 20);
    if (i % freed_each == freed_each - 1)
      for (int64_t k = 0; k < freed_each; ++k) b.memory((b.at_us - 10) * kUs, -(1 << 20));
  });
}

TEST(NeedFindings, AGraphThatHoldsMemoryIsNamedThoughItsNodesCostLittle) {
  const Finding f = finding_of(simulated(40), "unread-graph");
  EXPECT_HAS(f.evidence[1], "grows to 40.0 MiB, 40 times the largest tensor");
  EXPECT_NEAR(*f.cost_us, 80 * 100, 1);
  EXPECT_EQ(f.confidence, Confidence::low);
  const Explanation freed = simulated(4);
  const Finding* nodes = find_finding(freed, "unread-graph");
  EXPECT_TRUE(nodes == nullptr || *nodes->cost_us < 200) << "the nodes alone";
}

// --- Orders ------------------------------------------------------------------------------

TEST(NeedFindings, ACacheThatIsReorderedWholeKeepsIndices) {
  const auto reordered = [](int64_t rows) {
    return explain_rounds(16, [&](OpSequence& b) {
      b.add("aten::index_select", 200, {tensor({8, 4, 512, 32}), number(0), tensor({rows})});
      b.add("aten::mm", 300, {tensor({256, 256}), tensor({256, 256})});
    });
  };
  const Finding f = finding_of(reordered(8), "long-op");
  EXPECT_HAS(f.title, "it takes as many rows as [8, 4, 512, 32] has");
  EXPECT_HAS(f.action, "the part that differs");
  const Explanation fewer = reordered(2);
  const Finding* other = find_finding(fewer, "long-op");
  if (other != nullptr) {
    EXPECT_LACKS(other->title, "as many rows");
  }
}

TEST(NeedFindings, AdviceNamesNoFormatThatTheRunHas) {
  const auto convolved = [](bool is_last) {
    OpSequence b;
    OpInput image = tensor({8, 64, 32, 32});
    if (is_last) image.strides = {64 * 32 * 32, 1, 32 * 64, 64};
    for (int i = 0; i < 4; ++i)
      b.add("aten::mkldnn_convolution", 300, {image, tensor({64, 64, 3, 3})});
    return explain(b);
  };
  Finding f = finding_of(convolved(false), "main-work");
  EXPECT_HAS(f.action, "channels_last for the model");
  f = finding_of(convolved(true), "main-work");
  EXPECT_LACKS(f.action, "channels_last for the model");
}

TEST(NeedFindings, CopiesBetweenMemoryFormatsNameTheFormat) {
  const auto copied = [](bool is_other) {
    OpInput last = tensor({8, 64, 32, 32});
    if (is_other) last.strides = {64 * 32 * 32, 1, 32 * 64, 64};
    return explain_rounds(4, [&](OpSequence& b) {
      b.add("aten::convolution", 300, {tensor({8, 64, 32, 32}), tensor({64, 64, 3, 3})});
      b.op("aten::contiguous", b.at_us * kUs, (b.at_us + 200) * kUs);
      b.inputs({last});
      b.op("aten::copy_", b.at_us * kUs, (b.at_us + 199) * kUs);
      b.inputs({tensor({8, 64, 32, 32}), last, scalar("False")});
      b.at_us += 200;
    });
  };
  Finding f = finding_of(copied(true), "copies");
  EXPECT_HAS(f.action, "stay in one memory format");
  f = finding_of(copied(false), "copies");
  EXPECT_LACKS(f.action, "stay in one memory format");
}

// --- Loops -------------------------------------------------------------------------------

Explanation looped(const std::vector<std::string_view>& ops) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int k = 0; k < 20; ++k)
      for (const std::string_view op : ops) b.add(op, 2, {tensor({64, 64})});
  });
}

TEST(NeedFindings, LoopsSayWhatTheirIterationsAreFor) {
  const Explanation solved =
      looped({"aten::conv2d", "aten::mul", "aten::sum", "aten::div", "aten::mul", "aten::add",
              "aten::sub", "aten::square", "aten::sum", "aten::gt", "aten::is_nonzero"});
  // A test on a value is no layer's.
  EXPECT_HAS(finding_of(solved, "call-loop").action, "warm start");
  const Explanation plain =
      looped({"aten::conv2d", "aten::mul", "aten::sum", "aten::div", "aten::mul", "aten::add",
              "aten::sub", "aten::square", "aten::sum", "aten::gt"});
  EXPECT_EQ(find_finding(plain, "call-loop"), nullptr) << "it may be layers";
  const Explanation suppressed = looped({"aten::select", "aten::item", "aten::maximum",
                                         "aten::minimum", "aten::sub", "aten::clamp", "aten::gt"});
  EXPECT_HAS(finding_of(suppressed, "call-loop").action, "drop candidates before the loop");
  const std::pair<std::vector<std::string_view>, const char*> kLoops[] = {
      {{"aten::gt", "aten::bitwise_and", "aten::sum"}, "sort once"},
      {{"aten::roll", "aten::mul", "aten::sum"}, "shifts are taken one by one"},
      {{"aten::select", "aten::minimum", "aten::add"}, "a whole anti-diagonal"},
      {{"aten::sub", "aten::logsumexp", "aten::sub", "aten::logsumexp"}, "Sinkhorn"},
      {{"aten::select", "aten::linalg_eigh"}, "pre_transform"},
      {{"aten::select", "aten::eq", "aten::all", "aten::is_nonzero"}, "validate_args=False"},
      {{"aten::select", "aten::eq", "aten::is_nonzero"}, "numbers are taken out of tensors"},
  };
  for (const auto& [ops, action] : kLoops) {
    const Explanation e = looped(ops);
    EXPECT_HAS(finding_of(e, "call-loop").action, action);
  }
}

// --- The order of findings ---------------------------------------------------------------

TEST(NeedFindings, ASavingOfLowConfidenceCountsHalf) {
  const auto ordered = [](int64_t power_us) {
    return explain_steps(2, [&](OpSequence& b) {
      // More than models have layers, and nothing shows that these are none.
      for (int k = 0; k < 40; ++k) {
        b.add("aten::conv2d", 2, {tensor({64, 64})});
        b.add("aten::mul", 2, {tensor({64, 64})});
      }
      b.add("aten::pow", power_us, {tensor({800, 50}), scalar("12")});
    });
  };
  for (const int64_t power_us : {110, 60}) {
    const Explanation e = ordered(power_us);
    const Finding* loop = find_finding(e, "call-loop");
    const Finding* power = find_finding(e, "long-op");
    ASSERT_NE(loop, nullptr);
    ASSERT_NE(power, nullptr);
    EXPECT_EQ(loop->confidence, Confidence::low);
    EXPECT_NEAR(*loop->saving_us, 320, 20);
    EXPECT_EQ(power < loop, power_us == 110) << "beside half of 320 us: " << 2 * power_us;
  }
}

}  // namespace epilogue::trace::need_findings_test
