// SPDX-License-Identifier: Apache-2.0
// Findings about transforms that need not run, ops that keep an order, networks on windows, and
// loops behind the backward pass: each with a trace that has it, and with one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::order_findings_test {

using namespace testing;

// What a good run spends its time on.
void add_work(OpSequence& b, int64_t us) {
  b.add("aten::mm", us, {tensor({256, 256}), tensor({256, 256})});
}

OpInput spectrum(std::vector<int64_t> dims) {
  return tensor(std::move(dims), "c10::complex<float>");
}

// --- Transforms --------------------------------------------------------------------------

// A spectrogram that is masked, and transformed back for a model that transforms it again.
Explanation augmented(const char* between, int64_t length) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::istft", 300, {spectrum({4, 201, 81}), number(400), number(200)});
    b.add(between, 10, {tensor({4, 16000}), scalar("[4, 16000]")});
    b.add("aten::stft", 300, {tensor({4, length}), number(400), number(200)});
    add_work(b, 500);
  });
}

TEST(OrderFindings, ATransformOfWhatWasTransformedBackIsARoundTrip) {
  const Finding f = finding_of(augmented("aten::view", 16000), "round-trip");
  EXPECT_EQ(f.title.find("aten::stft next undoes what aten::istft does"), 0U) << f.title;
  EXPECT_EQ(find_finding(augmented("aten::clamp", 16000), "round-trip"), nullptr)
      << "the signal is changed";
  EXPECT_EQ(find_finding(augmented("aten::view", 12000), "round-trip"), nullptr)
      << "another signal";
}

// A signal of which the first samples are kept, and a transform of a tensor with these strides.
Explanation kept(std::vector<int64_t> strides) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::fft_irfft", 300, {spectrum({4, 8001}), number(16000), number(-1)});
    b.op("aten::slice", b.at_us * kUs, (b.at_us + 2) * kUs);
    b.inputs({tensor({4, 16000}), number(1), number(0), number(12000)});
    b.op("aten::as_strided", b.at_us * kUs, (b.at_us + 1) * kUs);
    b.inputs({tensor({4, 16000}), scalar("[4, 12000]"), scalar("[16000, 1]")});
    b.at_us += 2;
    OpInput read = tensor({4, 12000});
    read.strides = strides;
    b.add("aten::fft_rfft", 300, {read, number(16000), number(-1)});
    add_work(b, 500);
  });
}

TEST(OrderFindings, StridesTellWhetherATransformReadsTheResult) {
  EXPECT_NE(find_finding(kept({16000, 1}), "round-trip"), nullptr);
  EXPECT_EQ(find_finding(kept({12000, 1}), "round-trip"), nullptr) << "another tensor";
}

// Filters that meet a sound of [4, 16000] one by one.
Explanation filtered(int filters, bool same_sound, int64_t length) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < filters; ++i) {
      if (!same_sound) b.add("aten::mul", 5, {tensor({4, 16000}), number(2)});
      b.add("aten::fft_rfft", 100, {tensor({4, 16000}), number(length), number(-1)});
      b.add("aten::mul", 30, {spectrum({4, length / 2 + 1}), spectrum({length / 2 + 1})});
      b.add("aten::fft_irfft", 100, {spectrum({4, length / 2 + 1}), number(length), number(-1)});
    }
  });
}

TEST(OrderFindings, ALoopThatBeginsWithATransformAndEndsWithOneBackIsNoRoundTrip) {
  EXPECT_EQ(find_finding(filtered(8, true, 16000), "round-trip"), nullptr)
      << "each may read the sound";
  EXPECT_EQ(find_finding(filtered(8, true, 18000), "round-trip"), nullptr);
}

TEST(OrderFindings, ATransformOfOneSoundForEachFilterIsAQuestion) {
  const Finding f = finding_of(filtered(8, true, 18000), "repeated-transform");
  EXPECT_EQ(f.title.find("aten::fft_rfft of [4, 16000] runs 8 times in a step"), 0U) << f.title;
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_HAS(f.action, "once before the loop");
  EXPECT_NEAR(*f.cost_us, 1600, 1);
  EXPECT_EQ(find_finding(filtered(8, true, 16000), "repeated-transform"), nullptr)
      << "a result has its sizes";
  EXPECT_EQ(find_finding(filtered(8, false, 18000), "repeated-transform"), nullptr)
      << "other sounds";
  EXPECT_EQ(find_finding(filtered(2, true, 18000), "repeated-transform"), nullptr) << "few";
}

// --- What the action follows -----------------------------------------------------------

// Work before the layers of training, which no gradient reaches.
std::string action_of_untrained(const char* op) {
  OpSequence b;
  int64_t number_of = 20;
  for (int step = 0; step < 3; ++step) {
    b.add(op, 200, {tensor({64, 64})}, number_of);
    b.add("aten::linear", 100, {tensor({64, 64}), tensor({64, 64})}, number_of);
    b.add("aten::mse_loss", 5, {tensor({64, 64})}, number_of + 1);
    b.node("MseLossBackward0", 5, number_of + 1, "aten::mse_loss_backward");
    b.node("AddmmBackward0", 200, number_of, "aten::mm");
    number_of += 2;
    b.end_step();
  }
  const Explanation e = explain(b);
  const Finding* f = find_finding(e, "untrained-forward");
  return f == nullptr ? "" : f->action;
}

TEST(OrderFindings, UntrainedWorkSaysWhatItsLongestOpIsFor) {
  const auto says = [](const char* op, const char* part) {
    return action_of_untrained(op).find(part) != std::string::npos;
  };
  EXPECT_TRUE(says("aten::normal_", "one draw with the summed variance"));
  EXPECT_TRUE(says("aten::linalg_eigh", "pre_transform"));
  EXPECT_TRUE(says("aten::grid_sampler_2d", "warps in series are one"));
  EXPECT_FALSE(says("aten::mul", "what takes most could be less")) << "it says nothing";
}

TEST(OrderFindings, CallsOfAnOptimizerSpeakOfItsGroups) {
  const auto action = [](const char* range) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
      const int64_t start = b.at_us;
      for (int i = 0; i < 200; ++i) b.add("aten::addcdiv_", 4, {tensor({16}), tensor({16})});
      b.annotation(range, start * kUs, b.at_us * kUs);
      b.end_step();
    }
    const Explanation e = explain(b);
    const Finding* f = find_finding(e, "dispatch");
    return f == nullptr ? "" : f->action;
  };
  EXPECT_NE(action("Optimizer.step#Own.step").find("one group for each setting"),
            std::string::npos);
  EXPECT_EQ(action("score").find("one group for each setting"), std::string::npos);
}

// --- Softmaxes and pairs ---------------------------------------------------------------

// Terms of a loss, each with a softmax of the logits of [8, 48, 6000].
Explanation terms(int softmaxes, bool scaled, int heads) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < heads; ++i) b.add("aten::mm", 200, {tensor({384, 64}), tensor({64, 6000})});
    for (int i = 0; i < softmaxes; ++i) {
      if (scaled) b.add("aten::div", 50, {tensor({8, 48, 6000}), number(2)});
      b.add(i % 2 == 0 ? "aten::log_softmax" : "aten::softmax", 300,
            {tensor({8, 48, 6000}), number(-1), scalar("")});
      b.add("aten::sum", 50, {tensor({8, 48, 6000}), scalar("[-1]")});
    }
    b.end_step();
  }
  return explain(b);
}

TEST(OrderFindings, SoftmaxesOfOneTensorAreOne) {
  const Explanation e = terms(4, false, 1);
  const Finding* f = find_finding(e, "repeated-softmax");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("4 softmaxes of a step read one tensor of logits of 384 x 6000"), 0U)
      << f->title;
  EXPECT_NEAR(*f->cost_us, 2400, 1);
  EXPECT_NEAR(*f->saving_us, 1800, 1);
  EXPECT_NE(f->action.find("log_softmax once"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(terms(4, false, 4), "repeated-softmax"), nullptr)
      << "each head has its own logits";
  EXPECT_EQ(find_finding(terms(4, true, 1), "repeated-softmax"), nullptr)
      << "each is scaled before";
  EXPECT_EQ(find_finding(terms(1, false, 1), "repeated-softmax"), nullptr) << "one";
}

// The loss of pairs of images and texts: rows and columns of the same similarities.
TEST(OrderFindings, RowsAndColumnsAreNoSoftmaxTwice) {
  const auto contrastive = [](std::vector<int64_t> strides) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::mm", 200, {tensor({512, 64}), tensor({64, 512})});
      b.add("aten::cross_entropy_loss", 300, {tensor({512, 512}), tensor({512}, "long int")});
      OpInput columns = tensor({512, 512});
      columns.strides = strides;
      b.add("aten::cross_entropy_loss", 300, {columns, tensor({512}, "long int")});
      b.end_step();
    }
    return explain(b);
  };
  EXPECT_EQ(find_finding(contrastive({1, 512}), "repeated-softmax"), nullptr);
  EXPECT_EQ(find_finding(contrastive({}), "repeated-softmax"), nullptr) << "not known";
}

// A function of all pairs of 40 atoms.
Explanation pairs(int64_t rows) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::index_select", 20, {tensor({40, 3}), number(0), tensor({rows}, "long int")});
    b.add("aten::mm", 300, {tensor({rows, 16}), tensor({16, 16})});
    b.add("aten::silu", 100, {tensor({rows, 16})});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(OrderFindings, PairsInBothOrdersAreAQuestion) {
  const Explanation e = pairs(1560);
  const Finding* f = find_finding(e, "ordered-pairs");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("ops on 1560 rows are of all pairs of 40 in both orders"), 0U)
      << f->title;
  EXPECT_EQ(f->confidence, Confidence::low);
  EXPECT_NE(f->action.find("gives the 780 pairs with i < j"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(pairs(780), "ordered-pairs"), nullptr) << "each pair once";
  EXPECT_EQ(find_finding(pairs(1600), "ordered-pairs"), nullptr) << "edges of a graph";
}

// Training whose backward pass ends at a tensor of `leaf`; `is_read`: its gradient is used.
Explanation differentiated(const std::vector<int64_t>& leaf, bool is_read) {
  OpSequence b;
  const std::string gradient =
      "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad";
  for (int step = 0; step < 2; ++step) {
    b.add("aten::stft", 300, {tensor({24, 24000})}, 10 * step);
    b.add("aten::mm", 100, {tensor({64, 128}), tensor({128, 32})}, 10 * step + 1);
    b.node("MmBackward0", 100, 10 * step + 1, "aten::mm");
    b.add_around(gradient, "aten::detach", 5, {tensor({128, 32})});
    b.node("StftBackward0", 900, 10 * step, "aten::_fft_c2r");
    b.add_around(gradient, "aten::detach", 5, {tensor(leaf)});
    if (is_read) b.add("aten::sign", 10, {tensor(leaf)});
    b.add("aten::add_", 50, {tensor({128, 32}), tensor({128, 32})});
    if (leaf.size() == 1) b.add("aten::add_", 5, {tensor(leaf), tensor(leaf)});
    b.end_step();
  }
  return explain(b);
}

TEST(OrderFindings, AGradientOfAnInputThatNobodyTrainsIsNotNeeded) {
  const Explanation e = differentiated({24, 24000}, false);
  const Finding* f = find_finding(e, "input-gradient");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("the backward pass goes on to a tensor of [24, 24000] that no optimizer "
                          "trains"),
            0U)
      << f->title;
  EXPECT_NEAR(*f->saving_us, 1810, 1);
  EXPECT_NE(f->action.find("requires_grad_(False)"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(differentiated({24, 24000}, true), "input-gradient"), nullptr)
      << "an attack reads it";
  EXPECT_EQ(find_finding(differentiated({16}, false), "input-gradient"), nullptr)
      << "a parameter of its own";
}

// --- Orders ----------------------------------------------------------------------------

Explanation ranked(const char* op, int64_t dim, const char* reader, const char* behind) {
  return explain_steps(2, [&](OpSequence& b) {
    add_work(b, 300);
    b.add("aten::div", 50, {tensor({64, 5000}), tensor({}, "double")});
    b.add(op, 150, {tensor({64, 5000}), number(dim)});
    b.add(reader, 200,
          {tensor({64, 5000}), number(20), number(-1), scalar("True"), scalar("True")});
    if (std::string_view(behind) == "aten::sum")
      b.add(behind, 10, {tensor({64, 20}), scalar("[1]")});
    else if (*behind != 0)
      b.add(behind, 10, {tensor({64, 5000})});
  });
}

TEST(OrderFindings, ASoftmaxKeepsTheOrderThatTopkReads) {
  Finding f = finding_of(ranked("aten::softmax", 1, "aten::topk", ""), "kept-order");
  EXPECT_EQ(f.title.find("aten::topk of [64, 5000] gives the same places without aten::div and "
                         "aten::softmax before it"),
            0U)
      << f.title;
  EXPECT_NEAR(*f.saving_us, 400, 1);
  EXPECT_HAS(f.action, "topk of the raw scores");
  EXPECT_EQ(find_finding(ranked("aten::softmax", 0, "aten::topk", ""), "kept-order"), nullptr)
      << "along another dimension";
  EXPECT_EQ(find_finding(ranked("aten::abs", 1, "aten::topk", ""), "kept-order"), nullptr);
  EXPECT_EQ(find_finding(ranked("aten::softmax", 1, "aten::multinomial", ""), "kept-order"),
            nullptr)
      << "chances are read";
  EXPECT_EQ(find_finding(ranked("aten::softmax", 1, "aten::topk", "aten::log"), "kept-order"),
            nullptr)
      << "they are read again";
  f = finding_of(ranked("aten::softmax", 1, "aten::topk", "aten::sum"), "kept-order");
  EXPECT_EQ(f.confidence, Confidence::low) << "values are read";
  EXPECT_FALSE(f.saving_us);
}

// --- Windows -----------------------------------------------------------------------------

Explanation scanned(int64_t step, bool trained) {
  const int64_t count = (160 - 32) / step + 1;
  return explain_steps(2, [&](OpSequence& b, int64_t i) {
    b.add("aten::unfold", 5, {tensor({1, 3, 160, 160}), number(2), number(32), number(step)});
    b.add("aten::unfold", 5, {tensor({1, 3, count, 160, 32}), number(3), number(32), number(step)});
    b.add("aten::reshape", 20, {tensor({1, count, count, 3, 32, 32})});
    b.add("aten::conv2d", 500, {tensor({count * count, 3, 32, 32}), tensor({16, 3, 3, 3})});
    b.add("aten::relu", 100, {tensor({count * count, 16, 30, 30})});
    b.add("aten::sigmoid", 200, {tensor({count, count})});
    if (trained) b.node("ReluBackward0", 10, i, "aten::threshold_backward");
  });
}

TEST(OrderFindings, ANetworkOnWindowsThatOverlapRunsOnTheWhole) {
  const Finding f = finding_of(scanned(8, false), "overlapping-windows");
  EXPECT_EQ(f.title.find("aten::conv2d runs on 289 windows that overlap"), 0U) << f.title;
  EXPECT_HAS(f.title, "12 times its elements");
  EXPECT_NEAR(*f.cost_us, 1200, 1);
  EXPECT_HAS(f.action, "whole image");
  EXPECT_EQ(find_finding(scanned(32, false), "overlapping-windows"), nullptr) << "disjoint";
  EXPECT_EQ(find_finding(scanned(8, true), "overlapping-windows"), nullptr) << "training";
}

// --- Passes with dropout -----------------------------------------------------------------

Explanation dropped(bool active, int64_t grows) {
  return explain_rounds(12, [&](OpSequence& b, int64_t pass) {
    b.event(Category::python_function, "nn.Module: Network_0", b.at_us * kUs,
            (b.at_us + 700) * kUs);
    b.event(Category::python_function, "nn.Module: Trunk_0", b.at_us * kUs, (b.at_us + 500) * kUs);
    b.add("aten::conv2d", 500, {tensor({8 + grows * pass, 3, 32, 32}), tensor({16, 3, 3, 3})});
    b.add_around("aten::dropout", active ? "aten::bernoulli_" : "aten::alias", 100,
                 {tensor({8, 16})});
    b.add("aten::linear", 100, {tensor({8, 16}), tensor({10, 16})});
  });
}

TEST(OrderFindings, WhatComesBeforeTheDropoutOfManyPassesMayRunOnce) {
  const Finding f = finding_of(dropped(true, 0), "repeated-module");
  EXPECT_EQ(f.title.find("Network_0 runs 12 times in all"), 0U) << f.title;
  EXPECT_HAS(f.title, "(Trunk_0)");
  EXPECT_NEAR(*f.cost_us, 6000, 1);
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_EQ(find_finding(dropped(false, 0), "repeated-module"), nullptr) << "model.eval()";
  EXPECT_EQ(find_finding(dropped(true, 1), "repeated-module"), nullptr) << "other inputs";
}

// --- Loops behind the backward pass ------------------------------------------------------

// A loop of the model's layers behind the optimizer, or before the backward pass.
Explanation validated(bool behind) {
  return explain_steps(3, [&](OpSequence& b, int step) {
    const auto loop = [&] {
      for (int i = 0; i < 16; ++i) {
        b.add("aten::linear", 200, {tensor({128, 784}), tensor({64, 784})});
        b.add("aten::relu", 50, {tensor({128, 64})});
      }
    };
    b.add("aten::linear", 200, {tensor({128, 784}), tensor({64, 784})}, 10 * step);
    if (!behind) loop();
    b.node("AddmmBackward0", 100, 10 * step, "aten::mm");
    b.add_around("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                 "aten::detach", 3);
    b.annotation("Optimizer.step#SGD.step", b.at_us * kUs, (b.at_us + 50) * kUs);
    b.add("aten::_foreach_add_", 50);
    if (behind) loop();
  });
}

TEST(OrderFindings, ALoopBehindTheBackwardPassIsTheValidation) {
  const Explanation e = validated(true);
  EXPECT_HAS(finding_of(e, "beside-training").action, "once an epoch");
  EXPECT_EQ(find_finding(e, "work-loop"), nullptr);
  EXPECT_NE(find_finding(validated(false), "work-loop"), nullptr);
}

}  // namespace epilogue::trace::order_findings_test
