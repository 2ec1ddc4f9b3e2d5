// SPDX-License-Identifier: Apache-2.0
// Findings about ops that have a cheaper form, and about passes that do more than training needs:
// each with a trace that has it, and with one that just does not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::form_findings_test {

using namespace testing;

// What a good run spends its time on.
void add_work(OpSequence& b, int64_t us) {
  b.add("aten::mm", us, {tensor({256, 256}), tensor({256, 256})});
}

// --- All pairs ---------------------------------------------------------------------------

Explanation pairs(const char* op, int64_t rows, const char* reduction) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add(op, 300, {tensor({rows, 1, 96}), tensor({1, rows, 96})});
    if (*reduction != 0) b.add(reduction, 100, {tensor({rows, rows, 96}), scalar("[2]")});
    add_work(b, 500);
  });
}

TEST(FormFindings, PairsThatAreWrittenOutAndReducedAreOneProduct) {
  Finding f = finding_of(pairs("aten::cosine_similarity", 256, ""), "all-pairs");
  EXPECT_HAS(f.title, "all pairs of [256, 1, 96] and [1, 256, 96]");
  EXPECT_HAS(f.action, "F.normalize");
  f = finding_of(pairs("aten::sub", 256, "aten::sum"), "all-pairs");
  EXPECT_HAS(f.action, "cdist");
  EXPECT_NEAR(*f.cost_us, 800, 1);
  EXPECT_EQ(find_finding(pairs("aten::sub", 256, ""), "all-pairs"), nullptr) << "they are read";
  EXPECT_EQ(find_finding(pairs("aten::sub", 7, "aten::sum"), "all-pairs"), nullptr) << "few";
  // Rows of all pairs by a number of their own are no pairs of both.
  const auto divided = [](std::vector<int64_t> by) {
    return explain_steps(2, [&](OpSequence& b) {
      OpInput vectors = tensor({4, 100, 41, 64});
      vectors.strides = {6400, 64, 0, 1};
      b.add("aten::div", 300, {vectors, tensor(by)});
      b.add("aten::sum", 100, {tensor({4, 100, 41, 64}), scalar("[3]")});
      add_work(b, 500);
    });
  };
  EXPECT_EQ(find_finding(divided({4, 100, 41, 1}), "all-pairs"), nullptr);
  EXPECT_NE(find_finding(divided({4, 1, 41, 64}), "all-pairs"), nullptr);
}

// --- Windows -----------------------------------------------------------------------------

Explanation windows(int64_t step, const char* reader) {
  const int64_t count = (1536 - 192) / step + 1;
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::unfold", 10, {tensor({24, 1536}), number(1), number(192), number(step)});
    b.add(reader, 600, {tensor({24, count, 192}), scalar("[2]")});
    add_work(b, 500);
  });
}

TEST(FormFindings, WindowsThatOverlapAreReducedInOnePass) {
  const Finding f = finding_of(windows(1, "aten::std"), "overlapping-windows");
  EXPECT_HAS(f.title, "reads each element 192 times");
  EXPECT_NEAR(*f.saving_us, 1200 * (1 - 4 / 192.0), 2);
  EXPECT_HAS(f.action, "cumsum");
  EXPECT_EQ(find_finding(windows(192, "aten::std"), "overlapping-windows"), nullptr) << "disjoint";
  EXPECT_EQ(find_finding(windows(1, "aten::mul"), "overlapping-windows"), nullptr);
}

// --- Matrices that are mostly zeros ------------------------------------------------------

TEST(FormFindings, OneHotRowsTimesATableAreALookup) {
  const auto lookup = [](const char* next) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::one_hot", 100, {tensor({6, 64}, "long int"), number(6000)});
      b.add("aten::to", 200, {tensor({6, 64, 6000}, "long int"), number(6)});
      b.add(next, 200, {tensor({6, 64, 6000}), tensor({6000, 96})});
      add_work(b, 500);
    });
  };
  const Finding f = finding_of(lookup("aten::matmul"), "built-matrix");
  EXPECT_EQ(f.title.find("aten::one_hot makes rows of 6000"), 0U) << f.title;
  EXPECT_NEAR(*f.cost_us, 1000, 1);
  EXPECT_HAS(f.action, "functional.embedding");
  EXPECT_EQ(find_finding(lookup("aten::binary_cross_entropy"), "built-matrix"), nullptr)
      << "labels of a loss";
}

TEST(FormFindings, AKroneckerProductIsMultipliedByItsFactors) {
  const auto product = [](const char* next) {
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::kron", 500);
      b.add("aten::flatten", 1);
      b.add(next, 100);
      b.add("aten::mm", 500);
    });
  };
  EXPECT_HAS(finding_of(product("aten::matmul"), "built-matrix").action, "A @ U @ B.T");
  OpSequence b;
  b.add("aten::kron", 500);
  for (int i = 0; i < 8; ++i) b.add("aten::add", 10);
  b.add("aten::mm", 500);
  EXPECT_EQ(find_finding(explain(b), "built-matrix"), nullptr) << "the product is another one's";
}

// --- Weights -----------------------------------------------------------------------------

Explanation adapter(int64_t rank, int64_t rows) {
  return explain_steps(2, [&](OpSequence& b) {
    b.add("aten::matmul", 200, {tensor({1536, rank}), tensor({rank, 512})});
    b.add("aten::add", 100, {tensor({1536, 512}), tensor({1536, 512}), number(1)});
    b.add("aten::linear", 500, {tensor({rows, 512}), tensor({1536, 512})});
  });
}

TEST(FormFindings, AWeightOfFactorsIsAppliedAsFactors) {
  const Finding f = finding_of(adapter(8, 128), "made-weight");
  EXPECT_HAS(f.title, "rank 8");
  EXPECT_NEAR(*f.cost_us, 600, 1);
  EXPECT_HAS(f.action, "(x @ down.T) @ up.T");
  EXPECT_EQ(find_finding(adapter(8, 4096), "made-weight"), nullptr) << "many rows pay for the sum";
  EXPECT_EQ(find_finding(adapter(256, 128), "made-weight"), nullptr) << "no low rank";
}

TEST(FormFindings, APenaltyOfParametersBelongsToTheOptimizer) {
  const auto penalty = [](int tensors) {
    int64_t sequence = 1;
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::linear", 500, {}, sequence++);
      for (int i = 0; i < tensors; ++i) {
        b.add("aten::pow", 40, {}, sequence++);
        b.add("aten::sum", 10, {}, sequence++);
        b.add("aten::add", 2, {}, sequence++);
      }
      for (int64_t n = sequence - 1; n > sequence - 1 - 3 * tensors; --n)
        b.node("PowBackward0", 50, n, "aten::mul");
    });
  };
  const Finding f = finding_of(penalty(6), "hand-penalty");
  EXPECT_EQ(f.title.find("a penalty of 6 tensors"), 0U) << f.title;
  EXPECT_HAS(f.action, "weight_decay");
  EXPECT_EQ(find_finding(penalty(2), "hand-penalty"), nullptr) << "a loss of two parts";
}

// --- Backward passes ---------------------------------------------------------------------

TEST(FormFindings, WritesIntoSlicesCopyTheWholeGradient) {
  const Explanation e = explain_steps(2, [&](OpSequence& b, int step) {
    add_work(b, 500);
    for (int i = 20; i-- > 0;)
      b.node("torch::autograd::CopySlices", 50, 100 * step + i + 1, "aten::copy_");
    b.node("AddmmBackward0", 20, 100 * step, "aten::mm");
  });
  const Finding f = finding_of(e, "cut-gradients");
  EXPECT_HAS(f.title, "copies a tensor of full size");
  EXPECT_HAS(f.action, "torch.stack");
}

// Samples one by one, or as one batch.
Explanation passes(int per_step) {
  int64_t sequence = 1;
  return explain_steps(3, [&](OpSequence& b) {
    for (int pass = 0; pass < per_step; ++pass) {
      for (int i = 0; i < 4; ++i) b.add("aten::linear", 4, {}, sequence + i);
      for (int i = 4; i-- > 0;) b.node("AddmmBackward0", 5, sequence + i, "aten::mm");
      sequence += 4;
    }
  });
}

TEST(FormFindings, ManyPassesOfTheSameSmallNodesAreOneBatch) {
  const Finding f = finding_of(passes(16), "small-passes");
  EXPECT_EQ(f.title.find("a step runs 16 backward passes of the same 4 nodes"), 0U) << f.title;
  EXPECT_HAS(f.action, "one batch");
  EXPECT_EQ(find_finding(passes(2), "small-passes"), nullptr);
}

TEST(FormFindings, AGraphWithoutAPassIsAQuestion) {
  const auto inference = [](bool keeps, int64_t us) {
    OpSequence b;
    for (int64_t i = 0; i < 40; ++i) b.add("aten::mul", us, {}, keeps ? i : -1);
    return explain(b);
  };
  const Finding f = finding_of(inference(true, 20), "unread-graph");
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_HAS(f.action, "inference_mode");
  EXPECT_EQ(find_finding(inference(false, 20), "unread-graph"), nullptr);
  EXPECT_EQ(find_finding(inference(true, 2000), "unread-graph"), nullptr) << "it costs little";
}

Explanation logged(const char* op, const char* around) {
  return explain_steps(3, [&](OpSequence& b, int step) {
    b.add("aten::linear", 100, {}, 10 * step);
    b.node("AddmmBackward0", 100, 10 * step, "aten::mm");
    b.annotation("Optimizer.step#SGD.step", b.at_us * kUs, (b.at_us + 50) * kUs);
    b.add("aten::_foreach_add_", 50);
    if (*around != 0) b.annotation(around, b.at_us * kUs, (b.at_us + 100) * kUs);
    b.add(op, 100);
  });
}

TEST(FormFindings, WorkBesideTrainingIsAQuestion) {
  const Finding f = finding_of(logged("aten::histc", ""), "beside-training");
  EXPECT_HAS(f.title, "most of it in aten::histc");
  EXPECT_HAS(f.action, "every N steps");
  EXPECT_EQ(find_finding(logged("aten::mul", "Optimizer.step#Adam.step"), "beside-training"),
            nullptr)
      << "a second optimizer";
  EXPECT_EQ(find_finding(logged("aten::linalg_vector_norm", ""), "beside-training"), nullptr)
      << "norms of gradients";
  EXPECT_EQ(find_finding(logged("Torch-Compiled Region: 2/0", ""), "beside-training"), nullptr)
      << "a compiled optimizer";
}

// --- Modules -----------------------------------------------------------------------------

Explanation generation(bool encodes_first) {
  return explain_steps(2, [&](OpSequence& b) {
    for (int i = 0; i < 4; ++i) {
      for (int part = 0; part < 2; ++part) {
        const bool is_encoder = (part == 0) == encodes_first || i > 0;
        const std::string name = part == 0 ? "nn.Module: Encoder_0" : "nn.Module: Decoder_0";
        if (!is_encoder && !encodes_first && part == 0) continue;
        b.event(Category::python_function, name, b.at_us * kUs, (b.at_us + 100) * kUs);
        b.add(part == 0 ? "aten::conv1d" : "aten::linear", 100);
      }
    }
  });
}

TEST(FormFindings, TheFirstModuleOfALoopMayRunOnce) {
  const Finding f = finding_of(generation(true), "repeated-module");
  EXPECT_EQ(f.title.find("a loop runs Encoder_0"), 0U) << f.title;
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_EQ(find_finding(generation(false), "repeated-module"), nullptr) << "the decoder leads";
}

// --- Orders ------------------------------------------------------------------------------

TEST(FormFindings, TheMeanOfRowsGoesBeforeTheirLayer) {
  const auto pooled = [](const char* over) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.add("aten::linear", 300, {tensor({16, 64, 128}), tensor({256, 128}), tensor({256})});
      b.add("aten::mean", 50, {tensor({16, 64, 256}), scalar(over)});
      add_work(b, 500);
    });
  };
  const Finding f = finding_of(pooled("[1]"), "dearer-order");
  EXPECT_HAS(f.action, "take the mean of the rows first");
  EXPECT_NEAR(*f.saving_us, 600 * (1 - 1 / 64.0), 2);
  EXPECT_EQ(find_finding(pooled("[2]"), "dearer-order"), nullptr) << "over what it computes";
}

TEST(FormFindings, ANormOfInferenceBelongsToTheWeights) {
  const auto normed = [](const char* training) {
    return explain_rounds(4, [&](OpSequence& b) {
      b.add("aten::conv2d", 300, {tensor({8, 64, 28, 28}), tensor({64, 64, 3, 3})});
      b.add("aten::batch_norm", 60,
            {tensor({8, 64, 28, 28}), tensor({64}), tensor({64}), tensor({64}), tensor({64}),
             scalar(training)});
      b.add("aten::relu", 20, {tensor({8, 64, 28, 28})});
    });
  };
  EXPECT_HAS(finding_of(normed("False"), "dearer-order").action, "fuse_conv_bn_eval");
  EXPECT_EQ(find_finding(normed("True"), "dearer-order"), nullptr);
}

TEST(FormFindings, ProductsOfCompiledCodeAreNoChain) {
  const auto chain = [](bool compiled) {
    return explain_rounds(2, [&](OpSequence& b) {
      if (compiled) b.op("Torch-Compiled Region: 0/0", b.at_us * kUs, (b.at_us + 600) * kUs);
      b.add("aten::mm", 300, {tensor({512, 32}), tensor({32, 512})});
      b.add("aten::mm", 300, {tensor({512, 512}), tensor({512, 32})});
      add_work(b, 300);
    });
  };
  EXPECT_NE(find_finding(chain(false), "dearer-order"), nullptr);
  EXPECT_EQ(find_finding(chain(true), "dearer-order"), nullptr)
      << "a kernel that is no op may run between them";
}

TEST(FormFindings, RowsThatWereRepeatedAreProjectedBefore) {
  const auto projected = [](int64_t from) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.add("aten::repeat_interleave", 20, {tensor({from, 128})});
      b.add("aten::linear", 500, {tensor({6400, 128}), tensor({256, 128}), tensor({256})});
      add_work(b, 300);
    });
  };
  const Explanation e = projected(64);
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "6400 rows were repeated from 64");
  EXPECT_HAS(f->action, "project before the rows are repeated");
  const Explanation once = projected(6400);
  f = find_finding(once, "long-op");
  EXPECT_TRUE(f == nullptr || f->title.find("repeated") == std::string::npos);
}

// --- Results of which little is read -----------------------------------------------------

TEST(FormFindings, AConvolutionThatIsDecimatedHasAStride) {
  const auto decimated = [](int64_t step) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.add("aten::conv1d", 500,
            {tensor({6, 1, 4800}), tensor({1, 1, 129}), OpInput{}, scalar("[1]"), scalar("[64]"),
             scalar("[1]"), number(1)});
      b.add("aten::slice", 5,
            {tensor({6, 1, 4800}), number(2), number(0), number(4800), number(step)});
      add_work(b, 300);
    });
  };
  const Finding f = finding_of(decimated(8), "cut-result");
  EXPECT_HAS(f.action, "stride=8");
  EXPECT_NEAR(*f.saving_us, 1000 * 7 / 8.0, 2);
  EXPECT_EQ(find_finding(decimated(1), "cut-result"), nullptr);
}

TEST(FormFindings, WhatComesBeforeRowsThatAreNotReadIsCounted) {
  const Explanation e = explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::mul", 300, {tensor({300, 300, 1, 3}), tensor({3, 3})});
    b.add("aten::sum", 200, {tensor({300, 300, 3, 3}), scalar("[-1]")});
    b.add("aten::div", 100, {tensor({300, 300, 3}), tensor({300, 300, 1})});
    b.add("aten::index", 5, {tensor({300, 300, 3}), OpInput{}});
    b.add("aten::unsqueeze", 1, {tensor({320, 3}), number(1)});
    add_work(b, 300);
  });
  const Finding f = finding_of(e, "cut-result");
  EXPECT_NEAR(*f.saving_us, 1200 * (1 - 320 / 90000.0), 3) << "all three ops";
}

// --- Ops far from their limit ------------------------------------------------------------

TEST(FormFindings, WholeNumbersAreMultipliedWithoutALibrary) {
  const auto product = [](const char* type) {
    OpSequence b;
    for (int i = 0; i < 2; ++i)
      b.add("aten::mm", 500, {tensor({256, 256}, type), tensor({256, 256}, type)});
    return explain(b);
  };
  const Explanation e = product("long int");
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "there is no BLAS");
  const Explanation real = product("float");
  f = find_finding(real, "long-op");
  EXPECT_TRUE(f == nullptr || f->title.find("BLAS") == std::string::npos);
}

TEST(FormFindings, ATransformOfPrimeLengthIsPadded) {
  const auto transform = [](int64_t length) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.add("aten::_fft_r2c", 500,
            {tensor({12, length}), scalar("[1]"), number(0), scalar("True")});
      add_work(b, 300);
    });
  };
  const Explanation e = transform(19991);
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "prime factor 19991");
  EXPECT_HAS(f->action, "the next one is 20000");
  const Explanation fast = transform(20480);
  f = find_finding(fast, "long-op");
  EXPECT_TRUE(f == nullptr || f->title.find("prime") == std::string::npos);
}

TEST(FormFindings, VectorsOfNoSingularValueAreLeftOut) {
  OpSequence b;
  for (int i = 0; i < 2; ++i)
    b.add("aten::_linalg_svd", 500, {tensor({1600, 24}), scalar("True"), scalar("True")});
  const Finding f = finding_of(explain(b), "long-op");
  EXPECT_HAS(f.title, "1600 x 1600 vectors");
  EXPECT_HAS(f.action, "full_matrices=False");
}

TEST(FormFindings, AnOpThatProgramsAreRarelyAboutIsNamedWithWhatItCalls) {
  const auto looked_up = [](const char* op) {
    return explain_rounds(2, [&](OpSequence& b) {
      b.op(op, b.at_us * kUs, (b.at_us + 301) * kUs);
      for (int row = 0; row < 3; ++row) {
        b.add("aten::select", 50);
        b.add("aten::norm", 50);
      }
      b.at_us += 1;
      b.add("aten::mm", 500);
    });
  };
  const Finding f = finding_of(looked_up("aten::embedding_renorm_"), "composite-op");
  EXPECT_EQ(f.title.find("aten::embedding_renorm_ and what it calls"), 0U) << f.title;
  EXPECT_HAS(f.action, "max_norm");
  EXPECT_EQ(find_finding(looked_up("aten::softmax"), "composite-op"), nullptr);
}

TEST(FormFindings, TheProgramsOwnWorkIsNamedIfNothingElseIs) {
  const auto work = [](int64_t other_us) {
    return explain_rounds(3, [&](OpSequence& b) {
      b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
      b.add("aten::relu", other_us, {tensor({256, 256})});
    });
  };
  const Finding f = finding_of(work(50), "main-work");
  EXPECT_EQ(f.severity, Severity::info);
  EXPECT_FALSE(f.saving_us.has_value());
  EXPECT_EQ(find_finding(work(700), "main-work"), nullptr) << "below half";
}

// --- Buffers of DistributedDataParallel --------------------------------------------------

TEST(FormFindings, BuffersThatAreSentEachTimeAreNamed) {
  const auto run = [](int64_t sent_us) {
    return explain_steps(3, [&](OpSequence& b) {
      b.annotation("DistributedDataParallel.forward", b.at_us * kUs, (b.at_us + 300) * kUs);
      b.annotation("gloo:broadcast", b.at_us * kUs, (b.at_us + sent_us) * kUs, 9);
      b.inputs({tensor({6'000'000})});
      b.at_us += 100;
      add_work(b, 200);
      b.annotation("gloo:all_reduce", b.at_us * kUs, (b.at_us + 20) * kUs, 9);
      b.inputs({tensor({60'000})});
      add_work(b, 100);
    });
  };
  EXPECT_HAS(finding_of(run(100), "sent-buffers").action, "broadcast_buffers=False");
  EXPECT_EQ(find_finding(run(5), "sent-buffers"), nullptr);
}

// --- Layouts, packing --------------------------------------------------------------------

TEST(FormFindings, ASoftmaxOfATransposedViewCopiesIt) {
  const auto scores = [](bool transposed) {
    return explain_rounds(2, [&](OpSequence& b) {
      OpInput of = tensor({16, 5000, 50});
      if (transposed) of.strides = {250000, 1, 5000};
      b.add("aten::_log_softmax", 500, {of, number(1), scalar("False")});
      add_work(b, 300);
    });
  };
  const Explanation e = scores(true);
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_HAS(f->title, "a transposed view");
  EXPECT_HAS(f->action, "flatten scores");
  const Explanation plain = scores(false);
  f = find_finding(plain, "long-op");
  EXPECT_TRUE(f == nullptr || f->title.find("transposed") == std::string::npos);
}

TEST(FormFindings, LayersOfRepeatedRowsAreCountedAsWell) {
  const Explanation e = explain_rounds(2, [&](OpSequence& b) {
    b.add("aten::repeat_interleave", 20, {tensor({32, 300}), number(80)});
    b.add("aten::linear", 200, {tensor({2560, 300}), tensor({512, 300}), tensor({512})});
    b.add("aten::relu", 20, {tensor({2560, 512})});
    b.add("aten::linear", 200, {tensor({2560, 512}), tensor({256, 512}), tensor({256})});
    b.add("aten::relu", 20, {tensor({2560, 256})});
    b.add("aten::linear", 200, {tensor({2560, 256}), tensor({64, 256}), tensor({64})});
  });
  EXPECT_HAS(finding_of(e, "long-op").title, "2560 rows were repeated from 32");
}

TEST(FormFindings, APackedBatchOfOneLengthNeedsNoPacking) {
  const auto packed = [](int64_t rows) {
    int64_t number_of_node = 1;
    return explain_steps(2, [&](OpSequence& b) {
      b.add("aten::_pack_padded_sequence", 10,
            {tensor({32, 120, 48}), tensor({32}, "long int"), scalar("True")});
      b.add("aten::gru", 200, {tensor({rows, 48}), tensor({120}, "long int")});
      for (int i = 40; i-- > 0;) b.node("SliceBackward0", 50, number_of_node + i, "aten::fill_");
      number_of_node += 40;
    });
  };
  Finding f = finding_of(packed(32 * 120), "cut-gradients");
  EXPECT_HAS(f.action, "leave pack_padded_sequence out");
  f = finding_of(packed(3000), "cut-gradients");
  EXPECT_HAS(f.action, "like length in one batch");
}

TEST(FormFindings, AModelThatRunsAgainForMetricsIsNamed) {
  const Explanation e = explain_steps(3, [&](OpSequence& b, int step) {
    b.add("aten::linear", 100, {tensor({64, 32}), tensor({32, 32})}, 10 * step);
    b.node("AddmmBackward0", 100, 10 * step, "aten::mm");
    b.annotation("Optimizer.step#SGD.step", b.at_us * kUs, (b.at_us + 50) * kUs);
    b.add("aten::_foreach_add_", 50);
    b.add("aten::linear", 100, {tensor({64, 32}), tensor({32, 32})});
  });
  const Finding f = finding_of(e, "beside-training");
  EXPECT_EQ(f.title.find("the model runs again after the backward pass"), 0U) << f.title;
}

}  // namespace epilogue::trace::form_findings_test
