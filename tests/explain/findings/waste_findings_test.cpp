// SPDX-License-Identifier: Apache-2.0
// Findings about work that is not needed, or that could be less: each with a trace that has it, and
// with one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::waste_findings_test {

using namespace testing;

// --- A sequence that grows ---------------------------------------------------------------

// `passes` of a layer over rows that grow, each of which ends in a cat.
Explanation decoding(int64_t passes, int64_t more, bool extends, int64_t first = 64) {
  return explain_rounds(passes, [&](OpSequence& b, int64_t i) {
    const int64_t rows = first + i * more;
    b.add("aten::addmm", 50, {tensor({256}), tensor({rows, 64}), tensor({64, 256})});
    b.add("aten::gelu", 20, {tensor({rows, 256})});
    b.add("aten::mm", 10, {tensor({1, 64}), tensor({64, 1000})});
    if (extends) b.add("aten::cat", 1, {tensor_list({tensor({rows}), tensor({1})})});
  });
}

TEST(WasteFindings, DecodingThatRunsOverThePrefixEachTimeIsNamed) {
  const Finding f = finding_of(decoding(10, 1, true), "grown-sequence");
  EXPECT_HAS(f.title, "each of 9 passes runs over the whole sequence");
  EXPECT_HAS(f.action, "KV cache");
  EXPECT_EQ(f.confidence, Confidence::high);
  // 9 products of 50 us and 8 GELUs between them, of which all but one row was there before; the
  // head's rows do not grow.
  EXPECT_NEAR(*f.saving_us, (9 * 50 + 8 * 20) * (1 - 1 / 69.0), 10);
  EXPECT_EQ(f.evidence.front(), "aten::addmm on 65 to 73 rows, 1 more each time");
}

TEST(WasteFindings, RowsThatDoNotGrowByOneNumberAreNoSequence) {
  EXPECT_EQ(find_finding(decoding(10, 0, true), "grown-sequence"), nullptr);
  EXPECT_EQ(find_finding(decoding(5, 1, true), "grown-sequence"), nullptr) << "too few";
  EXPECT_EQ(find_finding(decoding(10, 1, false), "grown-sequence"), nullptr)
      << "nothing extends it";
  EXPECT_EQ(find_finding(decoding(10, 64, true), "grown-sequence"), nullptr)
      << "batches that are sorted by length";
  EXPECT_EQ(finding_of(decoding(14, 1, false), "grown-sequence").confidence, Confidence::low);
}

// --- Gradients that nobody reads ---------------------------------------------------------

// Steps of an encoder and a head; the encoder's gradient is `encoder` in AccumulateGrad.
Explanation training(std::string_view encoder, std::string_view head, int passes = 1) {
  int64_t number = 10;
  return explain_steps(3, [&](OpSequence& b) {
    for (int pass = 0; pass < passes; ++pass) {
      b.event(Category::python_function, "nn.Module: Encoder_0", b.at_us * kUs,
              (b.at_us + 50) * kUs);
      b.add("aten::conv2d", 50, {}, number);
      b.add("aten::conv2d", 50, {}, number + 1);
      b.node("ConvolutionBackward0", 60, number + 1);
      b.add_around("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", head, 3);
      b.node("ConvolutionBackward0", 100, number);
      b.add_around("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", encoder,
                   3);
      number += 2;
    }
  });
}

TEST(WasteFindings, GradientsThatNobodySetsToZeroAreNotRead) {
  const Finding f = finding_of(training("aten::add_", "aten::detach"), "unread-gradient");
  EXPECT_NEAR(*f.saving_us, 300, 4);
  EXPECT_HAS(f.action, "Encoder_0 under torch.no_grad()");
  EXPECT_HAS(f.evidence.front(), "1 of 2 gradients of a step");
}

TEST(WasteFindings, GradientsOfWhatIsTrainedAreRead) {
  EXPECT_EQ(find_finding(training("aten::detach", "aten::detach"), "unread-gradient"), nullptr);
  EXPECT_EQ(find_finding(training("aten::add_", "aten::add_"), "unread-gradient"), nullptr)
      << "zero_grad(set_to_none=False)";
  EXPECT_EQ(find_finding(training("aten::detach", "aten::add_"), "unread-gradient"), nullptr)
      << "the encoder's nodes come last: nothing lies behind them";
  EXPECT_EQ(find_finding(training("aten::add_", "aten::detach", 2), "unread-gradient"), nullptr)
      << "one pass may add to what another one left";
}

// --- Products with a matrix of data ------------------------------------------------------

Explanation graph_layers(std::vector<int64_t> matrix, const char* around, const char* other,
                         bool trains) {
  const int64_t n = matrix.front();
  return explain_steps(3, [&](OpSequence& b) {
    if (*other != 0) b.add(other, 5, {tensor(matrix)});
    for (int i = 0; i < 2; ++i)
      b.add_around(around, "aten::mm", 200, {tensor(matrix), tensor({n, 64})}, 10 + i);
    if (trains)
      b.add_around("autograd::engine::evaluate_function: MmBackward0", "aten::mm", 100,
                   {tensor({n, 64}), tensor({64, n})}, 10);
    b.add("aten::relu", 100, {tensor({n, 64})});
  });
}

TEST(WasteFindings, ProductsWithAMatrixOfDataMayBeSparse) {
  const Finding f =
      finding_of(graph_layers({1000, 1000}, "aten::matmul", "", false), "constant-matrix");
  EXPECT_HAS(f.title, "one dense matrix of [1000, 1000]");
  EXPECT_HAS(f.action, "to_sparse_csr");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_FALSE(f.saving_us.has_value());
}

TEST(WasteFindings, WeightsAndComputedMatricesAreNotData) {
  const auto says = [](const Explanation& e) {
    return find_finding(e, "constant-matrix") != nullptr;
  };
  EXPECT_FALSE(says(graph_layers({1000, 1000}, "aten::linear", "", false))) << "a layer's weight";
  EXPECT_FALSE(says(graph_layers({1000, 1000}, "aten::matmul", "aten::exp", false)))
      << "it is computed";
  EXPECT_FALSE(says(graph_layers({1000, 1000}, "aten::matmul", "", true))) << "it is trained";
  EXPECT_FALSE(says(graph_layers({128, 128}, "aten::matmul", "", false))) << "it is small";
}

// --- Convolutions by hand ----------------------------------------------------------------

Explanation patches(const char* maker, const char* next) {
  return explain_rounds(2, [&](OpSequence& b, int64_t i) {
    b.add(maker, 50, {tensor({8, 16, 32, 32})}, 2 * i);
    b.add("aten::flatten", 1, {tensor({32, 16, 3, 3})});
    b.add_around(next, "aten::bmm", 100, {tensor({8, 32, 144}), tensor({8, 144, 900})}, 2 * i + 1);
    b.add("aten::relu", 40, {tensor({8, 32, 900})});
    b.node("Im2ColBackward0", 60, 2 * i, "aten::col2im");
  });
}

TEST(WasteFindings, UnfoldAndAProductAreAConvolution) {
  const Finding f = finding_of(patches("aten::im2col", "aten::matmul"), "unfolded-convolution");
  EXPECT_NEAR(*f.saving_us, 2 * (50 + 60 + 1 + 1), 4) << "without the products";
  EXPECT_HAS(f.action, "conv2d");
  EXPECT_EQ(find_finding(patches("aten::im2col", "aten::sum"), "unfolded-convolution"), nullptr);
  EXPECT_EQ(find_finding(patches("aten::clone", "aten::matmul"), "unfolded-convolution"), nullptr);
}

// --- Results of which little is read -----------------------------------------------------

// A head over all positions, of which `read` picks what it wants.
Explanation head(const char* name, std::vector<OpInput> args, const char* other = "") {
  const OpInput logits = tensor({4, 128, 1000});
  args.insert(args.begin(), logits);
  return explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::gelu", 100, {tensor({4, 128, 64})});
    b.add_around("aten::linear", "aten::addmm", 400, {tensor({4, 128, 64}), tensor({1000, 64})});
    b.add("aten::slice", 1, {logits, number(0), number(0), number(INT64_MAX), number(1)});
    b.add(name, 1, args);
    if (*other != 0) b.add(other, 10, {logits, number(-1)});
    b.add("aten::argmax", 5, {tensor({4, 1000})});
  });
}

TEST(WasteFindings, AResultOfWhichLittleIsReadIsCutFirst) {
  const Finding f = finding_of(head("aten::select", {number(1), number(-1)}), "cut-result");
  EXPECT_EQ(f.title.find("aten::linear computes [4, 128, 1000], of which aten::select reads 0.8 %"),
            0U)
      << f.title;
  EXPECT_NEAR(*f.saving_us, 2 * 400 * (1 - 1 / 128.0), 1);
  EXPECT_HAS(f.action, "before aten::linear");
}

TEST(WasteFindings, AResultThatIsReadIsNotCut) {
  const auto says = [](const Explanation& e) { return find_finding(e, "cut-result") != nullptr; };
  EXPECT_FALSE(says(head("aten::select", {number(1), number(-1)}, "aten::log_softmax")))
      << "something reads all of it";
  EXPECT_FALSE(says(head("aten::slice", {number(1), number(0), number(64), number(1)})))
      << "half of it is read";
  EXPECT_FALSE(says(head("aten::view", {})));
}

TEST(WasteFindings, ADiagonalOfAProductIsComputedAlone) {
  const Explanation e = explain_rounds(2, [&](OpSequence& b) {
    b.add_around("aten::matmul", "aten::bmm", 400, {tensor({8, 64, 32}), tensor({8, 32, 64})});
    b.add("aten::diagonal", 1, {tensor({8, 64, 64}), number(0), number(1), number(2)});
    b.add("aten::relu", 100, {tensor({8, 64})});
  });
  EXPECT_HAS(finding_of(e, "cut-result").action, "einsum");
}

// --- A forward pass that gradients do not reach ------------------------------------------

Explanation features(int64_t us, bool is_trained) {
  int64_t number = 20;
  return explain_steps(3, [&](OpSequence& b) {
    b.event(Category::python_function, "train.py(7): features", b.at_us * kUs,
            (b.at_us + us) * kUs);
    b.add("aten::stft", us, {}, number);
    if (is_trained) ++number;
    b.add("aten::linear", 100, {}, number);
    b.add("aten::mse_loss", 5, {}, number + 1);
    b.node("MseLossBackward0", 5, number + 1, "aten::mse_loss_backward");
    b.node("AddmmBackward0", 200, number, "aten::mm");
    number += 2;
  });
}

TEST(WasteFindings, ForwardWorkThatNoGradientReachesIsAQuestion) {
  const Finding f = finding_of(features(200, false), "untrained-forward");
  EXPECT_DOUBLE_EQ(*f.cost_us, 600);
  EXPECT_FALSE(f.saving_us.has_value());
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_TRUE(has_line(f, "most of it called from train.py(7): features"));
  EXPECT_EQ(find_finding(features(200, true), "untrained-forward"), nullptr);
  EXPECT_EQ(find_finding(features(20, false), "untrained-forward"), nullptr) << "it is short";
}

// --- Signs of shapes ---------------------------------------------------------------------

Explanation convolution(std::vector<int64_t> weight, const char* stride) {
  return explain_rounds(2, [&](OpSequence& b) {
    b.add_around("aten::conv2d", "aten::mkldnn_convolution", 200,
                 {tensor({8, 3, 96, 96}), tensor(weight), tensor({3}), scalar(stride)});
    b.add("aten::relu", 20, {tensor({8, 3, 96, 96})});
  });
}

TEST(WasteFindings, AKernelOfManyTapsHasACheaperWay) {
  Finding f = finding_of(convolution({3, 1, 31, 31}, "[1, 1]"), "long-op");
  EXPECT_HAS(f.title, "a kernel of 31 x 31 reads 961 samples");
  EXPECT_HAS(f.action, "separable");
  const Explanation line = convolution({1, 1, 1, 8000}, "[1, 1]");
  f = finding_of(line, "long-op");
  EXPECT_HAS(f.action, "FFT");
  EXPECT_EQ(find_finding(convolution({64, 3, 7, 7}, "[1, 1]"), "long-op"), nullptr);
  EXPECT_EQ(find_finding(convolution({64, 3, 16, 16}, "[16, 16]"), "long-op"), nullptr)
      << "patches of a vision transformer";
}

Explanation messages(int64_t nodes) {
  return explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::index", 20, {tensor({nodes, 64}), tensor_list({tensor({30'000}, "long int")})});
    b.add("aten::index", 20, {tensor({nodes, 64}), tensor_list({tensor({30'000}, "long int")})});
    b.add("aten::cat", 20, {tensor_list({tensor({30'000, 64}), tensor({30'000, 64})})});
    b.add_around("aten::linear", "aten::addmm", 300, {tensor({30'000, 128}), tensor({64, 128})});
    b.add("aten::relu", 50, {tensor({30'000, 64})});
  });
}

TEST(WasteFindings, RowsThatWereGatheredAreProjectedBefore) {
  const Explanation e = explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::index_select", 20, {tensor({1500, 128}), number(0), tensor({30'000}, "long int")});
    b.add("aten::mm", 300, {tensor({30'000, 128}), tensor({128, 64})});
    b.add("aten::relu", 50, {tensor({30'000, 64})});
  });
  const Finding f = finding_of(e, "long-op");
  EXPECT_HAS(f.title, "its 30000 rows were gathered from 1500: each of these is multiplied 20");
  EXPECT_HAS(f.action, "project before the gather");
  EXPECT_EQ(find_finding(messages(20'000), "long-op"), nullptr);
}

Explanation gaussian(const char* before) {
  return explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::diag_embed", 10, {tensor({512, 48})});
    b.add("aten::expand", 1, {tensor({512, 48, 48})});
    if (*before != 0) b.add(before, 10, {tensor({512, 48, 48}), tensor({512, 48, 48})});
    b.add("aten::linalg_cholesky", 30, {tensor({512, 48, 48})});
    b.add("aten::sub", 5, {tensor({512, 48}), tensor({512, 48})});
    b.add("aten::linalg_solve_triangular", 80, {tensor({512, 48, 48}), tensor({512, 48, 1})});
    b.add("aten::mm", 200, {tensor({256, 256}), tensor({256, 256})});
  });
}

TEST(WasteFindings, ADiagonalMatrixIsNotFactorised) {
  const Finding f = finding_of(gaussian(""), "long-op");
  EXPECT_HAS(f.title, "a diagonal matrix is factorised");
  EXPECT_HAS(f.action, "Independent(Normal");
  const Explanation full = gaussian("aten::add");
  for (const Finding& other : full.findings)
    EXPECT_LACKS(other.title, "a diagonal matrix") << "it is a sum";
}

// --- Backward passes through the same graph ----------------------------------------------

Explanation chunks(bool retains) {
  int64_t number = 1;
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t first = number;
    for (int chunk = 0; chunk < 3; ++chunk) {
      b.add("aten::linear", 50, {}, number++);
      for (int64_t n = number - 1; n >= (retains ? first : number - 1); --n)
        b.node("AddmmBackward0", 100, n, "aten::mm");
    }
  });
}

TEST(WasteFindings, NodesThatRunAgainBelongToAGraphThatWasKept) {
  const Finding f = finding_of(chunks(true), "repeated-backward");
  EXPECT_HAS(f.title, "go through the same graph again, up to 3 times");
  // In each step the first chunk's node runs three times, the second's twice.
  EXPECT_NEAR(*f.saving_us, 2 * (200 + 100), 6);
  EXPECT_HAS(f.action, "call backward once");
  EXPECT_EQ(find_finding(chunks(false), "repeated-backward"), nullptr);
}

// `passes` gradients of one graph, each of which keeps a graph of its own, and the loss's.
Explanation gradients_of_gradients(int passes) {
  int64_t number = 1;
  return explain_steps(2, [&](OpSequence& b) {
    const int64_t forward = number++;
    b.add("aten::linear", 50, {}, forward);
    for (int pass = 0; pass <= passes; ++pass) {
      b.node("AddmmBackward0", 100, forward, "aten::mm");
      if (pass < passes) b.last_args().sequence_number = number++;
    }
  });
}

// As many passes, and the loss goes back through each of them.
Explanation differentiated_passes(bool differentiates) {
  OpSequence b;
  int64_t number = 1;
  for (int step = 0; step < 2; ++step) {
    const int64_t forward = number++;
    const int64_t first = number;
    b.add("aten::linear", 50, {}, forward);
    for (int pass = 0; pass < 12; ++pass) {
      b.node("AddmmBackward0", 100, forward, "aten::mm");
      b.last_args().sequence_number = number++;
    }
    for (int64_t n = number - 1; differentiates && n >= first; --n)
      b.node("MmBackward0", 50, n, "aten::mm");
    b.end_step();
  }
  return explain(b);
}

TEST(WasteFindings, PassesThatAreDifferentiatedCostTheirGradientsToo) {
  const Explanation e = differentiated_passes(true);
  const Finding* f = find_finding(e, "repeated-backward");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(*f->saving_us, 2 * 11 * (100 + 50), 60);
  EXPECT_NE(f->action.find("jacrev"), std::string::npos) << "all passes go through all of it";
  const Explanation alone = differentiated_passes(false);
  ASSERT_NE(f = find_finding(alone, "repeated-backward"), nullptr);
  EXPECT_NEAR(*f->saving_us, 2 * 11 * 100, 60);
}

TEST(WasteFindings, AGradientOfAGradientIsNoRepetition) {
  EXPECT_EQ(find_finding(gradients_of_gradients(2), "repeated-backward"), nullptr);
  EXPECT_HAS(finding_of(gradients_of_gradients(12), "repeated-backward").action, "jacrev");
}

TEST(WasteFindings, SlicesInALoopHaveGradientsOfFullSize) {
  const auto slices = [](int count) {
    int64_t number = 1;
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::mm", 1500, {tensor({256, 256}), tensor({256, 256})});
      for (int i = 0; i < count; ++i) b.add("aten::select", 2, {}, number + i);
      for (int i = count; i-- > 0;) b.node("SelectBackward0", 50, number + i, "aten::fill_");
      number += count;
    });
  };
  const Finding f = finding_of(slices(20), "cut-gradients");
  EXPECT_HAS(f.title, "SelectBackward0 runs 20 times in a step");
  EXPECT_HAS(f.action, "unbind");
  EXPECT_EQ(find_finding(slices(3), "cut-gradients"), nullptr);
}

// --- The dearer order --------------------------------------------------------------------

TEST(WasteFindings, APointwiseConvolutionGoesBeforeTheInterpolation) {
  const auto trace = [](const std::vector<int64_t>& weight) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.add("aten::upsample_bilinear2d", 200, {tensor({2, 96, 20, 20})});
      b.add("aten::conv2d", 100, {tensor({2, 96, 160, 160}), tensor(weight)});
      b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
    });
  };
  const Finding f = finding_of(trace({12, 96, 1, 1}), "dearer-order");
  EXPECT_HAS(f.title, "enlarges 96 channels");
  EXPECT_NEAR(*f.saving_us, 2 * (200 * (1 - 12 / 96.0) + 100 * (1 - 1 / 64.0)), 2);
  EXPECT_EQ(find_finding(trace({12, 96, 3, 3}), "dearer-order"), nullptr);
  EXPECT_EQ(find_finding(trace({192, 96, 1, 1}), "dearer-order"), nullptr) << "more channels";
}

// q k^T v without a softmax, or with one.
Explanation attention_of(const char* between, int64_t length) {
  return explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::matmul", 300, {tensor({4, length, 32}), tensor({4, 32, length})});
    if (*between != 0) b.add(between, 10, {tensor({4, length, length}), scalar("2")});
    b.add("aten::matmul", 300, {tensor({4, length, length}), tensor({4, length, 32})});
    b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
  });
}

TEST(WasteFindings, AChainOfProductsIsTakenInTheCheaperOrder) {
  for (const char* between : {"", "aten::div"}) {
    const Explanation e = attention_of(between, 512);
    const Finding* f = find_finding(e, "dearer-order");
    ASSERT_NE(f, nullptr) << between;
    EXPECT_HAS(f->action, "A @ (B @ C)");
    // 512 x 512 x 32 twice, or 32 x 512 x 32 twice.
    EXPECT_NEAR(*f->saving_us, 2 * 600 * (1 - 1 / 16.0), 2);
  }
  EXPECT_EQ(find_finding(attention_of("aten::softmax", 512), "dearer-order"), nullptr);
  EXPECT_EQ(find_finding(attention_of("", 48), "dearer-order"), nullptr) << "it is as cheap";
}

// --- Matrices of vectors -----------------------------------------------------------------

Explanation jacobian(int64_t columns) {
  return explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::diag_embed", 100, {tensor({128, 160})});
    b.add("aten::mul", 100, {tensor({128, 160, 1}), tensor({128, 1, 160})});
    b.add("aten::sub", 100, {tensor({128, 160, 160}), tensor({128, 160, 160})});
    b.add("aten::bmm", 100, {tensor({128, 160, 160}), tensor({128, 160, columns})});
    b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
  });
}

TEST(WasteFindings, AMatrixOfVectorsTimesAVectorNeedsNoMatrix) {
  const Finding f = finding_of(jacobian(1), "built-matrix");
  EXPECT_HAS(f.title, "matrices of [128, 160, 160]");
  EXPECT_NEAR(*f.saving_us, 800 * (1 - 2 / 160.0), 3);
  EXPECT_HAS(f.action, "closed form");
  EXPECT_EQ(find_finding(jacobian(160), "built-matrix"), nullptr) << "a product of matrices";
}

// --- Experts -----------------------------------------------------------------------------

Explanation mixture(int64_t rows, int products) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::max", 5, {tensor({384, 8}), number(1), scalar("False")});
    for (int i = 0; i < products; ++i) {
      b.add("aten::linear", 100, {tensor({rows, 160}), tensor({640, 160}), tensor({640})});
      b.add("aten::eq", 2, {tensor({384}), number(i)});
      b.add("aten::mul", 2, {tensor({384, 640}), tensor({384, 1})});
    }
  });
}

TEST(WasteFindings, ExpertsThatComputeAllRowsAreNamed) {
  const Finding f = finding_of(mixture(384, 8), "all-experts");
  EXPECT_EQ(f.title.find("each of 8 experts computes all 384 rows, of which a choice keeps 1"), 0U)
      << f.title;
  EXPECT_NEAR(*f.saving_us, 2 * 8 * 100 * 7 / 8.0, 2);
  EXPECT_EQ(find_finding(mixture(48, 8), "all-experts"), nullptr) << "each has its own rows";
  EXPECT_EQ(find_finding(mixture(384, 6), "all-experts"), nullptr) << "they are no experts";
}

// --- Padding -----------------------------------------------------------------------------

Explanation padded(const std::vector<int64_t>& lengths, int64_t more) {
  const int64_t longest = lengths.back();
  const auto rows = static_cast<int64_t>(lengths.size());
  return explain_steps(2, [&](OpSequence& b) {
    std::vector<OpInput> parts;
    for (const int64_t n : lengths) parts.push_back(tensor({n}, "long int"));
    b.add("aten::pad_sequence", 5, {tensor_list(std::move(parts))});
    if (more > 0)
      b.add("aten::pad", 5,
            {tensor({rows, longest}, "long int"), scalar("[0, " + std::to_string(more) + "]")});
    b.add("aten::linear", 400, {tensor({rows, longest + more, 64}), tensor({64, 64})});
    b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
  });
}

TEST(WasteFindings, PaddingIsCountedFromWhatIsPadded) {
  Finding f = finding_of(padded({12, 24, 36, 48}, 144), "padding");
  EXPECT_EQ(f.title.find("84 % of a batch of [4, 192] is padding"), 0U) << f.title;
  EXPECT_NEAR(*f.saving_us, 2 * 400 * 0.75, 10) << "the longest has 48 of 192";
  EXPECT_HAS(f.action, "longest sequence of each batch");
  const Explanation uneven = padded({4, 4, 4, 192}, 0);
  f = finding_of(uneven, "padding");
  EXPECT_EQ(f.action.find("put sequences of like length"), 0U) << f.action;
  EXPECT_EQ(find_finding(padded({40, 44, 46, 48}, 0), "padding"), nullptr);
}

// --- Constants without shapes ------------------------------------------------------------

TEST(WasteFindings, ATableOfNumbersIsSuspectedByNamesAlone) {
  const auto kernels = [](int ops) {
    return explain_steps(3, [&](OpSequence& b) {
      b.add("aten::arange", 10);
      for (int i = 0; i < ops; ++i) b.add(i % 2 == 0 ? "aten::mul" : "aten::cos", 50);
      b.add("aten::conv1d", 500);
    });
  };
  const Finding f = finding_of(kernels(10), "rebuilt-constant");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_HAS(f.title, "most likely computed anew 3 times");
  EXPECT_EQ(find_finding(kernels(4), "rebuilt-constant"), nullptr) << "positions";
}

// --- Many small collectives --------------------------------------------------------------

GpuTrace gradients(int64_t count, int64_t elements) {
  GpuTrace b;
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t start = step * 1000;
    b.annotation("ProfilerStep#" + std::to_string(step), start * kUs, (start + 1000) * kUs);
    b.op("aten::mm", start * kUs, (start + 200) * kUs);
    b.inputs({tensor({256, 256}), tensor({256, 256})});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = start + 200 + i * 800 / count;
      b.annotation("gloo:all_reduce", at * kUs, (at + 700 / count) * kUs, 9);
      b.inputs({tensor({elements})});
    }
  }
  return b;
}

TEST(WasteFindings, ManyCollectivesOfFewBytesAreOne) {
  const Finding f = finding_of(explain(gradients(20, 1000)), "small-collectives");
  EXPECT_EQ(f.title.find("all_reduce runs 20 times in a step with 3.91 KiB each"), 0U) << f.title;
  EXPECT_HAS(f.action, "one buffer");
  EXPECT_EQ(find_finding(explain(gradients(4, 1000)), "small-collectives"), nullptr);
  EXPECT_EQ(find_finding(explain(gradients(20, 1'000'000)), "small-collectives"), nullptr);
}

// Micro-batches of DistributedDataParallel for one step of the optimizer.
Explanation micro_batches(int passes, bool reduces) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int pass = 0; pass < passes; ++pass) {
      b.annotation("DistributedDataParallel.forward", b.at_us * kUs, (b.at_us + 100) * kUs);
      b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
      if (reduces || pass + 1 == passes) {
        b.annotation("gloo:all_reduce", b.at_us * kUs, (b.at_us + 100) * kUs, 9);
        b.inputs({tensor({1'000'000})});
      }
      b.at_us += 100;
    }
    b.annotation("Optimizer.step#SGD.step", b.at_us * kUs, (b.at_us + 50) * kUs);
    b.add("aten::_foreach_add_", 50);
  });
}

TEST(WasteFindings, MicroBatchesAreReducedOnce) {
  const Finding f = finding_of(micro_batches(4, true), "repeated-reduction");
  EXPECT_EQ(f.title.find("gradients are accumulated over 4 micro-batches"), 0U) << f.title;
  EXPECT_HAS(f.action, "no_sync()");
  EXPECT_NEAR(*f.saving_us, 0.75 * *f.cost_us, 1);
  EXPECT_EQ(find_finding(micro_batches(4, false), "repeated-reduction"), nullptr)
      << "no_sync(), or several modules of which one backward pass reduces the gradients";
  EXPECT_EQ(find_finding(micro_batches(1, true), "repeated-reduction"), nullptr);
}

}  // namespace epilogue::trace::waste_findings_test
