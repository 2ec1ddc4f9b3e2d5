// SPDX-License-Identifier: Apache-2.0
// Results of which a part is read, and work that each round does again.
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::part_findings_test {
namespace {

using namespace epilogue::trace::testing;

void add_other_work(OpSequence& b, int64_t us) {
  b.add("aten::softmax", us, {tensor({512, 512}), number(-1), scalar("")});
}

// An encoder of two blocks, and a gather of `taken` of its 64 rows.
Explanation encoder(int64_t taken, bool has_mask, bool has_attention = true) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int block = 0; block < 2; ++block) {
      b.add("aten::linear", 200, {tensor({16, 64, 160}), tensor({480, 160}), tensor({480})});
      const OpInput heads = tensor({16, 4, 64, 40});
      if (has_attention)
        b.add("aten::scaled_dot_product_attention", 300,
              {heads, heads, heads, has_mask ? tensor({16, 1, 1, 64}) : scalar(""), scalar("0."),
               scalar("False")});
      b.add("aten::linear", 200, {tensor({16, 64, 160}), tensor({160, 160}), tensor({160})});
      b.add("aten::gelu", 100, {tensor({16, 64, 160})});
    }
    b.add(
        "aten::gather", 20,
        {tensor({16, 64, 160}), number(1), tensor({16, taken, 160}, "long int"), scalar("False")});
    b.add("aten::linear", 50, {tensor({16, taken, 160}), tensor({64, 160}), tensor({64})});
  });
}

TEST(PartFindings, RowsThatAGatherLeavesOutNeedNoLayers) {
  const Explanation e = encoder(20, true);
  const Finding* f = find_finding(e, "left-rows");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("layers compute [16, 64, 160], of which aten::gather reads 20 of 64"), 0U)
      << f->title;
  EXPECT_HAS(f->action, "gather these 20 rows before the first of the layers");
  EXPECT_FALSE(f->saving_us.has_value()) << "the mask may not hide them";
  EXPECT_NEAR(*f->cost_us, 3200, 1);
  EXPECT_EQ(find_finding(encoder(20, false), "left-rows"), nullptr) << "rows read each other";
  EXPECT_EQ(find_finding(encoder(60, true), "left-rows"), nullptr) << "most are read";
  const Explanation alone = encoder(20, false, false);
  ASSERT_NE(find_finding(alone, "left-rows"), nullptr);
  EXPECT_NEAR(*find_finding(alone, "left-rows")->saving_us, 2000 * 44.0 / 64, 1);
}

TEST(PartFindings, RowsThatAMixerReadsAreNeeded) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    for (int block = 0; block < 4; ++block) {
      b.add("aten::linear", 200, {tensor({16, 160, 64}), tensor({64, 64}), tensor({64})});
      b.add("aten::linear", 200, {tensor({16, 64, 160}), tensor({160, 160}), tensor({160})});
    }
    b.add("aten::gather", 20,
          {tensor({16, 64, 160}), number(1), tensor({16, 8, 160}, "long int"), scalar("False")});
  });
  EXPECT_EQ(find_finding(e, "left-rows"), nullptr) << "each second layer goes over the rows";
}

Explanation recurrent(const char* both, int64_t place) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::lstm", 900,
          {tensor({96, 32, 12}), tensor({2, 32, 128}), tensor({512, 12}), scalar("True"), number(1),
           scalar("0."), scalar("False"), scalar(both), scalar("False")});
    b.add("aten::select", 2, {tensor({96, 32, 256}), number(0), number(place)});
    add_other_work(b, 300);
  });
}

TEST(PartFindings, ADirectionThatIsReadAtOneStepNeedsOne) {
  const Explanation e = recurrent("True", -1);
  const Finding* f = find_finding(e, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "both directions over 96 steps, of which aten::select reads the last");
  EXPECT_HAS(f->action, "bidirectional=False");
  EXPECT_NEAR(*f->saving_us, 900, 1);
  EXPECT_EQ(find_finding(recurrent("False", -1), "cut-result"), nullptr);
  EXPECT_EQ(find_finding(recurrent("True", 40), "cut-result"), nullptr) << "both have gone far";
}

Explanation pairs(int64_t rows) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::embedding", 400, {tensor({rows, 32}), tensor({224, 224}, "long int")});
    b.add("aten::matmul", 300, {tensor({224, 8, 32}), tensor({224, 32, 224})});
    add_other_work(b, 300);
  });
}

TEST(PartFindings, ATableIsMultipliedBeforeItIsSpreadOverPairs) {
  const Explanation e = pairs(447);
  const Finding* f = find_finding(e, "spread-table");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "each of 224 x 224 pairs from 447 rows");
  EXPECT_HAS(f->action, "q @ table.T");
  EXPECT_NEAR(*f->cost_us, 1400, 1);
  EXPECT_EQ(find_finding(pairs(40000), "spread-table"), nullptr) << "a row for each";
}

Explanation pasted(int64_t side) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::stack", 200, {tensor({36, side, side}), tensor({36, side, side})});
    b.add("aten::grid_sampler", 500,
          {tensor({36, 1, 28, 28}), tensor({36, side, side, 2}), number(0), number(0),
           scalar("False")});
    b.add("aten::gt", 100, {tensor({36, side, side}), scalar("0.5")});
    add_other_work(b, 300);
  });
}

TEST(PartFindings, SmallImagesAreSampledWithinTheirBoxes) {
  const Explanation e = pasted(320);
  const Finding* f = find_finding(e, "wide-sample");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "36 images of 28 x 28 at 320 x 320 points");
  EXPECT_HAS(f->action, "the points of its box alone");
  EXPECT_NEAR(*f->cost_us, 1600, 1);
  EXPECT_EQ(find_finding(pasted(56), "wide-sample"), nullptr);
}

// A sweep that changes one column of `columns`, and computes the energy of all.
Explanation sweep(int64_t written) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int64_t i = 0; i < 20; ++i) {
      b.add("aten::clone", 10, {tensor({48, 448}), scalar("")});
      b.add("aten::select", 2, {tensor({48, 448}), number(1), number(i)});
      b.add("aten::mul_", 2, {tensor({48, written}), scalar("-1")});
      b.add("aten::matmul", 200, {tensor({48, 448}), tensor({448, 448})});
      b.add("aten::sum", 20, {tensor({48, 448}), scalar("[1]")});
    }
  });
}

TEST(PartFindings, TheChangeOfOneColumnNeedsNoWholeProduct) {
  const Explanation e = sweep(1);
  const Finding* f = find_finding(e, "changed-part");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "aten::matmul computes all of [48, 448] again after aten::mul_ changed");
  EXPECT_HAS(f->action, "compute the change alone");
  EXPECT_NEAR(*f->cost_us, 38 * 220, 1) << "all but the first of each step";
  EXPECT_EQ(find_finding(sweep(448), "changed-part"), nullptr) << "all of it is written";
}

// Distances to all points that were chosen so far.
Explanation farthest(int64_t by) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int64_t i = 1; i <= 16; ++i) {
      const int64_t n = by == 0 ? 8 : i * by;
      b.add("aten::sub", 100, {tensor({4, 1024, 1, 3}), tensor({4, 1, n, 3}), number(1)});
      b.add("aten::sum", 50, {tensor({4, 1024, n, 3}), scalar("[3]")});
      b.add("aten::amin", 20, {tensor({4, 1024, n}), scalar("[2]")});
    }
  });
}

TEST(PartFindings, AMinimumOfAGrowingSetIsKept) {
  const Explanation e = farthest(1);
  const Finding* f = find_finding(e, "grown-set");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "aten::amin reduces it: it grows by 1 to 16");
  EXPECT_HAS(f->action, "torch.minimum(best");
  EXPECT_EQ(find_finding(farthest(0), "grown-set"), nullptr) << "the sizes stay";
}

Explanation orders(int64_t count) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int64_t i = 0; i < count; ++i) {
      b.add("aten::index", 50, {tensor({8, 4, 8000})});
      b.add("aten::mul", 60, {tensor({8, 4, 8000}), tensor({8, 4, 8000})});
      b.add("aten::sum", 30, {tensor({8, 4, 8000}), scalar("[-1]")});
    }
  });
}

TEST(PartFindings, EachOrderOfFewPartsIsASumOfPairs) {
  const Explanation e = orders(24);
  const Finding* f = find_finding(e, "each-order");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "the 4 parts of [8, 4, 8000] into each of 24 orders");
  EXPECT_HAS(f->action, "4 x 4 pairs once");
  EXPECT_EQ(find_finding(orders(20), "each-order"), nullptr) << "20 are not all orders";
}

// --- Forms that a reader shows ---

TEST(PartFindings, BlocksOnADiagonalAreABatch) {
  const auto solve = [](int64_t size) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::unbind", 5, {tensor({50, 12, 12}), number(0)});
      b.add("aten::block_diag", 100, {scalar("")});
      b.add("aten::linalg_solve", 900, {tensor({size, size}), tensor({size})});
      add_other_work(b, 300);
    });
  };
  const Explanation e = solve(600);
  const Finding* f = find_finding(e, "stuffed-zeros");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "aten::linalg_solve reads [600, 600], of which 98 % are zeros");
  EXPECT_HAS(f->action, "as a batch [50, 12, 12]");
  EXPECT_EQ(find_finding(solve(640), "stuffed-zeros"), nullptr) << "another matrix";
}

TEST(PartFindings, MeansOfDrawnRowsAreCounts) {
  const auto draws = [](int64_t rows) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::index", 900, {tensor({1500, 24})});
      b.add("aten::mean", 200, {tensor({300, rows, 24}), scalar("[1]")});
      add_other_work(b, 300);
    });
  };
  const Explanation e = draws(1500);
  ASSERT_NE(find_finding(e, "pooled-rows"), nullptr);
  EXPECT_HAS(find_finding(e, "pooled-rows")->action, "counts @ table");
  const Explanation few = draws(20);
  ASSERT_NE(find_finding(few, "pooled-rows"), nullptr);
  EXPECT_HAS(find_finding(few, "pooled-rows")->action, "EmbeddingBag");
}

TEST(PartFindings, RowsAreLookedUpBeforeTheTableIsScaled) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    b.add("aten::mul", 900, {tensor({120000, 64}), tensor({120000, 1})});
    b.add("aten::embedding", 100, {tensor({120000, 64}), tensor({128, 20}, "long int")});
    b.add("aten::linear", 300, {tensor({128, 20, 64}), tensor({64, 64}), tensor({64})});
  });
  const Finding* f = find_finding(e, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->action, "take the rows first");
}

TEST(PartFindings, PlacesOfRowsNeedNoProducts) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    b.add("aten::one_hot", 50, {tensor({1024}, "long int"), number(256)});
    b.add("aten::einsum", 100, {tensor({1024, 8}), tensor({1024, 256})});
    b.add("aten::einsum", 500, {tensor({1024, 8, 256}), tensor({1024, 128})});
    b.add("aten::gelu", 300, {tensor({8, 256, 128})});
  });
  const Finding* f = find_finding(e, "built-matrix");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->action, "index_copy_");
  EXPECT_NEAR(*f->cost_us, 1300, 1) << "with the product that sends the rows";
}

TEST(PartFindings, AnExponentialOfASumIsAProduct) {
  const auto gaussians = [](std::vector<int64_t> columns) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::add", 200, {tensor({64, 96, 1}), tensor(columns), number(1)});
      b.add("aten::div", 200, {tensor({64, 96, 96}), scalar("-2.")});
      b.add("aten::exp", 500, {tensor({64, 96, 96})});
      add_other_work(b, 300);
    });
  };
  const Explanation e = gaussians({64, 1, 96});
  const Finding* f = find_finding(e, "shorter-form");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "a sum of [64, 96, 1] and [64, 1, 96]");
  EXPECT_HAS(f->action, "exponential of each side");
  EXPECT_NEAR(*f->cost_us, 1800, 1);
  EXPECT_EQ(find_finding(gaussians({64, 96, 96}), "shorter-form"), nullptr) << "no two sides";
}

// --- Loops, waits ---

TEST(PartFindings, ALoopOfProductsWithOneMatrixIsItsPowers) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < 200; ++i)
      b.add("aten::matmul", 4, {tensor({8, 24, 24}), tensor({8, 24, 1})});
    add_other_work(b, 500);
  });
  EXPECT_HAS(finding_of(e, "call-loop").action, "squarings in place of steps");
}

TEST(PartFindings, AWaitWithinALoopIsNotItsOwn) {
  const auto loop = [](int64_t wait_us) {
    return explain_steps(2, [&](OpSequence& b) {
      for (int i = 0; i < 28; ++i) {
        b.add("aten::as_strided", 3, {tensor({64, 64})});
        if (i == 14) b.at_us += wait_us;
      }
      b.add("aten::mm", 20'000, {tensor({64, 64}), tensor({64, 64})});
    });
  };
  EXPECT_EQ(find_finding(loop(40'000), "call-loop"), nullptr) << "it waits for something else";
}

TEST(PartFindings, AFunctionThatComputesIsNotTakenOutOfTheStep) {
  const auto run = [](const char* function) {
    GpuTrace b;
    b.annotation("ProfilerStep#1", 0, 100'000 * kUs);
    b.event(Category::python_function, function, 0, 100'000 * kUs);
    b.op("aten::mm", 0, 10'000 * kUs);
    b.op("aten::relu", 61'000 * kUs, 100'000 * kUs);
    return explain(b);
  };
  const Finding f = finding_of(run("model.py(10): solve"), "between-ops");
  EXPECT_EQ(f.action.find("make the Python of model.py(10): solve cheaper"), 0U) << f.action;
  EXPECT_LACKS(f.action, "out of the step");
  // Only what sends objects is about objects.
  EXPECT_HAS(
      finding_of(run("torch/distributed_c10d.py(9): all_gather_object"), "between-ops").action,
      "send tensors, not objects");
  EXPECT_LACKS(
      finding_of(run("torch/_ops.py(1211): _contains_fake_script_object"), "between-ops").action,
      "send tensors");
}

TEST(PartFindings, MicroBatchesAreOneBatch) {
  int64_t number = 1;
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < 32; ++i) {
      for (int layer = 0; layer < 4; ++layer) {
        b.add("aten::linear", 18, {tensor({16, 64}), tensor({64, 64}), tensor({64})}, number);
        ++number;
      }
      for (int layer = 1; layer <= 4; ++layer)
        b.node("AddmmBackward0", 18, number - layer, "aten::mm");
    }
  });
  const Finding* f = find_finding(e, "small-passes");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->action, "few large ones");
}

}  // namespace
}  // namespace epilogue::trace::part_findings_test
