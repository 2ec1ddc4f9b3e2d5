// SPDX-License-Identifier: Apache-2.0
// A trainer's figures of examples that it does not learn from.
#include "epilogue/ops.h"
#include "epilogue/train.h"
#include "support/test.h"

namespace epilogue::train::evaluate_test {

// y = x: what it predicts is known.
class Identity final : public nn::Module {
 public:
  Identity() : Module("Identity") { register_parameter("unused", unused_); }
  Tensor forward(const Tensor& x) const override { return x; }

 private:
  Tensor unused_ = zeros({1});
};

TEST(Evaluate, GivesLossAndR2) {
  Identity network;
  Trainer trainer(network, {.loss = Loss::mse});
  const Tensor x = from_values({1, 2, 3, 4}, {4, 1});
  const Tensor y = from_values({1, 2, 3, 6}, {4, 1});  // mean 3, variance 3.5
  for (const int64_t rows : {1, 3, 4, 100}) {
    const Evaluation e = trainer.evaluate({x, y}, {}, rows);
    EXPECT_NEAR(e.loss, 1, 1e-6);
    EXPECT_NEAR(*e.r2, 1 - 1 / 3.5, 1e-6);
    EXPECT_FALSE(e.accuracy.has_value());
  }
  EXPECT_TRUE(std::isnan(*trainer.evaluate({x, zeros({4, 1})}).r2));
}

TEST(Evaluate, GivesAccuracyAndLeavesTheMode) {
  Identity network;
  Trainer trainer(network, {});
  const Examples examples{from_values({3, 0, 0, 1, 2, 0}, {3, 2}),
                          from_values({0, 1, 1}, {3}, DType::i64)};
  const Evaluation e = trainer.evaluate(examples);
  EXPECT_NEAR(*e.accuracy, 2.0 / 3, 1e-12);
  EXPECT_FALSE(e.r2.has_value());
  EXPECT_TRUE(network.is_training());
  network.eval();
  trainer.evaluate(examples);
  EXPECT_FALSE(network.is_training());
  EXPECT_TRUE(std::isnan(trainer.evaluate(examples.rows(0, 0)).loss));
}

}  // namespace epilogue::train::evaluate_test
