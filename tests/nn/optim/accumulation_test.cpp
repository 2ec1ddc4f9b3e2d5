// SPDX-License-Identifier: Apache-2.0
// N micro-batches equal one batch, and need the memory of one micro-batch.
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::optim::accumulation_test {

TEST(MicroBatches, CoverEveryRowOnce) {
  for (const int64_t rows : {0, 1, 7, 8, 10}) {
    for (const int64_t count : {1, 2, 3, 4, 20}) {
      int64_t next = 0;
      double share = 0;
      for (const MicroBatch& part : micro_batches(rows, count)) {
        EXPECT_EQ(part.begin, next);
        EXPECT_GT(part.end, part.begin);
        next = part.end;
        share += part.share;
      }
      EXPECT_EQ(next, rows);
      EXPECT_NEAR(share, rows == 0 ? 0 : 1, 1e-15);
      EXPECT_LE(micro_batches(rows, count).size(), static_cast<size_t>(count));
    }
  }
  // 10 rows in 4: 3, 3, 3, 1.
  EXPECT_EQ(micro_batches(10, 4).back().begin, 9);
  EXPECT_EQ(micro_batches(10, 4).back().share, 0.1);
  EXPECT_ERROR(micro_batches(4, 0),
               "[micro_batches] expected rows >= 0 in 1 or more parts, got 4 in 0");
  const std::vector<MicroBatch> halves = micro_batches(INT64_MAX, 2);
  ASSERT_EQ(halves.size(), 2U);
  EXPECT_EQ(halves[1].begin, int64_t{1} << 62);
  EXPECT_EQ(halves[1].end, INT64_MAX);
}

// Gradients of one MLP after a whole batch, taken in `count` parts.
std::vector<Tensor> gradients(nn::Module& model, const Tensor& x, const Tensor& y, int64_t count) {
  model.zero_grad();
  for (const MicroBatch& part : micro_batches(x.size(0), count)) {
    const Tensor out = model(slice(x, 0, part.begin, part.end));
    mul(mse_loss(out, slice(y, 0, part.begin, part.end)), part.share).backward();
  }
  std::vector<Tensor> grads;
  for (const Tensor& p : model.parameters()) grads.push_back(clone(p.grad()));
  return grads;
}

double relative_difference(const Tensor& a, const Tensor& b) {
  const Tensor x = to(a, DType::f64);
  const Tensor d = sub(x, to(b, DType::f64));
  return std::sqrt(sum(mul(d, d)).item() / sum(mul(x, x)).item());
}

TEST(Accumulation, EqualsOneLargeBatchAlsoWithAShortLastPart) {
  manual_seed(3);
  nn::GatedMLP model(24, 40);
  for (const DType dtype : {DType::f64, DType::f32}) {
    model.to(dtype);
    const Tensor x = randn({10, 24}, dtype);
    const Tensor y = randn({10, 24}, dtype);
    const std::vector<Tensor> whole = gradients(model, x, y, 1);
    for (const int64_t count : {2, 3, 4, 10}) {  // 4: three parts of 3 rows and one of 1
      const std::vector<Tensor> parts = gradients(model, x, y, count);
      for (size_t i = 0; i < whole.size(); ++i)
        EXPECT_LT(relative_difference(whole[i], parts[i]), dtype == DType::f64 ? 1e-15 : 5e-7)
            << count << " parts";
    }
  }
}

// The mean of the parts' means is not the mean: what the shares are for.
TEST(Accumulation, EqualWeightsWouldBeWrongWithAShortLastPart) {
  manual_seed(3);
  nn::Linear model(4, 4);
  const Tensor x = randn({5, 4});
  const Tensor y = randn({5, 4});
  const Tensor whole = gradients(model, x, y, 1)[0];
  model.zero_grad();
  for (const MicroBatch& part : micro_batches(5, 2))
    mul(mse_loss(model(slice(x, 0, part.begin, part.end)), slice(y, 0, part.begin, part.end)), 0.5)
        .backward();
  EXPECT_GT(relative_difference(whole, model.parameters()[0].grad()), 1e-2);
}

TEST(Accumulation, NeedsTheMemoryOfOneMicroBatch) {
  nn::GatedMLP model(64, 256);
  const Tensor x = randn({1024, 64});
  const Tensor y = randn({1024, 64});
  const auto peak_above_gradients = [&](int64_t rows, int64_t count) {
    const Tensor some_x = slice(x, 0, 0, rows);
    const Tensor some_y = slice(y, 0, 0, rows);
    gradients(model, some_x, some_y, count);  // gradients exist from here on
    const int64_t before = memory_stats().allocated_bytes;
    reset_peak_memory();
    for (const MicroBatch& part : micro_batches(rows, count)) {
      const Tensor out = model(slice(some_x, 0, part.begin, part.end));
      mul(mse_loss(out, slice(some_y, 0, part.begin, part.end)), part.share).backward();
    }
    return memory_stats().peak_allocated_bytes - before;
  };
  const int64_t whole = peak_above_gradients(1024, 1);
  const int64_t parts = peak_above_gradients(1024, 8);
  const int64_t one_part = peak_above_gradients(128, 1);
  EXPECT_EQ(parts, one_part);
  // The activations scale, temporary weight gradients do not.
  EXPECT_LT(parts * 4, whole);
}

}  // namespace epilogue::optim::accumulation_test
