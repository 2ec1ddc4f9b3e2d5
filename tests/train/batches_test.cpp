// SPDX-License-Identifier: Apache-2.0
// Orders are permutations that depend on seed and epoch alone; batches are their rows.
#include "base/thread_pool.h"
#include "epilogue/data.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::train::batches_test {

Examples numbered(int64_t n) {
  const Tensor inputs = to(view(arange(2 * n), {n, 2}), DType::f32);  // row i: 2i, 2i + 1
  return {inputs, arange(n)};
}

TEST(Permutation, HoldsEveryNumberOnce) {
  for (const int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<int64_t> order = permutation(n, 7, 3);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> expected(static_cast<size_t>(n));
    std::iota(expected.begin(), expected.end(), int64_t{0});
    EXPECT_EQ(order, expected);
  }
  EXPECT_THROW(permutation(-1, 0, 0), Error);
  EXPECT_ERROR(permutation(INT64_MAX, 0, 0),
               "[permutation] expected n numbers that fit into memory, got 9223372036854775807");
}

TEST(Permutation, DependsOnSeedAndStreamAlone) {
  const std::vector<int64_t> order = permutation(100, 1, 2);
  manual_seed(99);
  EXPECT_EQ(permutation(100, 1, 2), order);
  EXPECT_NE(permutation(100, 2, 2), order);
  EXPECT_NE(permutation(100, 1, 3), order);
}

TEST(Permutation, LeavesTheRandomGeneratorAlone) {
  const RngState before = rng_state();
  permutation(100, 1, 2);
  EXPECT_EQ(rng_state().offset, before.offset);
}

// Each of the 6 orders of 3 in 6000 draws: 1000 expected, standard deviation 28.9.
TEST(Permutation, AllOrdersAreEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t stream = 0; stream < 6000; ++stream) ++counts[permutation(3, 11, stream)];
  ASSERT_EQ(counts.size(), 6U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 5 * 28.9);
}

TEST(TakeRows, CopiesRowsInTheirOrder) {
  const Tensor from = numbered(4).inputs;
  const std::vector<int64_t> rows = {3, 0, 3};
  const Tensor taken = take_rows(from, rows);
  EXPECT_EQ(taken.sizes(), (Dims{3, 2}));
  EXPECT_EQ(taken.to_vector(), (std::vector<double>{6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(take_rows(arange(5), rows).to_vector(), (std::vector<double>{3, 0, 3}));
}

TEST(TakeRows, EdgesAndMisuse) {
  EXPECT_EQ(take_rows(zeros({4, 2}), {}).sizes(), (Dims{0, 2}));
  const std::vector<int64_t> rows = {0, 1};
  EXPECT_EQ(take_rows(zeros({4, 0}), rows).sizes(), (Dims{2, 0}));
  const std::vector<int64_t> high = {4}, low = {-1};
  EXPECT_THROW(take_rows(zeros({4, 2}), high), Error);
  EXPECT_THROW(take_rows(zeros({4, 2}), low), Error);
  EXPECT_THROW(take_rows(t(zeros({4, 2})), rows), Error);
}

TEST(TakeRows, IsTheSameForEveryNumberOfThreads) {
  const Tensor from = randn({512, 400});
  const std::vector<int64_t> rows = permutation(512, 0, 0);
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<double> one = take_rows(from, rows).to_vector();
  set_num_threads(4);
  EXPECT_EQ(take_rows(from, rows).to_vector(), one);
  set_num_threads(threads);
}

TEST(EpochBatches, HoldEveryExampleOnceTheLastOneShort) {
  const EpochBatches batches(numbered(10), 4, 5, 0);
  ASSERT_EQ(batches.count(), 3);
  std::multiset<double> seen;
  for (int64_t i = 0; i < 3; ++i) {
    const Examples b = batches.batch(i);
    EXPECT_EQ(b.size(), i < 2 ? 4 : 2);
    for (int64_t r = 0; r < b.size(); ++r) {
      const double label = b.targets.to_vector()[static_cast<size_t>(r)];
      EXPECT_EQ(b.inputs.to_vector()[static_cast<size_t>(2 * r)], 2 * label);
      seen.insert(label);
    }
  }
  EXPECT_EQ(seen, (std::multiset<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(EpochBatches, AnyBatchCanBeHadAloneSoThatARunCanGoOnInTheMiddle) {
  const Examples all = numbered(10);
  const std::vector<double> third = EpochBatches(all, 3, 5, 8).batch(2).targets.to_vector();
  const EpochBatches batches(all, 3, 5, 8);
  batches.batch(0);
  batches.batch(1);
  EXPECT_EQ(batches.batch(2).targets.to_vector(), third);
}

TEST(EpochBatches, Misuse) {
  EXPECT_THROW(EpochBatches(numbered(4), 0, 0, 0), Error);
  const EpochBatches batches(numbered(4), 8, 0, 0);
  EXPECT_EQ(batches.count(), 1);
  EXPECT_THROW(batches.batch(1), Error);
  EXPECT_THROW(batches.batch(-1), Error);
  EXPECT_EQ(EpochBatches(numbered(4), INT64_MAX, 0, 0).count(), 1);
  EXPECT_EQ(EpochBatches(numbered(4), INT64_MAX, 0, 0).batch(0).size(), 4);
  const std::string start = "[EpochBatches] expected one target per input, got inputs f32[4, 2]";
  for (const int64_t n : {3, 9})
    EXPECT_ERROR(EpochBatches({numbered(4).inputs, arange(n)}, 2, 0, 0),
                 start + " and targets i64[" + std::to_string(n) + "]");
  EXPECT_ERROR(EpochBatches({numbered(4).inputs, {}}, 2, 0, 0), start + " and targets undefined");
}

TEST(Examples, RowsShareMemory) {
  const Examples all = numbered(6);
  const Examples part = all.rows(2, 5);
  EXPECT_EQ(part.size(), 3);
  EXPECT_EQ(part.inputs.data_as<float>(), all.inputs.data_as<float>() + 4);
  EXPECT_EQ(part.targets.to_vector(), (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(all.rows(6, 6).size(), 0);
  const std::string start = "[Examples::rows] expected 0 <= begin <= end <= 6, got ";
  EXPECT_ERROR(all.rows(-1, 2), start + "-1 and 2");
  EXPECT_ERROR(all.rows(3, 9), start + "3 and 9");
  EXPECT_ERROR(all.rows(3, 2), start + "3 and 2");
}

TEST(Fingerprint, TellsValuesAndShapesApart) {
  Examples a = numbered(4);
  const uint32_t sum = fingerprint(a);
  EXPECT_EQ(fingerprint(numbered(4)), sum);
  a.inputs.data_as<float>()[3] += 1;
  EXPECT_NE(fingerprint(a), sum);
  Examples b = numbered(4);
  b.targets.data_as<int64_t>()[0] = 9;
  EXPECT_NE(fingerprint(b), sum);
  EXPECT_NE(fingerprint({view(numbered(4).inputs, {8, 1}), arange(4)}), sum);
}

}  // namespace epilogue::train::batches_test
