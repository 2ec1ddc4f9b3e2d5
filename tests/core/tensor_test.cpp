// SPDX-License-Identifier: Apache-2.0
// Dims, from_blob, strides, element access and factories.
#include "epilogue/tensor.h"

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::tensor_test {

using test::message_of;
using Values = std::vector<double>;

TEST(DimsTest, HoldsUpToEight) {
  Dims dims = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(dims.rank(), kMaxRank);
  EXPECT_EQ(std::accumulate(dims.begin(), dims.end(), int64_t{0}), 36);
  EXPECT_ERROR(dims.push_back(9), "[Dims] expected at most 8 dimensions, got more");
  EXPECT_EQ(dims.rank(), kMaxRank);
  EXPECT_EQ(message_of([] { (void)Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}; }),
            "[Dims] expected at most 8 dimensions, got more");
}

TEST(DimsTest, ComparesAndPrints) {
  EXPECT_EQ((Dims{2, 3}), (Dims{2, 3}));
  EXPECT_FALSE((Dims{2, 3}) == (Dims{2}));
  EXPECT_FALSE((Dims{2, 3}) == (Dims{3, 2}));
  EXPECT_EQ(Dims::filled(3, -1), (Dims{-1, -1, -1}));
  EXPECT_EQ(to_string(Dims{}), "[]");
  EXPECT_EQ(to_string(Dims{64, -1}), "[64, -1]");
}

TEST(DimsTest, ElementCount) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 0, 5}), 0);
  EXPECT_EQ(element_count({kHuge}), kHuge);
  const std::string message =
      "[sizes] expected a number of elements below 2^63, got sizes [4611686018427387904, 4]";
  EXPECT_ERROR(element_count({kHuge, 4}), message);
}

// Strides of an empty tensor are products too: they must not overflow behind the zero.
TEST(DimsTest, HugeSizesBesideAZeroAreAnErrorInEveryOrder) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (const Dims& sizes : {Dims{0, kHuge, 4}, Dims{kHuge, 4, 0}, Dims{kHuge, 0, 4}})
    EXPECT_ERROR(empty(sizes),
                 "[sizes] expected a number of elements below 2^63, got sizes " + to_string(sizes));
}

TEST(TensorTest, SizesWhoseBytesOverflowAreAnError) {
  constexpr int64_t kCount = int64_t{1} << 61;  // 2^64 bytes of f64
  EXPECT_ERROR(empty({kCount}, DType::f64),
               "[empty] expected fewer than 2^63 bytes, got f64[2305843009213693952]");
  EXPECT_ERROR(zeros({kCount, 2}, DType::u8),
               "[allocate] expected a size below 512 TiB, got 4611686018427387904 bytes");
}

TEST(TensorTest, FromBlobSharesTheCallersMemory) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::from_blob(memory, {2, 3});
  EXPECT_EQ(t.data(), memory);
  EXPECT_EQ(t.strides(), (Dims{3, 1}));
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.bytes(), sizeof memory);
  memory[4] = 50;
  EXPECT_EQ(t.to_vector(), (Values{1, 2, 3, 4, 50, 6}));
  t.data_as<float>()[0] = 7;
  EXPECT_EQ(memory[0], 7);
}

TEST(TensorTest, FromBlobReadsThroughStrides) {
  int64_t memory[6] = {0, 1, 2, 3, 4, 5};
  const Tensor columns = Tensor::from_blob(memory, {3, 2}, DType::i64, {}, {1, 3});
  EXPECT_EQ(columns.to_vector(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_EQ(columns.impl()->storage->bytes(), sizeof memory);
  const Tensor repeated = Tensor::from_blob(memory, {4}, DType::i64, {}, {0});
  EXPECT_EQ(repeated.to_vector(), (Values{0, 0, 0, 0}));
  EXPECT_EQ(repeated.impl()->storage->bytes(), sizeof memory[0]);
}

TEST(TensorTest, DeleterRunsOnceWithTheAddressWhenTheLastViewDies) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  int calls = 0;
  void* address = nullptr;
  Tensor view;
  {
    Tensor t = Tensor::from_blob(memory, {2, 3}, DType::f32, [&](void* data) {
      ++calls;
      address = data;
    });
    const Tensor copy = t;
    view = slice(transpose(t, 0, 1), 0, 1, 3);
    t = Tensor();
    EXPECT_EQ(calls, 0);
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(view.to_vector(), (Values{2, 5, 3, 6}));
  view = Tensor();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(address, memory);
}

TEST(TensorTest, DeleterRunsOnTheThreadOfTheLastOwner) {
  float memory = 0;
  std::thread::id deleted_on;
  Tensor t = Tensor::from_blob(&memory, {}, DType::f32,
                               [&](void*) { deleted_on = std::this_thread::get_id(); });
  std::thread::id other;
  std::thread([&, mine = std::move(t)]() mutable {
    other = std::this_thread::get_id();
    mine = Tensor();
  }).join();
  EXPECT_EQ(deleted_on, other);
}

TEST(TensorTest, DeleterIsNotCalledWhenFromBlobThrows) {
  int calls = 0;
  auto deleter = [&](void*) { ++calls; };
  EXPECT_NE(message_of([&] { Tensor::from_blob(&calls, {-1}, DType::f32, deleter); }),
            "(no error)");
  EXPECT_EQ(calls, 0);
}

TEST(TensorTest, FromBlobWithoutElementsNeedsNoAddress) {
  int calls = 0;
  {
    const Tensor t = Tensor::from_blob(nullptr, {0, 4}, DType::f32, [&](void*) { ++calls; });
  }
  EXPECT_EQ(calls, 1);
}

TEST(TensorTest, FromBlobMisuse) {
  float memory[4] = {};
  EXPECT_ERROR(Tensor::from_blob(nullptr, {2, 3}),
               "[from_blob] expected an address for sizes [2, 3], got null");
  EXPECT_ERROR(Tensor::from_blob(memory, {2, -2}),
               "[from_blob] expected sizes of 0 or more, got [2, -2]");
  EXPECT_ERROR(Tensor::from_blob(memory, {2, 2}, DType::f32, {}, {1}),
               "[from_blob] expected one stride per dimension of [2, 2], got [1]");
  EXPECT_ERROR(Tensor::from_blob(memory, {2, 2}, DType::f32, {}, {2, -1}),
               "[from_blob] expected strides of 0 or more, got [2, -1]");
  EXPECT_ERROR(Tensor::from_blob(memory, {3, 2}, DType::f32, {}, {INT64_MAX, 1}),
               "[from_blob] expected fewer than 2^63 bytes, got sizes [3, 2] with strides "
               "[9223372036854775807, 1]");
}

TEST(TensorTest, ContiguityIgnoresDimensionsOfOneAndEmptyTensors) {
  using detail::strides_are_contiguous;
  EXPECT_TRUE(strides_are_contiguous({}, {}));
  EXPECT_TRUE(strides_are_contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(strides_are_contiguous({2, 1, 3}, {3, 999, 1}));
  EXPECT_TRUE(strides_are_contiguous({1}, {0}));
  EXPECT_TRUE(strides_are_contiguous({0, 3}, {1, 1}));
  EXPECT_FALSE(strides_are_contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(strides_are_contiguous({2, 3}, {4, 1}));
  EXPECT_FALSE(strides_are_contiguous({3}, {0}));
  EXPECT_EQ(detail::contiguous_strides({2, 0, 3}), (Dims{3, 3, 1}));
}

TEST(TensorTest, SizeCountsFromBothEnds) {
  const Tensor t = empty({2, 3});
  EXPECT_EQ(t.size(0), 2);
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_ERROR(t.size(2), "[size] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(t.size(-3), "[size] expected a dimension in [-2, 1], got -3");
  EXPECT_ERROR(empty({}).size(0), "[size] expected a dimension, got a tensor without dimensions");
}

TEST(TensorTest, ItemAndToVector) {
  EXPECT_EQ(full({}, 2.5, DType::bf16).item(), 2.5);
  EXPECT_EQ(full({1, 1, 1}, -3, DType::i64).item(), -3);
  EXPECT_EQ(full({1}, 1, DType::boolean).item(), 1);
  EXPECT_EQ(t(from_values({1, 2, 3, 4, 5, 6}, {2, 3}, DType::u8)).to_vector(),
            (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(empty({0, 3}).to_vector(), Values{});
  EXPECT_EQ(empty({3, 0}).to_vector(), Values{});
  EXPECT_EQ(expand(full({1}, 4), {2, 2}).to_vector(), (Values{4, 4, 4, 4}));
  EXPECT_ERROR(empty({2}).item(), "[item] expected a tensor with one element, got f32[2]");
  EXPECT_ERROR((void)Tensor().item(), "[item] expected a tensor with one element, got undefined");
}

TEST(TensorTest, TypedDataChecksTheDType) {
  EXPECT_ERROR(empty({2}, DType::bf16).data_as<float>(),
               "[data_as] expected a tensor of f32, got bf16[2]");
}

TEST(TensorTest, Factories) {
  EXPECT_EQ(arange(4).to_vector(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(arange(3, DType::bf16).dtype(), DType::bf16);
  EXPECT_EQ(arange(0).numel(), 0);
  EXPECT_EQ(zeros({2}, DType::f16).to_vector(), (Values{0, 0}));
  EXPECT_EQ(ones({2}, DType::boolean).to_vector(), (Values{1, 1}));
  EXPECT_EQ(from_values({1.0 / 3}, {1}, DType::f32).item(), static_cast<double>(1.0F / 3));
  const Tensor like = empty_like(t(empty({2, 3}, DType::f16)));
  EXPECT_EQ(to_string(like), "f16[3, 2]");
  EXPECT_TRUE(like.is_contiguous());
  EXPECT_ERROR(from_values({1, 2}, {3}), "[from_values] expected 3 values for sizes [3], got 2");
  EXPECT_ERROR(zeros({2, -3}), "[empty] expected sizes of 0 or more, got [2, -3]");
  // There is one device at most.
  EXPECT_TRUE(message_of([] {
                empty({2}, DType::f32, {DeviceType::cuda, 1});
              }).starts_with("[device] "));
}

TEST(TensorTest, HandlesShareAndCountVersions) {
  const Tensor a = zeros({2});
  const Tensor b = a;
  EXPECT_TRUE(a.is_same(b));
  EXPECT_FALSE(a.is_same(a.detach()));
  EXPECT_FALSE(Tensor().defined());
  EXPECT_TRUE(Tensor().is_same(Tensor()));
  const uint32_t before = a.version();
  fill_(view(b, {1, 2}), 3);
  EXPECT_EQ(a.version(), before + 1);
  EXPECT_EQ(a.to_vector(), (Values{3, 3}));
}

TEST(TensorTest, AnUndefinedTensorSaysSoWhateverItIsAsked) {
  Tensor moved = zeros({2});
  const Tensor kept = std::move(moved);
  for (const Tensor& t : {Tensor(), moved}) {  // NOLINT(bugprone-use-after-move)
    using Ask = void (*)(const Tensor&);
    for (const Ask ask :
         std::initializer_list<Ask>{[](const Tensor& x) { (void)x.sizes(); },
                                    [](const Tensor& x) { (void)x.strides(); },
                                    [](const Tensor& x) { (void)x.size(0); },
                                    [](const Tensor& x) { (void)x.dim(); },
                                    [](const Tensor& x) { (void)x.numel(); },
                                    [](const Tensor& x) { (void)x.dtype(); },
                                    [](const Tensor& x) { (void)x.device(); },
                                    [](const Tensor& x) { (void)x.bytes(); },
                                    [](const Tensor& x) { (void)x.is_contiguous(); },
                                    [](const Tensor& x) { (void)x.data(); },
                                    [](const Tensor& x) { x.data_as<float>(); },
                                    [](const Tensor& x) { (void)x.to_vector(); },

                                    [](const Tensor& x) { (void)x.requires_grad(); },
                                    [](const Tensor& x) { Tensor(x).set_requires_grad(true); },
                                    [](const Tensor& x) { (void)x.grad(); },
                                    [](const Tensor& x) { x.set_grad({}); },
                                    [](const Tensor& x) { (void)x.is_leaf(); },
                                    [](const Tensor& x) { x.detach(); },
                                    [](const Tensor& x) { (void)x.version(); },
                                    [](const Tensor& x) { x.increment_version(); },
                                    [](const Tensor& x) { empty_like(x); },
                                    [](const Tensor& x) { sum_to_size(x, {2}); }})
      EXPECT_ERROR(ask(t), "[Tensor] expected a defined tensor, got an undefined one");
  }
}

TEST(TensorTest, ToString) {
  EXPECT_EQ(to_string(empty({64, 128})), "f32[64, 128]");
  EXPECT_EQ(to_string(empty({}, DType::boolean)), "bool[]");
  EXPECT_EQ(to_string(Tensor()), "undefined");
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 1}), "cuda:1");
}

}  // namespace epilogue::tensor_test
