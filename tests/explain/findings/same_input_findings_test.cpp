// SPDX-License-Identifier: Apache-2.0
// Findings about what is computed several times from the same input: each with a trace that has it,
// and with some that just do not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "support/test.h"

namespace epilogue::trace::same_input_findings_test {

using testing::find_finding;
using testing::kUs;
using testing::number;
using testing::OpSequence;
using testing::scalar;
using testing::tensor;
using testing::tensor_list;

OpInput indices(std::vector<int64_t> dims) { return tensor(std::move(dims), "long int"); }

// --- Modules that compute the same -----------------------------------------------------

enum class Blocks { share, one_module, move, weight };

// Blocks that each make a basis of distances between atoms, and pass messages along edges.
Explanation blocks(Blocks kind, int count = 4) {
  OpSequence b;
  for (int step = 0; step < 2; ++step) {
    b.add("aten::linear", 50, {tensor({1000, 24}), tensor({24, 24}), tensor({24})});
    for (int block = 0; block < count; ++block) {
      const int64_t start = b.at_us;
      b.add("aten::index_select", 20, {tensor({1000, 3}), number(0), indices({16000})});
      b.add("aten::index_select", 20, {tensor({1000, 3}), number(0), indices({16000})});
      b.add("aten::sub", 20, {tensor({16000, 3}), tensor({16000, 3}), number(1)});
      b.add("aten::linalg_vector_norm", 20,
            {tensor({16000, 3}), number(2), scalar("[1]"), scalar("True")});
      b.add("aten::mul", 100, {tensor({40}), tensor({16000, 1})});
      b.add("aten::sin", 300, {tensor({16000, 40})});
      b.event(Category::python_function,
              "nn.Module: Basis_" + std::to_string(kind == Blocks::one_module ? 0 : block),
              start * kUs, b.at_us * kUs);
      if (kind == Blocks::weight)
        b.add("aten::linear", 30, {tensor({500, 40}), tensor({16000, 40}), tensor({16000})});
      else
        b.add("aten::linear", 30, {tensor({16000, 40}), tensor({24, 40}), tensor({24})});
      b.add("aten::relu", 10, {tensor({1000, 24})});
      if (kind == Blocks::move)
        b.add("aten::add", 10, {tensor({1000, 3}), tensor({1000, 3}), number(1)});
    }
    b.end_step();
  }
  return explain(b);
}

TEST(SameInputFindings, ModulesThatComputeTheSameAreNamed) {
  const Explanation e = blocks(Blocks::share);
  const Finding* f = find_finding(e, "repeated-chain");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("4 modules of a step run the same 6 ops on the same sizes, "
                          "aten::index_select first and aten::sin of [16000, 40] among them"),
            0U)
      << f->title;
  EXPECT_NEAR(*f->saving_us, 2 * 3 * 480, 10);
  EXPECT_NE(f->action.find("once before the layers"), std::string::npos);
  EXPECT_EQ(&e.findings[1], f) << "no fusion has its time";
}

TEST(SameInputFindings, OpsOnOtherTensorsAreNotTheSame) {
  EXPECT_EQ(find_finding(blocks(Blocks::move), "repeated-chain"), nullptr) << "atoms move";
  EXPECT_EQ(find_finding(blocks(Blocks::one_module), "repeated-chain"), nullptr)
      << "a module that is called for several batches";
  EXPECT_EQ(find_finding(blocks(Blocks::weight), "repeated-chain"), nullptr)
      << "each layer makes a weight of its own";
  EXPECT_EQ(find_finding(blocks(Blocks::share, 2), "repeated-chain"), nullptr) << "two alone";
}

// --- Sequences that begin alike --------------------------------------------------------

// `rows` answers behind one passage.
Explanation answers(int64_t passage, int64_t answer, const char* is_causal,
                    const char* repeats = "aten::expand") {
  OpSequence b;
  const int64_t length = passage + answer;
  for (int step = 0; step < 2; ++step) {
    b.add(repeats, 5, {indices({1, passage}), scalar("[8, -1]"), scalar("False")});
    b.add("aten::cat", 5, {tensor_list({indices({8, passage}), indices({8, answer})}), number(1)});
    b.add("aten::embedding", 50, {tensor({2000, 192}), indices({8, length})});
    for (int layer = 0; layer < 2; ++layer) {
      b.add("aten::layer_norm", 10, {tensor({8, length, 192}), scalar("[192]"), tensor({192})});
      b.add("aten::linear", 400, {tensor({8, length, 192}), tensor({576, 192}), tensor({576})});
      const OpInput heads = tensor({8, 4, length, 48});
      b.add("aten::scaled_dot_product_attention", 400,
            {heads, heads, heads, OpInput{}, scalar("0."), scalar(is_causal)});
    }
    b.add("aten::mm", 100, {tensor({256, 256}), tensor({256, 256})});
    b.end_step();
  }
  return explain(b);
}

TEST(SameInputFindings, SequencesThatBeginAlikeShareTheirKeysAndValues) {
  const Explanation e = answers(160, 6, "True");
  const Finding* f = find_finding(e, "shared-prefix");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("8 sequences of 166 words begin with the same 160"), 0U) << f->title;
  EXPECT_NEAR(*f->saving_us, 2 * 1670 * (7.0 * 160) / (8 * 166), 20);
  EXPECT_TRUE(std::ranges::any_of(f->evidence, [](const std::string& line) {
    return line.find("keep their keys and values") != std::string::npos;
  }));
  EXPECT_EQ(&e.findings[1], f);
}

TEST(SameInputFindings, AttentionThatLooksAroundSharesNothing) {
  EXPECT_EQ(find_finding(answers(160, 6, "False"), "shared-prefix"), nullptr);
  EXPECT_EQ(find_finding(answers(6, 160, "True"), "shared-prefix"), nullptr) << "a few words";
  EXPECT_EQ(find_finding(answers(160, 6, "True", "aten::clone"), "shared-prefix"), nullptr)
      << "no row is repeated";
}

// --- A function that runs again and again ----------------------------------------------

enum class Runs { plain, layers, short_ones, of_other_sizes, fields };

Explanation simulations(int times, Runs kind, bool has_backward = false) {
  OpSequence b;
  for (int call = 0; call < 2; ++call) {
    const int64_t start = b.at_us;
    for (int run = 0; run < times; ++run) {
      const int64_t run_start = b.at_us;
      const int64_t rows = kind == Runs::of_other_sizes ? 100 + run : 112;
      for (int i = 0; i < (kind == Runs::short_ones ? 4 : 16); ++i) {
        b.add("aten::roll", 40, {tensor({rows, 112}), number(1), number(0)});
        b.add("aten::add", 20, {tensor({rows, 112}), tensor({rows, 112}), number(1)});
      }
      if (kind == Runs::layers)
        b.add("aten::linear", 40, {tensor({112, 112}), tensor({112, 112}), tensor({112})});
      if (kind != Runs::fields) b.add("aten::mean", 20, {tensor({rows, 112})});
      b.event(Category::python_function, "fit.py(10): simulate", run_start * kUs, b.at_us * kUs);
    }
    b.event(Category::python_function, "fit.py(30): gradient", start * kUs, b.at_us * kUs);
    if (has_backward) b.node("AddBackward0", 50, call, "aten::mul");
  }
  return explain(b);
}

TEST(SameInputFindings, AFunctionThatRunsForEachParameterIsAQuestion) {
  const Explanation e = simulations(25, Runs::plain);
  const Finding* f = find_finding(e, "repeated-runs");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("fit.py(10): simulate runs 25 times in a call of fit.py(30): gradient"),
            0U)
      << f->title;
  EXPECT_EQ(f->confidence, Confidence::low);
  EXPECT_NE(f->action.find("one backward"), std::string::npos);
  EXPECT_EQ(find_finding(simulations(7, Runs::plain), "repeated-runs"), nullptr) << "few";
  EXPECT_EQ(find_finding(simulations(25, Runs::layers), "repeated-runs"), nullptr) << "a model";
  EXPECT_EQ(find_finding(simulations(25, Runs::short_ones), "repeated-runs"), nullptr)
      << "a step of a solver";
  EXPECT_EQ(find_finding(simulations(25, Runs::of_other_sizes), "repeated-runs"), nullptr);
  EXPECT_EQ(find_finding(simulations(25, Runs::fields), "repeated-runs"), nullptr)
      << "each may start from the one before";
  EXPECT_EQ(find_finding(simulations(25, Runs::plain, true), "repeated-runs"), nullptr)
      << "gradients are taken";
}

}  // namespace epilogue::trace::same_input_findings_test
