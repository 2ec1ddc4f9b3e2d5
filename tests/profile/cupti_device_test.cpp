// SPDX-License-Identifier: Apache-2.0
// A profile of a device: the five kernels of a gated MLP with their ops, calls and streams.
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/profiler.h"
#include "profile/device_tracer.h"
#include "support/test.h"

namespace epilogue::profiler::cupti_device_test {

constexpr Device kCuda{DeviceType::cuda, 0};

class CuptiDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend() == nullptr) GTEST_SKIP() << cuda_status();
    if (device_tracer() == nullptr) GTEST_SKIP() << device_tracer_status();
  }
};

TEST_F(CuptiDevice, AnEagerGatedMlpIsFiveKernelsLinkedToFiveOps) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(768, 3072, nn::Activation::geglu);
  mlp.to(DType::bf16);
  mlp.to(kCuda);
  const Tensor x = randn({64, 768}, DType::bf16).to(kCuda);
  for (int i = 0; i < 3; ++i) mlp(x);
  Profile profile;
  profile.start();
  mlp(x);
  profile.stop();
  const trace::Trace& t = profile.trace();
  EXPECT_TRUE(profile.warnings().empty());
  EXPECT_EQ(t.device_label, "CUDA");
  int kernels = 0;
  for (const trace::Event& k : t.events) {
    if (k.category != trace::Category::kernel) continue;
    // A product may be in parts, which a kernel of the library's adds.
    if (t.name(k).find("splitKreduce") == std::string_view::npos) ++kernels;
    EXPECT_GT(k.dur_ns, 0);
    EXPECT_GE(k.ts_ns, t.start_ns);
    EXPECT_LE(k.end_ns(), t.end_ns);
    EXPECT_NE(k.external_id, 0) << t.name(k);
    const bool launched = std::any_of(t.events.begin(), t.events.end(), [&](const auto& e) {
      return trace::is_launch_category(e.category) && e.correlation == k.correlation;
    });
    EXPECT_TRUE(launched) << t.name(k);
    EXPECT_GT(t.kernel_args(k)->registers_per_thread, 0);
  }
  EXPECT_EQ(kernels, 5);
}

TEST(WithoutATracer, TheReasonIsOneLine) {
  if (device_tracer() != nullptr) GTEST_SKIP() << "there is one";
  EXPECT_FALSE(device_tracer_status().empty());
  EXPECT_EQ(device_tracer_status().find('\n'), std::string::npos);
}

}  // namespace epilogue::profiler::cupti_device_test
