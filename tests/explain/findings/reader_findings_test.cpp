// SPDX-License-Identifier: Apache-2.0
// What reads a result decides which form of it is cheapest.
#include <gtest/gtest.h>

#include <array>

#include "explain/findings/op_sequence.h"

namespace epilogue::trace::reader_findings_test {
namespace {

using namespace epilogue::trace::testing;

void add_other_work(OpSequence& b, int64_t us) {
  b.add("aten::softmax", us, {tensor({512, 512}), number(-1), scalar("")});
}

Explanation eigenvalues(std::string_view first, std::string_view second) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::linalg_eigvalsh", 900, {tensor({8, 96, 96}), scalar("L")});
    b.add(first, 50, {tensor({8, 96})});
    if (!second.empty()) b.add(second, 50, {tensor({8, 96})});
    add_other_work(b, 500);
  });
}

TEST(ReaderFindings, EigenvaluesOfADeterminantNeedAFactorisation) {
  const Explanation e = eigenvalues("aten::log", "aten::sum");
  const Finding* f = find_finding(e, "shorter-form");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::linalg_eigvalsh of [8, 96, 96] is taken for its values"), 0U)
      << f->title;
  EXPECT_NE(f->action.find("slogdet"), std::string::npos) << f->action;
  EXPECT_NEAR(*f->cost_us, 2000, 1);
  const Explanation trace = eigenvalues("aten::sum", "");
  ASSERT_NE(find_finding(trace, "shorter-form"), nullptr);
  EXPECT_NE(find_finding(trace, "shorter-form")->action.find("A.diagonal"), std::string::npos);
  EXPECT_EQ(find_finding(eigenvalues("aten::sqrt", "aten::mul"), "shorter-form"), nullptr)
      << "all of them are read";
}

Explanation resized(const char* size) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::upsample_bilinear2d", 600,
          {tensor({4, 3, 160, 160}), scalar(""), scalar("False"), scalar("[4., 4.]")});
    b.add("aten::_upsample_bilinear2d_aa", 500,
          {tensor({4, 3, 640, 640}), scalar(size), scalar("False"), scalar("")});
    add_other_work(b, 400);
  });
}

TEST(ReaderFindings, ImagesThatAreMadeLargerAndSmallerAreResizedOnce) {
  const Explanation e = resized("[128, 128]");
  const Finding* f = find_finding(e, "resized-twice");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("[4, 3, 640, 640] of [4, 3, 160, 160]"), std::string::npos) << f->title;
  EXPECT_NE(f->action.find("resize once"), std::string::npos) << f->action;
  EXPECT_NEAR(*f->saving_us, 2200 * 15.0 / 16, 1);
  EXPECT_EQ(find_finding(resized("[600, 600]"), "resized-twice"), nullptr) << "it stays large";
}

Explanation frames(int64_t step) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::stft", 900, {tensor({4, 48000}), number(512), number(16), number(512)});
    b.add("aten::abs", 300, {tensor({4, 257, 3001}, "c10::complex<float>")});
    b.add("aten::slice", 2,
          {tensor({4, 257, 3001}), number(2), scalar(""), scalar(""), number(step)});
    add_other_work(b, 400);
  });
}

TEST(ReaderFindings, FramesThatASliceLeavesOutAreALargerHop) {
  const Explanation e = frames(16);
  const Finding* f = find_finding(e, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::stft computes 16 times the frames"), 0U) << f->title;
  EXPECT_NE(f->action.find("hop_length=256"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(frames(1), "cut-result"), nullptr);
}

Explanation crossed(int64_t columns) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::mul", 600, {tensor({512, columns, 1}), tensor({512, 1, columns})}, 1);
    b.add("aten::flatten", 2, {tensor({512, columns, columns}), number(1), number(-1)}, 1);
    b.add("aten::linear", 500, {tensor({512, columns * columns}), tensor({64, columns * columns})},
          2);
    add_other_work(b, 400);
  });
}

TEST(ReaderFindings, ALayerOnAllProductsReadsTwoVectors) {
  const Explanation e = crossed(96);
  const Finding* f = find_finding(e, "outer-layer");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::mul writes all 96 x 96 products"), 0U) << f->title;
  EXPECT_NE(f->action.find("a layer of 4656 columns"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(crossed(8), "outer-layer"), nullptr) << "few columns";
}

Explanation penalty(int64_t read) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::embedding", 100, {tensor({80000, 32}), tensor({read, 10}, "long int")}, 1);
    b.add("aten::square", 300, {tensor({80000, 32})}, 2);
    b.add("aten::sum", 200, {tensor({80000, 32})}, 3);
    b.node("SumBackward0", 100, 3, "aten::expand");
    b.node("PowBackward0", 400, 2, "aten::mul");
    add_other_work(b, 400);
  });
}

TEST(ReaderFindings, PenaltiesOfATableGoOverTheRowsThatAreRead) {
  const Explanation e = penalty(256);
  const Finding* f = find_finding(e, "table-penalty");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("all 80000 rows of a table, of which the batch reads 2560"),
            std::string::npos)
      << f->title;
  EXPECT_NEAR(*f->cost_us, 2000, 2);
  EXPECT_EQ(find_finding(penalty(4000), "table-penalty"), nullptr) << "half of the rows are read";
}

Explanation triples(int64_t others) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::sub", 600, {tensor({160, 160, 1}), tensor({160, 1, others}), number(1)}, 1);
    b.add("aten::clamp_min", 500, {tensor({160, 160, others}), number(0)}, 2);
    add_other_work(b, 400);
  });
}

TEST(ReaderFindings, FewOfAllTriplesCount) {
  const Explanation e = triples(160);
  const Finding* f = find_finding(e, "all-triples");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("all triples of 160 rows are written out"), 0U) << f->title;
  EXPECT_NE(f->action.find("batch-hard"), std::string::npos) << f->action;
  EXPECT_NEAR(*f->cost_us, 2200, 1);
  EXPECT_EQ(find_finding(triples(40), "all-triples"), nullptr) << "other rows";
}

// --- Windows and loops ---

TEST(ReaderFindings, WindowsAreAdvisedByWhatReducesThem) {
  const auto windows = [](std::string_view op) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::unfold", 2, {tensor({16, 4030}), number(-1), number(31), number(1)});
      b.add(op, 800, {tensor({16, 4000, 31}), number(-1)});
      add_other_work(b, 400);
    });
  };
  const Explanation median = windows("aten::median");
  ASSERT_NE(find_finding(median, "overlapping-windows"), nullptr);
  EXPECT_NE(find_finding(median, "overlapping-windows")->action.find("medfilt"), std::string::npos);
  const Explanation largest = windows("aten::amax");
  ASSERT_NE(find_finding(largest, "overlapping-windows"), nullptr);
  EXPECT_EQ(find_finding(largest, "overlapping-windows")->action.find("max_pool1d"), 0U);
}

TEST(ReaderFindings, ARecurrentLayerTakesTheWholeSequence) {
  const auto loop = [](int64_t length) {
    return explain_steps(2, [&](OpSequence& b) {
      for (int i = 0; i < 60; ++i) {
        b.add("aten::slice", 2, {tensor({16, 60, 32}), number(1), number(i), number(i + 1)});
        const OpInput none = scalar("");
        b.add("aten::lstm", 6,
              {tensor({16, length, 32}), none, none, none, none, none, none, none, scalar("True")});
      }
      add_other_work(b, 100);
    });
  };
  const Explanation by_step = loop(1);
  const Finding* f = find_finding(by_step, "call-loop");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("the whole sequence in one call"), std::string::npos) << f->action;
  const Explanation whole = loop(20);
  if (const Finding* other = find_finding(whole, "call-loop")) {
    EXPECT_EQ(other->action.find("whole sequence"), std::string::npos) << other->action;
  }
}

// --- The order ---

// Calls that no change removes whole stand behind a cause of less time.
TEST(ReaderFindings, ACauseStandsBeforeTheCostOfCalls) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    constexpr std::array<const char*, 7> kOps = {"aten::neg",  "aten::abs",   "aten::relu",
                                                 "aten::ceil", "aten::floor", "aten::sign",
                                                 "aten::round"};
    for (int64_t i = 0; i < 60; ++i)
      b.add(kOps[static_cast<size_t>((i * i * i + i / 5) % 7)], 2, {tensor({4, i + 1})});
    b.add("aten::linalg_eigvalsh", 70, {tensor({2, 16, 16}), scalar("L")});
    b.add("aten::log", 5, {tensor({2, 16})});
    b.add("aten::sum", 5, {tensor({2, 16})});
  });
  size_t cause = e.findings.size();
  size_t calls = 0;
  for (size_t i = 0; i < e.findings.size(); ++i) {
    if (e.findings[i].id == "shorter-form") cause = i;
    if (e.findings[i].id == "dispatch") calls = i;
  }
  ASSERT_GT(calls, 0U) << "calls are a finding";
  EXPECT_GT(*e.findings[calls].saving_us, *e.findings[cause].saving_us);
  EXPECT_LT(cause, calls);
}

// --- Backward passes ---

TEST(ReaderFindings, AMatrixOfGradientsTimesAVectorIsAnotherPass) {
  const auto passes = [](const std::vector<int64_t>& matrix) {
    return explain_steps(2, [&](OpSequence& b) {
      for (int64_t i = 0; i < 12; ++i) {
        b.node("ExpBackward0", 30, 2, "aten::mul");
        b.node("MvBackward0", 60, 1, "aten::mv");
      }
      b.add("aten::matmul", 5, {tensor(matrix), tensor({12})});
      add_other_work(b, 100);
    });
  };
  const Explanation product = passes({12, 12});
  const Finding* f = find_finding(product, "repeated-backward");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("hvp"), std::string::npos) << f->action;
  const Explanation other = passes({40, 12});
  ASSERT_NE(find_finding(other, "repeated-backward"), nullptr);
  EXPECT_EQ(find_finding(other, "repeated-backward")->action.find("hvp"), std::string::npos);
}

// One step of a GAN: `is_frozen`: the generator's pass gives no gradients of the other's weights.
Explanation adversarial(bool is_frozen, bool is_added_up = false) {
  return explain_steps(3, [&](OpSequence& b) {
    const auto step_of = [&](std::vector<int64_t> weight) {
      const int64_t from = b.at_us;
      b.add("aten::addcdiv_", 20, {tensor(std::move(weight))});
      b.annotation("Optimizer.step#Adam.step", from * kUs, b.at_us * kUs);
    };
    const auto gradient = [&](int64_t sequence, std::vector<int64_t> weight, bool is_added) {
      b.op("autograd::engine::evaluate_function: AddmmBackward0", b.at_us * kUs,
           (b.at_us + 200) * kUs);
      b.last_args().sequence_number = sequence;
      b.op("aten::mm", b.at_us * kUs, (b.at_us + 199) * kUs);
      b.inputs({tensor({weight[0], 256}), tensor({256, weight[1]})});
      b.at_us += 200;
      b.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", b.at_us * kUs,
           (b.at_us + 10) * kUs);
      b.op(is_added ? "aten::add_" : "aten::detach", b.at_us * kUs, (b.at_us + 9) * kUs);
      b.inputs({tensor(std::move(weight))});
      b.at_us += 10;
    };
    b.add("aten::linear", 100, {tensor({256, 300}), tensor({512, 300})}, 1);
    b.add("aten::linear", 100, {tensor({256, 512}), tensor({400, 512})}, 2);
    gradient(2, {400, 512}, is_added_up);
    gradient(1, {512, 300}, is_added_up);
    step_of({400, 512});
    step_of({512, 300});
    b.add("aten::linear", 100, {tensor({256, 32}), tensor({300, 32})}, 3);
    b.add("aten::linear", 100, {tensor({256, 300}), tensor({512, 300})}, 4);
    b.add("aten::linear", 100, {tensor({256, 512}), tensor({400, 512})}, 5);
    if (!is_frozen) gradient(5, {400, 512}, true);
    if (!is_frozen) gradient(4, {512, 300}, true);
    gradient(3, {300, 32}, false);
    step_of({300, 32});
  });
}

TEST(ReaderFindings, WeightsThatAnotherOptimizerTrainsNeedNoGradient) {
  const Explanation e = adversarial(false);
  const Finding* f = find_finding(e, "unread-gradient");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("a backward pass computes gradients of weights that another optimizer"),
            0U)
      << f->title;
  EXPECT_NEAR(*f->saving_us, 3 * 2 * 210, 12);
  EXPECT_NE(f->action.find("requires_grad_(False)"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(adversarial(true), "unread-gradient"), nullptr);
  EXPECT_EQ(find_finding(adversarial(false, true), "unread-gradient"), nullptr)
      << "gradients of both passes are added up";
}

}  // namespace
}  // namespace epilogue::trace::reader_findings_test
