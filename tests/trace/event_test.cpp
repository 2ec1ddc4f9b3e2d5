// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/event.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::event_test {

using namespace testing;

TEST(StringPool, GivesOneIdPerDistinctString) {
  StringPool pool;
  EXPECT_EQ(pool.intern(""), 0U);
  const StringId a = pool.intern("aten::mm");
  const StringId b = pool.intern("aten::add");
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.intern(std::string("aten::") + "mm"), a);
  EXPECT_EQ(pool[a], "aten::mm");
  EXPECT_EQ(pool.size(), 3U);
  EXPECT_EQ(pool.find("aten::add"), b);
  EXPECT_EQ(pool.find("aten::sub"), std::nullopt);
}

TEST(StringPool, KeepsViewsThroughGrowthAndMove) {
  StringPool pool;
  const StringId first = pool.intern("x");  // short: lives inside the std::string
  const std::string_view view = pool[first];
  for (int i = 0; i < 10000; ++i) pool.intern("name " + std::to_string(i));
  const StringPool moved = std::move(pool);
  EXPECT_EQ(view.data(), moved[first].data());
  EXPECT_EQ(moved.find("name 9999"), moved.find("name 9998").value() + 1);
  EXPECT_EQ(moved.find("x"), first);
}

TEST(StringPool, KeepsBytesThatAreNoText) {
  StringPool pool;
  const std::string bytes("a\0\xff", 3);
  EXPECT_EQ(pool[pool.intern(bytes)], bytes);
  EXPECT_NE(pool.intern(bytes), pool.intern("a"));
}

TEST(InputsPool, TellsListsApartByEveryField) {
  InputsPool pool;
  const auto id = [&](OpInput input) { return pool.intern({std::move(input)}); };
  const uint32_t base = id(tensor({2, 3}));
  EXPECT_EQ(id(tensor({2, 3})), base);
  EXPECT_NE(id(tensor({3, 2})), base);
  EXPECT_NE(id(tensor({2, 3}, "double")), base);
  EXPECT_NE(id(tensor_list({tensor({2, 3})})), base);
  OpInput strided = tensor({2, 3});
  strided.strides = {1, 2};
  EXPECT_NE(id(strided), base);
  EXPECT_NE(id(scalar("1")), id(scalar("2")));
  EXPECT_NE(pool.intern({}), base);
  EXPECT_EQ(pool[base][0], tensor({2, 3}));
}

TEST(Category, NamesGoBothWays) {
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    EXPECT_EQ(category_from_name(category_name(category)), category);
  }
  EXPECT_EQ(category_name(Category::cpu_op), "cpu_op");
  EXPECT_EQ(category_name(Category::cuda_driver), "cuda_driver");
  EXPECT_EQ(category_name(Category::cpu_kernel_share), "cpu_kernel_share");
  EXPECT_EQ(category_from_name("Kernel"), std::nullopt);
  EXPECT_EQ(category_from_name(""), std::nullopt);
}

TEST(Trace, ArgsBelongToTheirCategory) {
  TraceBuilder b;
  const Event op = b.op("aten::mm", 0, 10);
  const Event kernel = b.kernel("gemm", 1, 9, 1);
  EXPECT_NE(b.trace.op_args(op), nullptr);
  EXPECT_EQ(b.trace.kernel_args(op), nullptr);
  EXPECT_NE(b.trace.kernel_args(kernel), nullptr);
  EXPECT_EQ(b.trace.op_args(kernel), nullptr);
  Event bare = op;
  bare.args = kNone;
  EXPECT_EQ(b.trace.op_args(bare), nullptr);
  bare.args = 99;  // out of the table
  EXPECT_EQ(b.trace.op_args(bare), nullptr);
}

TEST(Trace, BaseIsAMultipleOfThreeMonths) {
  constexpr int64_t kQuantum = 7'889'238'000'000'000;
  const int64_t now = 1'775'078'638'511'388'202;
  EXPECT_EQ(base_time_ns(now) % kQuantum, 0);
  EXPECT_LE(base_time_ns(now), now);
  EXPECT_LT(now - base_time_ns(now), kQuantum);
  EXPECT_EQ(base_time_ns(now), 1'775'078'550'000'000'000);  // as in a file of that day
}

}  // namespace epilogue::trace::event_test
