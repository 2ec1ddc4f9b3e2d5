// SPDX-License-Identifier: Apache-2.0
// Plans chosen by the model, by name and by measuring; what is kept of it.
#include "base/file.h"
#include "epilogue/compile_step.h"
#include "plan/candidates.h"
#include "plan/choice_store.h"
#include "plan/plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::tune_test {

namespace fs = std::filesystem;

// A cache folder of its own for each test.
class Tuned : public ::testing::Test {
 protected:
  Tuned() {
    std::string name = (fs::temp_directory_path() / "epilogue_tune_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("EPILOGUE_CACHE_DIR", folder_.c_str(), 1);
    manual_seed(7);
  }
  ~Tuned() override {
    setenv("EPILOGUE_CACHE_DIR", "off", 1);
    fs::remove_all(folder_);
  }
  std::string plans_file() const { return folder_ + "/plans.json"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

bool bits_agree(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

int64_t timed(const std::vector<PlanCandidate>& list) {
  return std::ranges::count_if(list,
                               [](const PlanCandidate& c) { return c.median_us.has_value(); });
}

TEST_F(Tuned, TheModelsPlanComesFirstAndHasAName) {
  const nn::GatedMLP mlp(24, 40);
  Compiled compiled = compile(mlp);
  const NoGrad no_grad;
  EXPECT_EQ(compiled.choice(), "");
  EXPECT_TRUE(compiled.candidates().empty());
  compiled(randn({5, 24}));
  EXPECT_EQ(compiled.choice(), "row-chains");
  const std::vector<PlanCandidate> list = compiled.candidates();
  ASSERT_GE(list.size(), 5U);
  EXPECT_TRUE(list[0].is_chosen);
  EXPECT_EQ(timed(list), 0);
  EXPECT_HAS(compiled.explain(), "plan: row-chains, by the model");
  EXPECT_FALSE(fs::exists(plans_file())) << "nothing was measured";
}

// Whatever plan a call gets: the function's result.
TEST_F(Tuned, EveryCandidateComputesTheFunction) {
  const NoGrad no_grad;
  ASSERT_GT(plan::candidates(false).size(), 1U);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    nn::GatedMLP mlp(33, 70);
    mlp.to(dtype);
    for (const int64_t rows : {1, 5, 31, 130}) {
      const Tensor x = randn({rows, 33}, dtype);
      const Tensor expected = mlp(x);
      for (const plan::Candidate& c : plan::candidates(false)) {
        Compiled compiled = compile(mlp, {.choice = c.name});
        const Tensor y = compiled(x);
        EXPECT_EQ(compiled.choice(), c.name);
        EXPECT_LT(relative_l2(y, to(expected, DType::f64).to_vector()),
                  dtype == DType::f32 ? 2e-6 : 1e-2)
            << c.name << ", " << rows << " rows, " << dtype_name(dtype);
        EXPECT_TRUE(bits_agree(y, compiled(x))) << c.name;
      }
    }
  }
}

TEST_F(Tuned, AnUnknownNameIsAnError) {
  const nn::GatedMLP mlp(8, 8);
  Compiled compiled = compile(mlp, {.choice = "fastest"});
  const NoGrad no_grad;
  try {
    compiled(randn({2, 8}));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("[compile] expected a choice among row-chains, "), 0U)
        << e.what();
    EXPECT_HAS(std::string(e.what()), "got 'fastest'") << e.what();
  }
}

TEST_F(Tuned, MeasuringTimesTheCandidatesAndKeepsTheChoice) {
  const NoGrad no_grad;
  const nn::GatedMLP mlp(48, 96);
  const Tensor x = randn({40, 48});
  Compiled compiled = compile(mlp, {.tune = Tune::measure});
  const Tensor y = compiled(x);
  const std::vector<PlanCandidate> list = compiled.candidates();
  EXPECT_GE(timed(list), 3);
  EXPECT_EQ(std::ranges::count_if(list, &PlanCandidate::is_chosen), 1);
  EXPECT_LT(relative_l2(y, to(mlp(x), DType::f64).to_vector()), 2e-6);
  EXPECT_HAS(compiled.explain(), "the fastest when measured");
  ASSERT_TRUE(fs::exists(plans_file()));

  // Another process takes what is there: here a choice that no measurement would make twice.
  std::string text = read_file(plans_file()).value();
  const std::string chosen = "\"choice\": \"" + compiled.choice() + "\"";
  const size_t at = text.find(chosen);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, chosen.size(), "\"choice\": \"one-thread\"");
  write_file(plans_file(), text).value();
  Compiled again = compile(mlp, {.tune = Tune::measure});
  again(x);
  EXPECT_EQ(again.choice(), "one-thread");
  // Other sizes are another call.
  again(randn({41, 48}));
  EXPECT_NE(read_file(plans_file()).value(), text);
}

TEST_F(Tuned, AFileThatCannotBeUsedIsMeasuredAnew) {
  const NoGrad no_grad;
  const nn::GatedMLP mlp(16, 24);
  const Tensor x = randn({6, 16});
  for (const char* text : {"no JSON", "{\"schema_version\": 1, \"plans\": []}", "{}"}) {
    write_file(plans_file(), text).value();
    Compiled compiled = compile(mlp, {.tune = Tune::measure});
    compiled(x);
    EXPECT_GE(timed(compiled.candidates()), 2) << text;
    EXPECT_HAS(read_file(plans_file()).value(), "median_us") << text;
  }
  // A name that this version does not know.
  std::string text = read_file(plans_file()).value();
  const size_t at = text.find("\"choice\": \"");
  text.insert(at + 11, "old-");
  write_file(plans_file(), text).value();
  Compiled compiled = compile(mlp, {.tune = Tune::measure});
  compiled(x);
  EXPECT_LACKS(compiled.choice(), "old-");
}

TEST_F(Tuned, WhatDrawsIsNotMeasured) {
  const NoGrad no_grad;
  const nn::GatedMLP mlp(16, 24);
  Compiled compiled(
      [&mlp](std::span<const Tensor> in) { return std::vector{dropout(mlp(in[0]), 0.5)}; },
      {.tune = Tune::measure});
  const Tensor x = randn({6, 16});
  manual_seed(3);
  const Tensor y = compiled(x);
  EXPECT_EQ(timed(compiled.candidates()), 0);
  manual_seed(3);
  EXPECT_LT(relative_l2(y, to(dropout(mlp(x), 0.5), DType::f64).to_vector()), 2e-6);
}

TEST_F(Tuned, StepsByNameAreTheSameStep) {
  const nn::GatedMLP mlp(24, 40);
  const Tensor x = randn({30, 24});
  const Tensor target = randn({30, 24});
  const auto loss = [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); };
  const double expected = loss(mlp(x), target).item();
  ASSERT_GT(plan::candidates(true).size(), 1U);
  for (const plan::Candidate& c : plan::candidates(true)) {
    CompiledStep step = compile_step(mlp, loss, {.choice = c.name});
    EXPECT_NEAR(step(x, target).item(), expected, 1e-6 * expected) << c.name;
    EXPECT_EQ(step.choice(), c.name);
  }
}

// Measuring runs the step, but nothing of it stays: no gradients, weights as they were.
TEST_F(Tuned, MeasuringAStepChangesNothing) {
  const nn::GatedMLP mlp(24, 40);
  const Tensor x = randn({30, 24});
  const Tensor target = randn({30, 24});
  std::vector<Tensor> before;
  for (const Tensor& p : mlp.parameters()) before.push_back(clone(p.detach()));
  CompiledStep step =
      compile_step(mlp, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); },
                   {.tune = Tune::measure});
  const Tensor in[] = {x, target};
  step.prepare(in);
  EXPECT_GE(timed(step.candidates()), 2);
  const std::vector<Tensor> after = mlp.parameters();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(bits_agree(before[i], after[i]));
    EXPECT_FALSE(after[i].grad().defined());
  }
}

TEST_F(Tuned, TheStoreTellsMachinesAndGraphsApart) {
  EXPECT_EQ(plan::choice_key("a"), plan::choice_key("a"));
  EXPECT_NE(plan::choice_key("a"), plan::choice_key("b"));
  EXPECT_FALSE(plan::find_choice(plan::choice_key("a")).has_value());
  plan::keep_choice(plan::choice_key("a"), {"one-thread", {{"one-thread", 2.5}}});
  const auto found = plan::find_choice(plan::choice_key("a"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "one-thread");
  ASSERT_EQ(found->median_us.size(), 1U);
  EXPECT_EQ(found->median_us[0].second, 2.5);
  EXPECT_FALSE(plan::find_choice(plan::choice_key("b")).has_value());
  setenv("EPILOGUE_CACHE_DIR", "off", 1);
  plan::keep_choice(plan::choice_key("b"), {"one-thread", {}});
  EXPECT_FALSE(plan::find_choice(plan::choice_key("b")).has_value());
}

}  // namespace epilogue::testing::tune_test
