// SPDX-License-Identifier: Apache-2.0
// Findings about work in pieces, and for more than is asked: each with a trace that has it, and
// with one that just does not.
#include <fmt/format.h>

#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::piece_findings_test {

using namespace testing;

void add_work(OpSequence& b, int64_t us) {
  b.add("aten::linear", us, {tensor({512, 512}), tensor({512, 512}), tensor({512})});
}

// --- Sums over shifted slices ------------------------------------------------------------

// Slices of `by` more each time, whose products are summed over dimension `over`.
Explanation shifts(int64_t count, int64_t by, int64_t length, const char* over) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int64_t i = 1; i <= count; ++i) {
      b.add("aten::slice", 1,
            {tensor({400, 1024}), number(1), number(i * by), number(i * by + length), number(1)});
      b.add("aten::slice", 1,
            {tensor({400, 1024}), number(1), number(0), number(length), number(1)});
      b.add("aten::mul", 30, {tensor({400, length}), tensor({400, length})});
      b.add("aten::sum", 10, {tensor({400, length}), scalar(over)});
    }
    add_work(b, 300);
  });
}

TEST(PieceFindings, ACorrelationByLagsIsATransform) {
  const Finding f = finding_of(shifts(20, 1, 1000, "[1]"), "shifted-sums");
  EXPECT_HAS(f.title, "20 shifts one by one");
  EXPECT_HAS(f.action, "rfft");
  EXPECT_HAS(f.action, "conv1d");
  EXPECT_NEAR(*f.cost_us, 2 * 20 * 42, 1);
  EXPECT_EQ(find_finding(shifts(8, 1, 1000, "[1]"), "shifted-sums"), nullptr) << "few";
  EXPECT_EQ(find_finding(shifts(20, 50, 50, "[1]"), "shifted-sums"), nullptr) << "parts";
  EXPECT_EQ(find_finding(shifts(20, 1, 1000, "[0]"), "shifted-sums"), nullptr)
      << "the sum is over rows: attention within a window";
}

// --- Wide windows of pooling -------------------------------------------------------------

Explanation pools(std::vector<int64_t> windows, int64_t stride) {
  return explain_steps(2, [&](OpSequence& b) {
    for (const int64_t k : windows)
      b.add("aten::max_pool2d", k * k,
            {tensor({3, 64, 28, 28}), scalar(fmt::format("[{}, {}]", k, k)),
             scalar(fmt::format("[{}, {}]", stride, stride)), scalar("[2, 2]"), scalar("[1, 1]")});
    add_work(b, 200);
  });
}

TEST(PieceFindings, WidePoolsAreSmallOnesInSeries) {
  Finding f = finding_of(pools({5, 9, 13}, 1), "wide-pools");
  EXPECT_HAS(f.title, "5 x 5, 9 x 9, 13 x 13");
  EXPECT_HAS(f.action, "5 x 5 pools one after the other");
  EXPECT_NEAR(*f.saving_us, 2 * (25 + 81 + 169 - 3 * 25), 1);
  const Explanation one = pools({13}, 1);
  f = finding_of(one, "wide-pools");
  EXPECT_EQ(f.action.find("a window of (1, 13)"), f.action.find("a window"));
  EXPECT_LACKS(f.action, "in series");
  EXPECT_EQ(find_finding(pools({5, 9, 13}, 5), "wide-pools"), nullptr) << "no overlap";
  EXPECT_EQ(find_finding(pools({3, 3, 3}, 1), "wide-pools"), nullptr);
}

// --- Modules side by side ----------------------------------------------------------------

Explanation heads(int count, int64_t us, bool joins, bool is_one = false) {
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t start = b.at_us;
    for (int i = 0; i < count; ++i) {
      b.event(Category::python_function, "nn.Module: Head_" + std::to_string(is_one ? 0 : i),
              b.at_us * kUs, (b.at_us + 3 * us) * kUs);
      for (int part = 0; part < 3; ++part)
        b.add("aten::linear", us, {tensor({64, 128}), tensor({8, 128})});
    }
    std::vector<OpInput> parts;
    for (int i = 0; i < count; ++i) parts.push_back(tensor({64, 8}));
    if (joins) b.add("aten::cat", 5, {tensor_list(parts), number(1)});
    add_work(b, 20);
    b.event(Category::python_function, "nn.Module: Heads_0", start * kUs, b.at_us * kUs);
  });
}

TEST(PieceFindings, HeadsSideBySideAreOneLayer) {
  const Finding f = finding_of(heads(16, 6, true), "sibling-modules");
  EXPECT_EQ(f.title.find("16 modules of Head run one after the other"), 0U) << f.title;
  EXPECT_HAS(f.action, "one larger Linear");
  // 5 us of each op of 6 us are its call.
  EXPECT_NEAR(*f.saving_us, 2 * 15 * 3 * 5, 1);
  EXPECT_EQ(find_finding(heads(3, 6, true), "sibling-modules"), nullptr) << "few";
  EXPECT_EQ(find_finding(heads(16, 6, false), "sibling-modules"), nullptr) << "layers";
  EXPECT_EQ(find_finding(heads(16, 60, true), "sibling-modules"), nullptr) << "large ops";
  EXPECT_EQ(find_finding(heads(16, 6, true, true), "sibling-modules"), nullptr) << "one module";
}

// --- Products of all gathered rows -------------------------------------------------------

Explanation scores(int64_t rows, const char* collective) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < 2; ++i) {
      b.add(collective, 10, {tensor({256, 64})});
      b.add("aten::cat", 5, {tensor_list({tensor({256, 64}), tensor({256, 64})}), number(0)});
    }
    b.add("aten::matmul", 300, {tensor({rows, 64}), tensor({64, 512})});
    b.add("aten::log_softmax", 100, {tensor({rows, 512}), number(1)});
    b.add("aten::linear", 200, {tensor({100, 64}), tensor({64, 64})});
  });
}

TEST(PieceFindings, ARankComputesItsOwnRowsOfTheScores) {
  const Finding f = finding_of(scores(512, "c10d::allgather_"), "gathered-product");
  EXPECT_HAS(f.title, "512 rows of 2 ranks");
  EXPECT_HAS(f.action, "the 256 rows of this rank");
  EXPECT_NEAR(*f.saving_us, 2 * 400 / 2, 1);
  EXPECT_EQ(find_finding(scores(256, "c10d::allgather_"), "gathered-product"), nullptr)
      << "its own";
  EXPECT_EQ(find_finding(scores(512, "aten::relu"), "gathered-product"), nullptr) << "one rank";
}

// --- Kernels under a mask ----------------------------------------------------------------

Explanation masked(std::vector<int64_t> mask, int64_t side) {
  return explain_rounds(2, [&](OpSequence& b, int64_t step) {
    b.add("aten::mul", 10, {tensor({40, 40, side, side}), tensor(std::move(mask))});
    b.add("aten::conv2d", 300,
          {tensor({6, 40, 28, 28}), tensor({40, 40, side, side}), tensor({40})}, 4 + step);
    b.node("ConvolutionBackward0", 200, 4 + step);
    b.end_step();
    mask = {side, side};
  });
}

TEST(PieceFindings, AMaskOfAKernelIsAQuestion) {
  const Finding f = finding_of(masked({7, 7}, 7), "masked-kernel");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_FALSE(f.saving_us);
  EXPECT_HAS(f.action, "F.pad");
  EXPECT_NEAR(*f.cost_us, 2 * 500, 1);
  EXPECT_EQ(find_finding(masked({1, 1}, 1), "masked-kernel"), nullptr) << "a scale";
}

// --- Several gradients of one output -----------------------------------------------------

// A graph of two nodes, through which `passes` with create_graph go, and the loss's.
Explanation derivatives(int passes, bool begins_elsewhere) {
  int64_t sequence = 1;
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t forward = sequence;
    sequence += 8;
    b.add("aten::linear", 50, {}, forward);
    b.add("aten::tanh", 50, {}, forward + 1);
    for (int pass = 0; pass <= passes; ++pass) {
      if (begins_elsewhere) b.node("SumBackward0", 1, forward + 2 + pass, "aten::expand");
      b.node("TanhBackward0", 100, forward + 1, "aten::tanh_backward");
      if (pass < passes) b.last_args().sequence_number = sequence++;
      b.node("AddmmBackward0", 100, forward, "aten::mm");
      if (pass < passes) b.last_args().sequence_number = sequence++;
    }
  });
}

TEST(PieceFindings, GradientsByEachInputAreOneCall) {
  const Finding f = finding_of(derivatives(4, false), "repeated-backward");
  EXPECT_HAS(f.action, "autograd.grad once with a list of all inputs");
  EXPECT_NEAR(*f.saving_us, 2 * 3 * 200, 8) << "three of five; the loss's own is needed";
  EXPECT_EQ(find_finding(derivatives(4, true), "repeated-backward"), nullptr) << "other outputs";
  EXPECT_EQ(find_finding(derivatives(1, false), "repeated-backward"), nullptr);
}

// A generator's node that two losses go through, with a step of an optimizer between them or none.
Explanation adversarial(bool steps_between) {
  return explain_steps(2, [&](OpSequence& b, int step) {
    b.add("aten::conv2d", 100, {}, 10 + step);
    b.node("ConvolutionBackward0", 200, 10 + step);
    if (steps_between)
      b.annotation("Optimizer.step#Adam.step", b.at_us * kUs, (b.at_us + 10) * kUs);
    b.add("aten::add_", 10);
    b.node("ConvolutionBackward0", 200, 10 + step);
  });
}

TEST(PieceFindings, ADiscriminatorsLossEndsAtADetachedInput) {
  Finding f = finding_of(adversarial(true), "repeated-backward");
  EXPECT_EQ(f.action.find("if the first loss is not to train"), 0U) << f.action;
  f = finding_of(adversarial(false), "repeated-backward");
  EXPECT_EQ(f.action.find("take all outputs in one pass"), 0U) << f.action;
  EXPECT_HAS(f.action, "detach() its input");
}

// --- What the actions say ----------------------------------------------------------------

TEST(PieceFindings, ComparisonsWithAllEdgesAreASearch) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    b.add("aten::ge", 300, {tensor({4096, 30, 1}), tensor({30, 63})});
    b.add("aten::sum", 100, {tensor({4096, 30, 63}, "bool"), scalar("[2]")});
    add_work(b, 100);
  });
  EXPECT_HAS(finding_of(e, "all-pairs").action, "torch.bucketize");
}

TEST(PieceFindings, AMaskForEachIdIsOneSort) {
  const auto picks = [](int count) {
    return explain_steps(2, [&](OpSequence& b) {
      for (int i = 0; i < count; ++i) b.add_around("aten::index", "aten::nonzero", 100);
      b.add("aten::relu", 500);
    });
  };
  Finding f = finding_of(picks(10), "boolean-mask");
  EXPECT_HAS(f.action, "CSR");
  f = finding_of(picks(2), "boolean-mask");
  EXPECT_LACKS(f.action, "CSR");
}

TEST(PieceFindings, ARecursionOverTimeIsAnOpOfTheLibrary) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < 60; ++i) {
      b.add("aten::cat", 3, {tensor_list({tensor({8, 1}), tensor({8, 40})}), number(1)});
      b.add("aten::eq", 2, {tensor({8, 41}), tensor({8, 41})});
      b.add("aten::where", 2, {tensor({8, 41}, "bool"), tensor({8, 41}), tensor({8, 41})});
      b.add("aten::logsumexp", 4, {tensor({3, 8, 41}), scalar("[0]")});
    }
  });
  EXPECT_HAS(finding_of(e, "call-loop").action, "F.ctc_loss");
}

TEST(PieceFindings, AFixedMatrixOnTheRightMayBeASum) {
  const auto levels = [](const char* around, bool trains) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add_around(around, "aten::mm", 200, {tensor({384, 1024}), tensor({1024, 1024})}, 10);
      b.add_around("autograd::engine::evaluate_function: MmBackward0", "aten::mm", 200,
                   {tensor({384, 1024}), tensor({1024, 1024})}, 10);
      if (trains)
        b.add_around("autograd::engine::evaluate_function: MmBackward0", "aten::mm", 200,
                     {tensor({1024, 384}), tensor({384, 1024})}, 10);
      b.add("aten::relu", 100, {tensor({384, 1024})});
    });
  };
  const Finding f = finding_of(levels("aten::matmul", false), "constant-matrix");
  EXPECT_HAS(f.action, "torch.cumsum");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_EQ(find_finding(levels("aten::matmul", true), "constant-matrix"), nullptr) << "a weight";
  EXPECT_EQ(find_finding(levels("aten::linear", false), "constant-matrix"), nullptr) << "frozen";
}

}  // namespace epilogue::trace::piece_findings_test
