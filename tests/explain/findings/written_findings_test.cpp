// SPDX-License-Identifier: Apache-2.0
// Findings about work whose result is not read, and about tensors that are written to be read once:
// each with a trace that has it, and with one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::written_findings_test {

using namespace testing;

void add_work(OpSequence& b, int64_t us) {
  b.add("aten::mm", us, {tensor({256, 256}), tensor({256, 256})});
}

// --- A forward pass that the loss does not read ------------------------------------------

// Three layers, of which a backward pass visits the first ones.
Explanation training(int64_t visited, bool has_frozen_twin = false) {
  int64_t number_of = 10;
  return explain_rounds(3, [&](OpSequence& b) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      if (has_frozen_twin && layer == 2)
        b.add("aten::conv2d", 90, {tensor({4, 16, 32, 32}), tensor({16 + layer, 16, 3, 3})});
      b.add("aten::conv2d", 100, {tensor({4, 16, 32, 32}), tensor({16 + layer, 16, 3, 3})},
            number_of + layer);
    }
    for (int64_t layer = visited; layer-- > 0;)
      b.node("ConvolutionBackward0", 150, number_of + layer);
    b.end_step();
    number_of += 3;
  });
}

TEST(WrittenFindings, LayersThatTheLossDoesNotReadAreNamed) {
  const Finding f = finding_of(training(2), "unread-forward");
  EXPECT_NEAR(*f.cost_us, 300, 1);
  EXPECT_FALSE(f.saving_us) << "a metric may read them";
  EXPECT_HAS(f.action, "stop after the last layer that is read");
  EXPECT_EQ(find_finding(training(3), "unread-forward"), nullptr) << "all are read";
}

TEST(WrittenFindings, TheSameLayersWithoutAGraphAreNotReadEither) {
  const Finding f = finding_of(training(2, true), "unread-forward");
  EXPECT_NEAR(*f.cost_us, 570, 1);
  EXPECT_HAS(f.evidence[1], "without a graph");
}

// --- Orders of columns -------------------------------------------------------------------

OpInput sparse(std::vector<int64_t> dims) {
  OpInput input = tensor(std::move(dims));
  input.strides.clear();
  return input;
}

Explanation propagation(int64_t columns, int64_t hidden) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::matmul", 400, {sparse({2000, 2000}), tensor({2000, columns})});
    b.add("aten::linear", 50, {tensor({2000, columns}), tensor({hidden, columns})});
    add_work(b, 500);
  });
}

TEST(WrittenFindings, ColumnsAreProjectedBeforeTheyAreSpread) {
  const Finding f = finding_of(propagation(1000, 50), "dearer-order");
  EXPECT_HAS(f.title, "spreads 1000 columns, which aten::linear then projects to 50");
  EXPECT_NEAR(*f.saving_us, 800 * 0.95, 1);
  EXPECT_EQ(find_finding(propagation(100, 64), "dearer-order"), nullptr) << "hardly fewer";
}

TEST(WrittenFindings, AProductOfWhichOneRowStaysIsOfASum) {
  const auto reduced = [](const char* dim) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::mm", 400, {tensor({500, 64}), tensor({64, 300})});
      b.add("aten::sum", 20, {tensor({500, 300}), scalar(dim)});
      b.add("aten::gelu", 500, {tensor({500, 300})});
    });
  };
  EXPECT_HAS(finding_of(reduced("[0]"), "dearer-order").action, "A.sum(0) @ B");
  EXPECT_EQ(find_finding(reduced("[0, 1]"), "dearer-order"), nullptr);
}

// --- Rows that are added up --------------------------------------------------------------

Explanation pooling(int64_t rows, const char* reader) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::embedding", 300, {tensor({3000, 64}), tensor({256, rows}, "long int")});
    b.add("aten::mul", 200, {tensor({256, rows, 64}), tensor({256, rows, 1})});
    b.add(reader, 100, {tensor({256, rows, 64}), scalar("[1]")});
    add_work(b, 500);
  });
}

TEST(WrittenFindings, RowsThatAreGatheredToBeAddedUpAreABag) {
  const Finding f = finding_of(pooling(200, "aten::sum"), "pooled-rows");
  EXPECT_NEAR(*f.cost_us, 1200, 1);
  EXPECT_HAS(f.action, "EmbeddingBag");
  EXPECT_EQ(find_finding(pooling(200, "aten::gelu"), "pooled-rows"), nullptr);
  EXPECT_EQ(find_finding(pooling(3, "aten::sum"), "pooled-rows"), nullptr) << "few for each sum";
}

// --- Targets of all classes --------------------------------------------------------------

Explanation smoothed(int64_t classes, const char* loss) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::full_like", 100, {tensor({768, classes}), number(0)});
    b.add("aten::scatter_", 50,
          {tensor({768, classes}), number(1), tensor({768, 1}, "long int"), number(1)});
    b.add("aten::log_softmax", 200, {tensor({768, classes}), number(1)});
    b.add(loss, 300, {tensor({768, classes}), tensor({768, classes})});
    add_work(b, 500);
  });
}

TEST(WrittenFindings, ALossOverADenseTargetComesFromTheIndices) {
  const Finding f = finding_of(smoothed(8000, "aten::kl_div"), "dense-target");
  EXPECT_NEAR(*f.cost_us, 900, 1);
  EXPECT_HAS(f.action, "label_smoothing=");
  EXPECT_EQ(find_finding(smoothed(8000, "aten::mse_loss"), "dense-target"), nullptr);
  EXPECT_EQ(find_finding(smoothed(10, "aten::kl_div"), "dense-target"), nullptr) << "few classes";
}

// --- Zeros -------------------------------------------------------------------------------

Explanation stuffing(int64_t written, const char* reader) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::new_zeros", 50, {tensor({8, 64, 16, 16}), scalar("[8, 64, 32, 32]")});
    b.add("aten::slice", 1, {tensor({8, 64, 32, 32}), number(2), number(0), number(32), number(2)});
    b.add("aten::copy_", 50, {tensor({8, 64, written, 16}), tensor({8, 64, written, 16})});
    b.add(reader, 800, {tensor({8, 64, 32, 32}), tensor({32, 64, 3, 3})});
    add_work(b, 500);
  });
}

TEST(WrittenFindings, ZerosBetweenPixelsAreATransposedConvolution) {
  const Finding f = finding_of(stuffing(16, "aten::conv2d"), "stuffed-zeros");
  EXPECT_HAS(f.title, "of which 75 % are zeros");
  EXPECT_HAS(f.action, "conv_transpose2d");
  EXPECT_EQ(find_finding(stuffing(60, "aten::conv2d"), "stuffed-zeros"), nullptr) << "mostly data";
  EXPECT_EQ(find_finding(stuffing(16, "aten::gelu"), "stuffed-zeros"), nullptr);
}

TEST(WrittenFindings, BlocksAlongTheDiagonalAreABatchOfProducts) {
  const Explanation e = explain_steps(2, [&](OpSequence& b) {
    b.add("aten::block_diag", 100,
          {tensor_list(
              {tensor({128, 128}), tensor({128, 128}), tensor({128, 128}), tensor({128, 128})})});
    b.add("aten::matmul", 800, {tensor({64, 512}), tensor({512, 512})});
  });
  EXPECT_HAS(finding_of(e, "stuffed-zeros").action, "bmm");
}

// --- Weights of inference ----------------------------------------------------------------

TEST(WrittenFindings, WeightsThatAreCastForEachCallAreCastOnce) {
  const auto cast = [](bool has_backward) {
    return explain_steps(2, [&](OpSequence& b, int step) {
      b.add("aten::to", 300, {tensor({512, 256}, "c10::Half"), number(6)});
      b.add("aten::linear", 500, {tensor({8, 256}), tensor({512, 256})}, has_backward ? step : -1);
      if (has_backward) b.node("AddmmBackward0", 50, step);
    });
  };
  EXPECT_NEAR(*finding_of(cast(false), "made-weight").saving_us, 600, 1);
  EXPECT_EQ(find_finding(cast(true), "made-weight"), nullptr) << "training changes the weight";
}

// --- Time and batch ----------------------------------------------------------------------

Explanation recurrent(int64_t steps, const char* batch_first, int64_t read_dim) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::gru", 900,
          {tensor({steps, 16, 8}), tensor({1, 16, 48}), scalar("True"), number(1), scalar("0."),
           scalar("True"), scalar("False"), scalar(batch_first)});
    b.add("aten::select", 1, {tensor({steps, 16, 48}), number(read_dim), number(-1)});
    add_work(b, 500);
  });
}

TEST(WrittenFindings, ABatchThatIsTakenForTimeIsNamed) {
  EXPECT_HAS(finding_of(recurrent(256, "False", 1), "swapped-time").action, "batch_first=True");
  EXPECT_EQ(find_finding(recurrent(256, "True", 1), "swapped-time"), nullptr);
  EXPECT_EQ(find_finding(recurrent(256, "False", 0), "swapped-time"), nullptr)
      << "the last step is read";
  EXPECT_EQ(find_finding(recurrent(32, "False", 1), "swapped-time"), nullptr) << "short";
}

// --- Values that are looked at -----------------------------------------------------------

TEST(WrittenFindings, LookingForNanInManyTensorsIsNamed) {
  const auto checks = [](int count) {
    return explain_steps(2, [&](OpSequence& b) {
      for (int i = 0; i < count; ++i) {
        b.add("aten::isnan", 100, {tensor({64, 64})});
        b.add("aten::any", 50, {tensor({64, 64}, "bool")});
        b.add("aten::is_nonzero", 10, {tensor({}, "bool")});
        b.add("aten::gelu", 40, {tensor({64, 64})});
      }
      add_work(b, 500);
    });
  };
  const Finding f = finding_of(checks(6), "value-checks");
  EXPECT_NEAR(*f.cost_us, 12 * 160, 1);
  EXPECT_HAS(f.action, "the loss alone");
  EXPECT_EQ(find_finding(checks(1), "value-checks"), nullptr) << "the loss";
}

// --- Signs -------------------------------------------------------------------------------

TEST(WrittenFindings, PowersOfWholeExponentsAreProducts) {
  const auto power = [](const char* exponent) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::pow", 600, {tensor({800, 50}), scalar(exponent)});
      add_work(b, 500);
    });
  };
  EXPECT_HAS(finding_of(power("12"), "long-op").action, "square and multiply");
  EXPECT_EQ(find_finding(power("2"), "long-op"), nullptr) << "it has a form of its own";
  EXPECT_EQ(find_finding(power("0.3"), "long-op"), nullptr) << "no product gives it";
}

TEST(WrittenFindings, ManyLongFiltersOfOneChannelAreATransform) {
  const auto filters = [](int64_t count) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::conv1d", 900,
            {tensor({8, 1, 16000}), tensor({count, 1, 1024}), tensor({count}), scalar("[160]")});
      b.add("aten::log", 100, {tensor({8, count, 94})});
    });
  };
  EXPECT_HAS(finding_of(filters(1026), "long-op").action, "torch.stft");
  EXPECT_EQ(find_finding(filters(16), "long-op"), nullptr);
}

// --- Lines of numbers --------------------------------------------------------------------

TEST(WrittenFindings, LinesOfNumbersAreCutBeforeTheyAreConverted) {
  const auto read = [](int64_t end) {
    OpSequence b;
    for (int i = 0; i < 4; ++i) {
      b.add("aten::to", 300, {tensor({960000}, "short int"), number(6)});
      b.add("aten::div", 400, {tensor({960000}), tensor({}, "long int")});
      b.add("aten::slice", 1, {tensor({960000}), number(0), number(0), number(end), number(1)});
    }
    add_work(b, 500);
    b.end_step();
    return explain(b);
  };
  const Finding f = finding_of(read(8000), "cut-result");
  EXPECT_NEAR(*f.cost_us, 4 * 700, 1);
  EXPECT_HAS(f.action, "seek");
  EXPECT_EQ(find_finding(read(900000), "cut-result"), nullptr) << "most of it is read";
}

TEST(WrittenFindings, AStrideReachesTheConvolutionBehindElementwiseOps) {
  const auto strided = [](int64_t step) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::conv2d", 600,
            {tensor({8, 16, 96, 96}), tensor({32, 16, 3, 3}), tensor({32}), scalar("[1, 1]"),
             scalar("[1, 1]"), scalar("[1, 1]"), number(1)});
      b.add("aten::relu", 100, {tensor({8, 32, 96, 96})});
      b.add("aten::slice", 1,
            {tensor({8, 32, 96, 96}), number(2), number(0), number(96), number(step)});
      add_work(b, 500);
    });
  };
  const Finding f = finding_of(strided(4), "cut-result");
  EXPECT_NEAR(*f.cost_us, 1400, 1);
  EXPECT_HAS(f.action, "stride=4");
  EXPECT_EQ(find_finding(strided(1), "cut-result"), nullptr);
}

// --- Loops of work -----------------------------------------------------------------------

Explanation looped(int64_t us, bool has_backward) {
  int64_t node = 10;
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t first = node;
    for (int i = 0; i < 16; ++i) {
      b.add("aten::linear", us, {tensor({128, 784}), tensor({64, 784})}, node++);
      b.add("aten::randn_like", us / 4, {tensor({128, 64})});
    }
    if (has_backward) {
      b.node("AddmmBackward0", 10, first, "aten::mm");
      b.add_around("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                   "aten::detach", 3);
    }
  });
}

TEST(WrittenFindings, LayersThatALoopRunsAgainAreAQuestion) {
  const Finding f = finding_of(looped(200, true), "work-loop");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_FALSE(f.saving_us);
  EXPECT_HAS(f.action, "once before the loop");
  EXPECT_EQ(find_finding(looped(200, false), "work-loop"), nullptr) << "inference";
  EXPECT_EQ(find_finding(looped(4, true), "work-loop"), nullptr) << "calls are all of it";
}

}  // namespace epilogue::trace::written_findings_test
