// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::modules_test {

using testing::GpuTrace;

TEST(Modules, TimeAndKernelsGoUpTheTree) {
  GpuTrace b;
  const auto frame = [&](std::string_view name, int64_t start_ns, int64_t end_ns) {
    b.event(Category::python_function, name, start_ns, end_ns);
  };
  for (const int64_t at : {0, 1000}) {
    frame("nn.Module: Mlp_0", at, at + 100);
    frame("torch/nn/modules/linear.py(10): forward", at + 9, at + 40);
    frame("nn.Module: Linear_0", at + 10, at + 40);
    frame("nn.Module: Linear_1", at + 50, at + 70);
  }
  b.call("cudaLaunchKernel", 20, 25, 1);
  b.call("cudaLaunchKernel", 60, 65, 2);
  b.call("cudaLaunchKernel", 80, 85, 3);    // the module itself
  b.call("cudaLaunchKernel", 200, 205, 4);  // outside
  for (const int64_t c : {1, 2, 3, 4}) b.gpu_kernel("k", 500 + c * 10, 505 + c * 10, c);
  const std::vector<ModuleTime> list = module_times(b.trace, link(b.trace));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].path, "Mlp_0");
  EXPECT_EQ(list[0].depth, 0);
  EXPECT_EQ(list[0].count, 2);
  EXPECT_EQ(list[0].cpu_ns, 200);
  EXPECT_EQ(list[0].self_cpu_ns, 100);
  EXPECT_EQ(list[0].kernels, 3);
  EXPECT_EQ(list[0].device_ns, 15);
  EXPECT_EQ(list[0].self_device_ns, 5);
  EXPECT_EQ(list[1].path, "Mlp_0/Linear_0");
  EXPECT_EQ(list[1].name, "Linear_0");
  EXPECT_EQ(list[1].depth, 1);
  EXPECT_EQ(list[1].kernels, 1);
  EXPECT_EQ(list[2].cpu_ns, 40);
}

TEST(Modules, NoneWithoutFrames) { EXPECT_TRUE(module_times(Trace(), Links()).empty()); }

}  // namespace epilogue::trace::modules_test
