// SPDX-License-Identifier: Apache-2.0
// Time of a fused kernel on the host: bytes, new pages, arithmetic. Every number is worked out
// by hand from a trace made for it.
#include "explain/fusion/fusion_program.h"
#include "support/test.h"

namespace epilogue::trace::host_model_test {

using namespace testing;

constexpr double kMiB = 1 << 20;

Program on_host() {
  Program p;
  p.has_kernels = false;
  return p;
}

void op(Program& p, const char* name, int64_t us, std::vector<int64_t> dims,
        const char* type = "float") {
  p.op(name, us, {tensor(std::move(dims), type)});
}

void product(Program& p, std::vector<int64_t> rows) {
  const int64_t columns = rows.back();
  p.op("aten::mm", 1000, {tensor({rows.front(), 64}), tensor({64, columns})});
}

TEST(HostModel, AKernelWritesWhereAProductLies) {
  Program p = on_host();
  product(p, {1024, 1024});
  op(p, "aten::neg", 100, {1024, 1024});  // reads 4 MiB, writes 4 MiB that it did not read
  op(p, "aten::relu", 100, {1024, 1024});
  const FusionFindings found = p.find();
  const Fusion chain = fusion_of(found, FusionKind::pointwise_chain);
  EXPECT_NEAR(found.bandwidth_gb_per_s, 12 * kMiB / 100e3, 1e-6);
  // Read 4 MiB, write it back: two thirds of the bytes of one op.
  EXPECT_NEAR(chain.device_saving_us, 200 - 100 * 2 / 3.0, 1e-6);
}

TEST(HostModel, WithoutAProductTheResultIsNewMemory) {
  Program p = on_host();
  op(p, "aten::neg", 100, {1024, 1024});
  op(p, "aten::relu", 100, {1024, 1024});
  EXPECT_NEAR(fusion_of(p.find(), FusionKind::pointwise_chain).device_saving_us, 100, 1e-6);
}

TEST(HostModel, ResultsOf32MiBPayForNewPagesAndTheKernelInAProductDoesNot) {
  const auto run = [](bool has_product) {
    Program p = on_host();
    if (has_product) product(p, {4096, 2048});
    op(p, "aten::neg", 10'000, {4096, 2048});  // 32 MiB: 100 MB cost 2.5 ms at the usual 40 GB/s
    op(p, "aten::relu", 10'000, {4096, 2048});
    const FusionFindings found = p.find();
    const Fusion* chain = find(found, FusionKind::pointwise_chain);
    return chain != nullptr ? chain->time_us - chain->device_saving_us : -1;
  };
  EXPECT_NEAR(run(true), 2 * 32 * kMiB / 40e3, 1e-6);
  EXPECT_NEAR(run(false), 10'000, 1e-6) << "its bytes and its pages are those of one op";
}

TEST(HostModel, WhatOneRunTakesBeyondTheOthersIsNoSaving) {
  Program p = on_host();
  for (const int64_t us : {400, 400, 400, 4000}) {
    p.annotated("step", [&] {
      op(p, "aten::relu", 100, {1024, 1024});
      op(p, "aten::silu", us, {1024, 1024});
      op(p, "aten::sum", 1, {2});  // ends the chain
    });
  }
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  // One kernel: 100 us for the bytes and 300 us of arithmetic; what interrupted the last run stays.
  EXPECT_EQ(chain.count, 4);
  EXPECT_NEAR(chain.time_us - chain.device_saving_us, 4 * 400 + 3600, 1e-6);
}

TEST(HostModel, TanhOfF32IsSlowerFusedThanInMklsVectorMath) {
  const auto saving = [](const char* type) {
    Program p = on_host();
    op(p, "aten::neg", 100, {1024, 1024}, type);
    op(p, "aten::tanh", 110, {1024, 1024}, type);
    const FusionFindings found = p.find();
    const Fusion* chain = find(found, FusionKind::pointwise_chain);
    return chain != nullptr ? chain->device_saving_us : 0;
  };
  EXPECT_EQ(saving("float"), 0) << "a fusion without a gain is not listed";
  EXPECT_NEAR(saving(testing::kBFloat16), 100, 1e-6);
}

TEST(HostModel, GeluWithTanhIsToldFromTheExactOneByItsTime) {
  const auto left = [](int64_t us) {
    Program p = on_host();
    op(p, "aten::neg", 1000, {1024, 1024});
    op(p, "aten::gelu", us, {1024, 1024});
    const FusionFindings found = p.find();
    const Fusion* chain = find(found, FusionKind::pointwise_chain);
    return chain != nullptr ? chain->time_us - chain->device_saving_us : -1;
  };
  const double bytes_us = 12 * kMiB / 20e3;  // at 20 GB/s: the ops of this trace are slower
  EXPECT_NEAR(left(800), bytes_us + 1.5 * 800 - bytes_us, 1e-6);
  EXPECT_NEAR(left(4000), bytes_us + 4000 - bytes_us, 1e-6);
}

TEST(HostModel, ComparisonsAndMasksStayAsSlowAsTheyAre) {
  Program p = on_host();
  op(p, "aten::neg", 100, {1024, 1024});
  op(p, "aten::gt", 2500, {1024, 1024});
  p.op("aten::masked_fill_", 7000,
       {tensor({1024, 1024}), tensor({1024, 1024}, "bool"), scalar("0")});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_GT(chain.time_us - chain.device_saving_us, 9'000);
}

TEST(HostModel, SaysHowMuchOfTheSavingIsNewPages) {
  Program p = on_host();
  product(p, {4096, 2048});
  op(p, "aten::neg", 10'000, {4096, 2048});  // 100 MB at 40 GB/s, and new pages
  op(p, "aten::relu", 10'000, {4096, 2048});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_NEAR(chain.new_pages_us, 2 * (10'000 - 3 * 32 * kMiB / 40e3), 1e-6);
}

// Time of the chain of the only step as one kernel.
double fused_us(Program& p) {
  const FusionFindings found = p.find();
  const Fusion* chain = find(found, FusionKind::pointwise_chain);
  return chain != nullptr ? chain->time_us - chain->device_saving_us : -1;
}

TEST(HostModel, AnOpThatComputesTellsHowFastMemoryIsAtLeast) {
  Program p = on_host();
  op(p, "aten::neg", 1000, {1024, 1024});  // 12 GB/s
  op(p, "aten::silu", 200, {1024, 1024});
  EXPECT_NEAR(fused_us(p), 200, 1e-6) << "reads and writes what either of the two does";
}

TEST(HostModel, ReductionsTellHowFastMemoryIsWhereResultsMeetNewPages) {
  Program p = on_host();
  product(p, {4096, 2048});
  p.op("aten::sum", 500, {tensor({4096, 2048}), scalar("[-1]"), scalar("True")});  // 67 GB/s
  p.op("aten::sub", 10'000, {tensor({4096, 2048}), tensor({4096, 1}), scalar("1")});
  op(p, "aten::neg", 10'000, {4096, 2048});
  // One kernel reads the product and writes its result there.
  const double us_of_32_mib = 500 / (1 + 2 / 2048.0);
  EXPECT_NEAR(fused_us(p), 2 * us_of_32_mib + 0.25 * 500, 1) << "and sums from the cache";
}

TEST(HostModel, ASoftmaxDoesNotWriteWhereAProductLiesAndItsScaleIsTested) {
  const auto with = [](const char* name) {
    Program p = on_host();
    product(p, {1024, 1024});
    op(p, "aten::neg", 100, {1024, 1024});
    op(p, name, 100, {1024, 1024});
    p.op("aten::_softmax", 250, {tensor({1024, 1024}), scalar("-1"), scalar("False")});
    return fused_us(p);
  };
  EXPECT_NEAR(with("aten::neg"), 1.15 * 250, 1e-6) << "it keeps its time";
  EXPECT_NEAR(with("aten::mul"), 1.15 * 250 + 100, 1e-6);
}

// Without AVX-512 Inductor takes longer for add and layer_norm than eager does: 562 us for 494.
TEST(HostModel, ANormIsInNoChain) {
  Program p = on_host();
  product(p, {1024, 1024});
  op(p, "aten::neg", 120, {1024, 1024});
  op(p, "aten::relu", 120, {1024, 1024});
  op(p, "aten::native_layer_norm", 240, {1024, 1024});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_EQ(chain.ops, (std::vector<std::string>{"aten::neg", "aten::relu"}));
}

TEST(HostModel, ASumOfAProductAndATensorIsCopiedIntoThatProduct) {
  const auto with = [](const char* name, bool has_bias) {
    Program p = on_host();
    for (int i = 0; i < 2; ++i) {
      if (has_bias) {
        p.op("aten::addmm", 1000, {tensor({1024}), tensor({1024, 64}), tensor({64, 1024})});
      } else {
        product(p, {1024, 1024});
      }
    }
    p.op(name, 160, {tensor({1024, 1024}), tensor({1024, 1024}), scalar("1")});
    op(p, "aten::neg", 120, {1024, 1024});
    return fused_us(p);
  };
  const double pass_us = 40;  // over 4 MiB
  EXPECT_NEAR(with("aten::mul", false), 3 * pass_us, 1e-6) << "reads both, writes where one lies";
  // The copy reads one and writes it twice; the kernel reads and writes the sum.
  EXPECT_NEAR(with("aten::add", false), 5 * pass_us, 1e-6);
  EXPECT_NEAR(with("aten::add", true), 3 * pass_us, 1e-6) << "its product has a bias already";
}

}  // namespace epilogue::trace::host_model_test
