// SPDX-License-Identifier: Apache-2.0
// Compiled functions and steps of ops by index, along lines and of shapes give eager's results.
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "plan_testing.h"
#include "step_testing.h"

namespace epilogue::testing::new_ops_test {

using Function = std::vector<Tensor> (*)(std::span<const Tensor>);

void expect_eagers(Function f, std::span<const Tensor> in, const std::string& what) {
  const NoGrad no_grad;
  Compiled compiled = compile(f);
  const std::vector<Tensor> expected = f(in);
  for (int run = 0; run < 2; ++run) {
    const std::vector<Tensor> got = compiled(in);
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      expect_same_kind(got[i], expected[i], what);
      EXPECT_LE(relative_l2(got[i], expected[i].to_vector()), 1e-6) << what;
    }
  }
}

TEST(CompiledNewOps, GiveEagersResults) {
  const Tensor in[] = {randn({12, 20}), randint(0, 12, {7})};
  const std::pair<const char*, Function> functions[] = {
      {"by index",
       [](std::span<const Tensor> x) -> std::vector<Tensor> {
         return {relu(embedding(x[0], x[1])), index_select(x[0] * 2, 1, x[1]),
                 index_add(zeros({12, 20}), 1, x[1], slice(x[0], 1, 0, 7))};
       }},
      {"along lines",
       [](std::span<const Tensor> x) -> std::vector<Tensor> {
         const Extremum largest = max(x[0], 1, true);
         return {exp(x[0] - largest.values), largest.indices, var(x[0], 0), stddev(x[0] + 1),
                 cumsum(x[0], -1)};
       }},
      {"of shapes",
       [](std::span<const Tensor> x) -> std::vector<Tensor> {
         const std::vector<Tensor> halves = chunk(x[0], 2, 1);
         return {stack({halves[0] * 2, silu(halves[1])}), permute(x[0] + 1, {1, 0}),
                 squeeze(unsqueeze(x[0], 1) * 3, 1)};
       }},
      {"of masks",
       [](std::span<const Tensor> x) -> std::vector<Tensor> {
         return {softmax(masked_fill(x[0], gt(x[0], 1), -1e9), -1), tril(x[0] * 2, 1)};
       }},
  };
  for (const auto& [what, f] : functions) expect_eagers(f, in, what);
}

TEST(CompiledNewOps, AStepFromTokensToALossGivesEagersGradients) {
  Tensor table = randn({50, 16});
  table.set_requires_grad(true);
  nn::Linear head(16, 3);
  const Tensor tokens = randint(0, 50, {64});
  const Tensor target = uniform({64, 3}, 0, 1);
  const auto loss_of = [&](const Tensor& x, const Tensor& y) {
    return binary_cross_entropy_with_logits(head(embedding(table, x, 7)), y) +
           huber_loss(max(head.weight, 0).values, zeros({16}));
  };
  const auto gradients = [&] {
    std::vector<Tensor> all = {table.grad(), head.weight.grad(), head.bias.grad()};
    table.set_grad({});
    head.zero_grad();
    return all;
  };
  loss_of(tokens, target).backward();
  const std::vector<Tensor> eager = gradients();
  CompiledStep step =
      compile_step([&](std::span<const Tensor> in) { return loss_of(in[0], in[1]); });
  step(tokens, target);
  const std::vector<Tensor> compiled = gradients();
  for (size_t i = 0; i < eager.size(); ++i) {
    ASSERT_TRUE(compiled[i].defined()) << i;
    EXPECT_LE(relative_l2(compiled[i], eager[i].to_vector()), 2e-6) << i;
  }
}

}  // namespace epilogue::testing::new_ops_test
