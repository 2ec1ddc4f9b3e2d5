// SPDX-License-Identifier: Apache-2.0
// Findings about work whose result is not read, and about tensors that are written to be read once:
// each with a trace that has it, and with one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::written_findings_test {

using testing::find_finding;
using testing::number;
using testing::OpSequence;
using testing::scalar;
using testing::tensor;
using testing::tensor_list;

void add_work(OpSequence& b, int64_t us) {
  b.add("aten::mm", us, {tensor({256, 256}), tensor({256, 256})});
}

// --- A forward pass that the loss does not read
// -----------------------------------------------------

// Three layers, of which a backward pass visits the first ones.
Explanation training(int64_t visited, bool has_frozen_twin = false) {
  OpSequence b;
  int64_t number_of = 10;
  for (int step = 0; step < 3; ++step) {
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
  }
  return explain(b);
}

TEST(WrittenFindings, LayersThatTheLossDoesNotReadAreNamed) {
  const Explanation e = training(2);
  const Finding* f = find_finding(e, "unread-forward");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 300, 1);
  EXPECT_FALSE(f->saving_us) << "a metric may read them";
  EXPECT_NE(f->action.find("stop after the last layer that is read"), std::string::npos);
  EXPECT_EQ(find_finding(training(3), "unread-forward"), nullptr) << "all are read";
}

TEST(WrittenFindings, TheSameLayersWithoutAGraphAreNotReadEither) {
  const Explanation e = training(2, true);
  const Finding* f = find_finding(e, "unread-forward");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 570, 1);
  EXPECT_NE(f->evidence[1].find("without a graph"), std::string::npos) << f->evidence[1];
}

// --- Orders of columns
// --------------------------------------------------------------------------------

OpInput sparse(std::vector<int64_t> dims) {
  OpInput input = tensor(std::move(dims));
  input.strides.clear();
  return input;
}

Explanation propagation(int64_t columns, int64_t hidden) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::matmul", 400, {sparse({2000, 2000}), tensor({2000, columns})});
    b.add("aten::linear", 50, {tensor({2000, columns}), tensor({hidden, columns})});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, ColumnsAreProjectedBeforeTheyAreSpread) {
  const Explanation e = propagation(1000, 50);
  const Finding* f = find_finding(e, "dearer-order");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("spreads 1000 columns, which aten::linear then projects to 50"),
            std::string::npos)
      << f->title;
  EXPECT_NEAR(*f->saving_us, 800 * 0.95, 1);
  EXPECT_EQ(find_finding(propagation(100, 64), "dearer-order"), nullptr) << "hardly fewer";
}

TEST(WrittenFindings, AProductOfWhichOneRowStaysIsOfASum) {
  const auto reduced = [](const char* dim) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::mm", 400, {tensor({500, 64}), tensor({64, 300})});
      b.add("aten::sum", 20, {tensor({500, 300}), scalar(dim)});
      b.add("aten::gelu", 500, {tensor({500, 300})});
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = reduced("[0]");
  const Finding* f = find_finding(e, "dearer-order");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("A.sum(0) @ B"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(reduced("[0, 1]"), "dearer-order"), nullptr);
}

// --- Rows that are added up
// ---------------------------------------------------------------------------

Explanation pooling(int64_t rows, const char* reader) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::embedding", 300, {tensor({3000, 64}), tensor({256, rows}, "long int")});
    b.add("aten::mul", 200, {tensor({256, rows, 64}), tensor({256, rows, 1})});
    b.add(reader, 100, {tensor({256, rows, 64}), scalar("[1]")});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, RowsThatAreGatheredToBeAddedUpAreABag) {
  const Explanation e = pooling(200, "aten::sum");
  const Finding* f = find_finding(e, "pooled-rows");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 1200, 1);
  EXPECT_NE(f->action.find("EmbeddingBag"), std::string::npos);
  EXPECT_EQ(find_finding(pooling(200, "aten::gelu"), "pooled-rows"), nullptr);
  EXPECT_EQ(find_finding(pooling(3, "aten::sum"), "pooled-rows"), nullptr) << "few for each sum";
}

// --- Targets of all classes
// ---------------------------------------------------------------------------

Explanation smoothed(int64_t classes, const char* loss) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::full_like", 100, {tensor({768, classes}), number(0)});
    b.add("aten::scatter_", 50,
          {tensor({768, classes}), number(1), tensor({768, 1}, "long int"), number(1)});
    b.add("aten::log_softmax", 200, {tensor({768, classes}), number(1)});
    b.add(loss, 300, {tensor({768, classes}), tensor({768, classes})});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, ALossOverADenseTargetComesFromTheIndices) {
  const Explanation e = smoothed(8000, "aten::kl_div");
  const Finding* f = find_finding(e, "dense-target");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 900, 1);
  EXPECT_NE(f->action.find("label_smoothing="), std::string::npos);
  EXPECT_EQ(find_finding(smoothed(8000, "aten::mse_loss"), "dense-target"), nullptr);
  EXPECT_EQ(find_finding(smoothed(10, "aten::kl_div"), "dense-target"), nullptr) << "few classes";
}

// --- Zeros
// --------------------------------------------------------------------------------------------

Explanation stuffing(int64_t written, const char* reader) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::new_zeros", 50, {tensor({8, 64, 16, 16}), scalar("[8, 64, 32, 32]")});
    b.add("aten::slice", 1, {tensor({8, 64, 32, 32}), number(2), number(0), number(32), number(2)});
    b.add("aten::copy_", 50, {tensor({8, 64, written, 16}), tensor({8, 64, written, 16})});
    b.add(reader, 800, {tensor({8, 64, 32, 32}), tensor({32, 64, 3, 3})});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, ZerosBetweenPixelsAreATransposedConvolution) {
  const Explanation e = stuffing(16, "aten::conv2d");
  const Finding* f = find_finding(e, "stuffed-zeros");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->title.find("of which 75 % are zeros"), std::string::npos) << f->title;
  EXPECT_NE(f->action.find("conv_transpose2d"), std::string::npos);
  EXPECT_EQ(find_finding(stuffing(60, "aten::conv2d"), "stuffed-zeros"), nullptr) << "mostly data";
  EXPECT_EQ(find_finding(stuffing(16, "aten::gelu"), "stuffed-zeros"), nullptr);
}

TEST(WrittenFindings, BlocksAlongTheDiagonalAreABatchOfProducts) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::block_diag", 100,
          {tensor_list(
              {tensor({128, 128}), tensor({128, 128}), tensor({128, 128}), tensor({128, 128})})});
    b.add("aten::matmul", 800, {tensor({64, 512}), tensor({512, 512})});
    b.end_step();
  }
  const Explanation e = explain(b);
  const Finding* f = find_finding(e, "stuffed-zeros");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("bmm"), std::string::npos) << f->action;
}

// --- Weights of inference
// -----------------------------------------------------------------------------

TEST(WrittenFindings, WeightsThatAreCastForEachCallAreCastOnce) {
  const auto cast = [](bool has_backward) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::to", 300, {tensor({512, 256}, "c10::Half"), number(6)});
      b.add("aten::linear", 500, {tensor({8, 256}), tensor({512, 256})}, has_backward ? step : -1);
      if (has_backward) b.node("AddmmBackward0", 50, step);
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = cast(false);
  const Finding* f = find_finding(e, "made-weight");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->saving_us, 600, 1);
  EXPECT_EQ(find_finding(cast(true), "made-weight"), nullptr) << "training changes the weight";
}

// --- Time and batch
// -----------------------------------------------------------------------------------

Explanation recurrent(int64_t steps, const char* batch_first, int64_t read_dim) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::gru", 900,
          {tensor({steps, 16, 8}), tensor({1, 16, 48}), scalar("True"), number(1), scalar("0."),
           scalar("True"), scalar("False"), scalar(batch_first)});
    b.add("aten::select", 1, {tensor({steps, 16, 48}), number(read_dim), number(-1)});
    add_work(b, 500);
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, ABatchThatIsTakenForTimeIsNamed) {
  const Explanation e = recurrent(256, "False", 1);
  const Finding* f = find_finding(e, "swapped-time");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("batch_first=True"), std::string::npos);
  EXPECT_EQ(find_finding(recurrent(256, "True", 1), "swapped-time"), nullptr);
  EXPECT_EQ(find_finding(recurrent(256, "False", 0), "swapped-time"), nullptr)
      << "the last step is read";
  EXPECT_EQ(find_finding(recurrent(32, "False", 1), "swapped-time"), nullptr) << "short";
}

// --- Values that are looked at
// ------------------------------------------------------------------------

TEST(WrittenFindings, LookingForNanInManyTensorsIsNamed) {
  const auto checks = [](int count) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < count; ++i) {
        b.add("aten::isnan", 100, {tensor({64, 64})});
        b.add("aten::any", 50, {tensor({64, 64}, "bool")});
        b.add("aten::is_nonzero", 10, {tensor({}, "bool")});
        b.add("aten::gelu", 40, {tensor({64, 64})});
      }
      add_work(b, 500);
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = checks(6);
  const Finding* f = find_finding(e, "value-checks");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 12 * 160, 1);
  EXPECT_NE(f->action.find("the loss alone"), std::string::npos);
  EXPECT_EQ(find_finding(checks(1), "value-checks"), nullptr) << "the loss";
}

// --- Signs
// --------------------------------------------------------------------------------------------

TEST(WrittenFindings, PowersOfWholeExponentsAreProducts) {
  const auto power = [](const char* exponent) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::pow", 600, {tensor({800, 50}), scalar(exponent)});
      add_work(b, 500);
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = power("12");
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("square and multiply"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(power("2"), "long-op"), nullptr) << "it has a form of its own";
  EXPECT_EQ(find_finding(power("0.3"), "long-op"), nullptr) << "no product gives it";
}

TEST(WrittenFindings, ManyLongFiltersOfOneChannelAreATransform) {
  const auto filters = [](int64_t count) {
    OpSequence b;
    for (int step = 0; step < 2; ++step) {
      b.add("aten::conv1d", 900,
            {tensor({8, 1, 16000}), tensor({count, 1, 1024}), tensor({count}), scalar("[160]")});
      b.add("aten::log", 100, {tensor({8, count, 94})});
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = filters(1026);
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_NE(f->action.find("torch.stft"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(filters(16), "long-op"), nullptr);
}

// --- Lines of numbers
// --------------------------------------------------------------------------------------------

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
  const Explanation e = read(8000);
  const Finding* f = find_finding(e, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 4 * 700, 1);
  EXPECT_NE(f->action.find("seek"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(read(900000), "cut-result"), nullptr) << "most of it is read";
}

TEST(WrittenFindings, AStrideReachesTheConvolutionBehindElementwiseOps) {
  const auto strided = [](int64_t step) {
    OpSequence b;
    for (int i = 0; i < 2; ++i) {
      b.add("aten::conv2d", 600,
            {tensor({8, 16, 96, 96}), tensor({32, 16, 3, 3}), tensor({32}), scalar("[1, 1]"),
             scalar("[1, 1]"), scalar("[1, 1]"), number(1)});
      b.add("aten::relu", 100, {tensor({8, 32, 96, 96})});
      b.add("aten::slice", 1,
            {tensor({8, 32, 96, 96}), number(2), number(0), number(96), number(step)});
      add_work(b, 500);
      b.end_step();
    }
    return explain(b);
  };
  const Explanation e = strided(4);
  const Finding* f = find_finding(e, "cut-result");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->cost_us, 1400, 1);
  EXPECT_NE(f->action.find("stride=4"), std::string::npos) << f->action;
  EXPECT_EQ(find_finding(strided(1), "cut-result"), nullptr);
}

// --- Loops of work
// ------------------------------------------------------------------------------------

Explanation looped(int64_t us, bool has_backward) {
  OpSequence b;
  int64_t node = 10;
  for (int step = 0; step < 2; ++step) {
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
    b.end_step();
  }
  return explain(b);
}

TEST(WrittenFindings, LayersThatALoopRunsAgainAreAQuestion) {
  const Explanation e = looped(200, true);
  const Finding* f = find_finding(e, "work-loop");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->confidence, Confidence::low);
  EXPECT_FALSE(f->saving_us);
  EXPECT_NE(f->action.find("once before the loop"), std::string::npos);
  EXPECT_EQ(find_finding(looped(200, false), "work-loop"), nullptr) << "inference";
  EXPECT_EQ(find_finding(looped(4, true), "work-loop"), nullptr) << "calls are all of it";
}

}  // namespace epilogue::trace::written_findings_test
