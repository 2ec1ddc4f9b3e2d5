// SPDX-License-Identifier: Apache-2.0
// How lists are cut into launches, and which block works on what. No device.
#include "backend/cuda/list_launches.h"

#include "ops/ops.h"
#include "support/test.h"

namespace epilogue::cuda::list_launches_test {

std::vector<ListTensors> launches_of(const OpDef& op, const std::vector<Tensor>& in) {
  return list_launches(Call{op, in, {}, {}});
}

TEST(ListLaunches, EveryElementHasOneBlock) {
  const std::vector<Tensor> in = {empty({kListTile}), empty({0}), empty({3, kListTile}),
                                  empty({kListTile + 1}), empty({})};
  const std::vector<ListTensors> launches = launches_of(kForeachMul_, in);
  ASSERT_EQ(launches.size(), 1U);
  const ListTensors& launch = launches[0];
  EXPECT_EQ(launch.count, 5);
  const std::vector<int64_t> first(launch.first_block.begin(), launch.first_block.begin() + 6);
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 1, 4, 6, 7}));
  EXPECT_EQ(launch.blocks(), 7);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(launch.data[0][i], in[i].data());
    EXPECT_EQ(launch.numel[i], in[i].numel());
  }
}

TEST(ListLaunches, LongListsAreSeveralLaunchesInOrder) {
  std::vector<Tensor> in;
  for (int i = 0; i < 2 * kListTensors + 3; ++i) in.push_back(empty({i}));
  const std::vector<ListTensors> launches = launches_of(kForeachNorm, in);
  ASSERT_EQ(launches.size(), 3U);
  EXPECT_EQ(launches[0].count, kListTensors);
  EXPECT_EQ(launches[2].count, 3);
  EXPECT_EQ(launches[2].data[0][1], in[2 * kListTensors + 1].data());
  EXPECT_EQ(launches[1].first_block[0], 0);
  EXPECT_EQ(launches[2].blocks(), 3);
}

TEST(ListLaunches, ListsStandInTheirOrderAndAbsentOnesAreNull) {
  // self, grads, momentum buffers (absent), copies; then grad_scale and found_inf.
  const std::vector<Tensor> in = {empty({4}),
                                  empty({2}),
                                  empty({4}),
                                  empty({2}),
                                  Tensor(),
                                  Tensor(),
                                  empty({4}, DType::bf16),
                                  empty({2}, DType::bf16),
                                  empty({}),
                                  Tensor()};
  const std::vector<ListTensors> launches = launches_of(kFusedSgd_, in);
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].count, 2);
  EXPECT_EQ(launches[0].dtype, DType::f32);
  EXPECT_EQ(launches[0].data[1][1], in[3].data());
  EXPECT_EQ(launches[0].data[2][0], nullptr);
  EXPECT_EQ(launches[0].data[3][1], in[7].data());
}

TEST(ListLaunches, NoTensorsAreNoLaunch) { EXPECT_TRUE(launches_of(kForeachMul_, {}).empty()); }

}  // namespace epilogue::cuda::list_launches_test
