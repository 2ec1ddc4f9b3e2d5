// SPDX-License-Identifier: Apache-2.0
// Chains of ops whose result a shorter one gives, products of the same input, gradients of weights
// that nobody reads.
#include <gtest/gtest.h>

#include "explain/findings/op_sequence.h"

namespace epilogue::trace::known_form_findings_test {
namespace {

using namespace epilogue::trace::testing;

void add_other_work(OpSequence& b, int64_t us) {
  b.add("aten::softmax", us, {tensor({512, 512}), number(-1), scalar("")});
}

// --- Sums by index -----------------------------------------------------------------------

Explanation counted(int64_t columns, std::string_view maker) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add(maker, 400, {tensor({32000, columns})});
    b.add("aten::new_zeros", 20, {tensor({32000, columns}), scalar("[2000, 96]")});
    b.add("aten::index_add", 200,
          {tensor({2000, columns}), number(0), tensor({32000}, "long int"),
           tensor({32000, columns}), number(1)});
    add_other_work(b, 400);
  });
}

TEST(KnownForms, OnesAsWideAsMessagesAreCounts) {
  const Explanation e = counted(96, "aten::ones_like");
  const Finding* f = find_finding(e, "wide-count");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::index_add adds up ones of [32000, 96]"), 0U) << f->title;
  EXPECT_NEAR(*f->cost_us, 1200, 1);
  EXPECT_NE(f->action.find("bincount"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(counted(1, "aten::ones_like"), "wide-count"), nullptr) << "one column";
  EXPECT_EQ(find_finding(counted(96, "aten::relu"), "wide-count"), nullptr) << "messages";
}

Explanation graph(int64_t nodes) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::index_select", 200,
          {tensor({nodes, 32}), number(0), tensor({160000}, "long int")});
    b.add("aten::index_add", 400,
          {tensor({nodes, 32}), number(0), tensor({160000}, "long int"), tensor({160000, 32}),
           number(1)});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, MoreEdgesThanPairsAreThereAgain) {
  const Explanation e = graph(200);
  const Finding* f = find_finding(e, "parallel-edges");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("there are 40000 pairs at most"), std::string::npos) << f->title;
  EXPECT_NEAR(*f->saving_us, 900, 1);
  EXPECT_EQ(find_finding(graph(400), "parallel-edges"), nullptr) << "160,000 pairs";
}

// --- Phases ------------------------------------------------------------------------------

Explanation enhanced(std::string_view between, bool by_number = false) {
  return explain_steps(2, [&](OpSequence& b) {
    const OpInput spectrum = tensor({6, 257, 251}, "c10::complex<float>");
    b.add("aten::angle", 300, {spectrum});
    if (!between.empty())
      b.add(between, 20,
            {tensor({6, 257, 251}), by_number ? number(2) : tensor({6, 257, 251}), number(1)});
    b.add("aten::exp", 700, {spectrum});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, PhasesThatComeBackNeedNoAngle) {
  const Explanation e = enhanced("");
  const Finding* f = find_finding(e, "phase-apart");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::angle takes the phase of [6, 257, 251]"), 0U) << f->title;
  EXPECT_NE(f->action.find("spectra * mask"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(enhanced("aten::add"), "phase-apart"), nullptr) << "a new phase";
  EXPECT_EQ(find_finding(enhanced("aten::cumsum"), "phase-apart"), nullptr) << "a vocoder";
  EXPECT_NE(find_finding(enhanced("aten::mul"), "phase-apart"), nullptr) << "a mask of magnitudes";
  EXPECT_EQ(find_finding(enhanced("aten::mul", true), "phase-apart"), nullptr) << "slower phases";
}

// --- Pairs of fields -----------------------------------------------------------------------

Explanation fields(int64_t picked, std::string_view reader) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::matmul", 300, {tensor({1536, 36, 16}), tensor({1536, 16, 36})});
    b.add("aten::index", 400, {tensor({1536, 36, 36})});
    b.add(reader, 50, {tensor({1536, picked}), scalar("[1]")});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, SumsOfAllPairsNeedNoPairs) {
  const Explanation e = fields(630, "aten::sum");
  const Finding* f = find_finding(e, "gram-pairs");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("minus the sum of their squares"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(fields(100, "aten::sum"), "gram-pairs"), nullptr) << "some pairs";
  EXPECT_EQ(find_finding(fields(630, "aten::linear"), "gram-pairs"), nullptr) << "each is read";
}

// --- Windows of windows --------------------------------------------------------------------

Explanation pyramid(const std::vector<int64_t>& windows, int64_t stride) {
  return explain_steps(2, [&](OpSequence& b) {
    for (const int64_t window : windows) {
      const std::string size = "[" + std::to_string(window) + ", " + std::to_string(window) + "]";
      b.add("aten::avg_pool2d", 200,
            {tensor({6, 3, 256, 256}), scalar(size),
             scalar(stride > 0 ? "[" + std::to_string(stride) + "]" : "[]"), scalar("[0, 0]")});
    }
    add_other_work(b, 300);
  });
}

TEST(KnownForms, ScalesArePooledFromTheScaleBefore) {
  const Explanation e = pyramid({2, 4, 8, 16}, 0);
  const Finding* f = find_finding(e, "pooled-again");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("for each window from 2 to 16"), std::string::npos) << f->title;
  EXPECT_NEAR(*f->cost_us, 1200, 1);
  EXPECT_EQ(find_finding(pyramid({2, 3, 8}, 0), "pooled-again"), nullptr) << "no multiples";
  EXPECT_EQ(find_finding(pyramid({2, 4}, 0), "pooled-again"), nullptr) << "two scales";
  EXPECT_EQ(find_finding(pyramid({2, 4, 8, 16}, 1), "pooled-again"), nullptr) << "they overlap";
}

// --- What is received ------------------------------------------------------------------------

Explanation received(std::string_view over) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("c10d::alltoall_base_", 700,
          {tensor({2, 1000, 40, 64}), tensor({2, 1000, 40, 64}), scalar("")});
    b.add("aten::mean", 200, {tensor({2, 1000, 40, 64}), scalar(std::string(over))});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, RowsAreReducedBeforeTheyAreSent) {
  const Explanation e = received("[2]");
  const Finding* f = find_finding(e, "late-reduction");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("makes one row of 40 each"), std::string::npos) << f->title;
  EXPECT_NE(f->action.find("before the exchange"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(received("[0]"), "late-reduction"), nullptr) << "over the ranks";
}

// --- The longer side ---------------------------------------------------------------------------

Explanation iterated(int64_t rows, int64_t columns, std::string_view between) {
  return explain_steps(2, [&](OpSequence& b) {
    const OpInput square = tensor({rows, rows});
    b.add("aten::matmul", 100, {tensor({rows, columns}), tensor({columns, rows})});
    b.add(between, 50, {square, scalar("2.0315", "double")});
    b.add("aten::matmul", 300, {square, square});
    b.add("aten::add", 50, {square, square, number(1)});
    b.add("aten::matmul", 100, {square, tensor({rows, columns})});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, TallMatricesAreMultipliedOnTheShorterSide) {
  const Explanation e = iterated(512, 128, "aten::mul");
  const Finding* f = find_finding(e, "longer-side");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("128 x 128"), std::string::npos) << f->action;
  EXPECT_NEAR(*f->saving_us, 900, 1);
  EXPECT_EQ(find_finding(iterated(128, 512, "aten::mul"), "longer-side"), nullptr) << "wide";
  EXPECT_EQ(find_finding(iterated(512, 128, "aten::softmax"), "longer-side"), nullptr)
      << "attention";
}

// --- From two sides ------------------------------------------------------------------------------

Explanation centred(bool is_trained) {
  return explain_steps(2, [&](OpSequence& b, int64_t i) {
    const std::vector<OpInput> square = {tensor({896, 896}), tensor({896, 896})};
    for (int64_t k = 0; k < 2; ++k)
      b.add_around("aten::matmul", "aten::mm", 200, square, 4 * i + k);
    add_other_work(b, 200);
    for (int64_t k = 2; k-- > 0;) {
      b.add_around("autograd::engine::evaluate_function: MmBackward0", "aten::mm", 200, square,
                   4 * i + k);
      if (is_trained)
        b.add_around("autograd::engine::evaluate_function: MmBackward0", "aten::mm", 200, square,
                     4 * i + k);
    }
  });
}

TEST(KnownForms, MatricesFromTwoSidesAreAQuestion) {
  const Explanation e = centred(false);
  const Finding* f = find_finding(e, "two-sided-product");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->confidence, Confidence::low);
  EXPECT_NE(f->action.find("subtract the means"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(centred(true), "two-sided-product"), nullptr) << "weights";
}

// --- Rows that are weighed ---------------------------------------------------------------------

Explanation weighed(int64_t width, const std::vector<int64_t>& weights = {96, 8000, 1}) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::mul", 500, {tensor(weights), tensor({8000, 32})});
    b.add("aten::transpose", 1, {tensor({96, 8000, 32}), number(1), number(2)});
    b.add("aten::matmul", 500, {tensor({96, 32, 8000}), tensor({8000, width})});
    add_other_work(b, 300);
  });
}

TEST(KnownForms, RowsThatAreWeighedForEachAreAQuestion) {
  const Explanation e = weighed(32);
  const Finding* f = find_finding(e, "weighted-rows");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("aten::mul weighs all rows of [8000, 32] for each of 96"), 0U)
      << f->title;
  EXPECT_EQ(f->confidence, Confidence::low);
  EXPECT_EQ(find_finding(weighed(32, {8000, 32}), "weighted-rows"), nullptr) << "one for all";
}

// --- Gradients of weights that nobody reads
// --------------------------------------------------------

Explanation forces(bool is_read, bool has_optimizer = false) {
  constexpr const char* kLeaf =
      "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad";
  return explain_steps(2, [&](OpSequence& b, int64_t i) {
    for (int64_t k = 0; k < 2; ++k)
      b.add("aten::linear", 100, {tensor({2450, 224}), tensor({224 + k, 224}), tensor({224})},
            4 * i + k);
    for (int64_t k = 2; k-- > 0;) {
      b.add_around("autograd::engine::evaluate_function: AddmmBackward0", "aten::mm", 100,
                   {tensor({224 + k, 2450}), tensor({2450, 224})}, 4 * i + k);
      b.add_around(kLeaf, "aten::add_", 20,
                   {tensor({224 + k, 224}), tensor({224 + k, 224}), number(1)});
    }
    b.add_around(kLeaf, "aten::add_", 5, {tensor({50, 3}), tensor({50, 3}), number(1)});
    if (is_read) b.add("aten::neg", 5, {tensor({50, 3})});
    if (has_optimizer) b.add("aten::_fused_adamw_", 20);
    add_other_work(b, 200);
  });
}

TEST(KnownForms, GradientsOfWeightsThatNobodyReads) {
  const Explanation e = forces(true);
  const Finding* f = find_finding(e, "unread-gradient");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("no optimizer runs"), std::string::npos) << f->title;
  EXPECT_NE(f->action.find("torch.autograd.grad"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(forces(false), "unread-gradient"), nullptr) << "a profile of two passes";
  EXPECT_EQ(find_finding(forces(true, true), "unread-gradient"), nullptr) << "sizes not recorded";
}

TEST(KnownForms, PartsOfAllRanksThatAreAddedUpAreReducedOnTheWay) {
  const auto gathered = [](std::string_view reader, int64_t dim) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("c10d::allgather_", 800, {tensor({512, 64})});
      b.add("aten::stack", 100, {tensor({512, 64})});
      b.add(reader, 100, {tensor({2, 512, 64}), scalar("[" + std::to_string(dim) + "]")});
      add_other_work(b, 400);
    });
  };
  const Explanation e = gathered("aten::mean", 0);
  const Finding* f = find_finding(e, "late-reduction");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->action.find("all_reduce adds them up"), 0U) << f->action;
  EXPECT_NEAR(*f->cost_us, 2000, 1);
  EXPECT_EQ(find_finding(gathered("aten::mean", 1), "late-reduction"), nullptr) << "each rank's";
  EXPECT_EQ(find_finding(gathered("aten::softmax", 0), "late-reduction"), nullptr);
}

}  // namespace
}  // namespace epilogue::trace::known_form_findings_test
