// SPDX-License-Identifier: Apache-2.0
#include <cctype>

#include "epilogue/trace/cpu.h"
#include "explain/products/cpu_families.h"
#include "support/test.h"

namespace epilogue::trace::cpu_peaks_test {

std::string family_of(const char* name) {
  const Result<CpuPeaks> peaks = estimate_cpu_peaks(name);
  return peaks ? peaks.value().family : peaks.failure().message;
}

TEST(CpuPeaks, AProductsNameGivesItsFamily) {
  EXPECT_EQ(family_of("AMD EPYC 7763 64-Core Processor"), "Zen 3");
  for (const char* name : {"Zen 3", "AMD Zen-3", "zen3", "ZEN 3 @ 3.1GHz"})
    EXPECT_EQ(family_of(name), "Zen 3") << name;
  EXPECT_EQ(family_of("icelake-sp"), "Ice Lake-SP");
  EXPECT_EQ(family_of("Arm Neoverse V1"), "Neoverse-V1");
  EXPECT_EQ(family_of("AMD EPYC 7R13 Processor"), "Zen 3");
  EXPECT_EQ(family_of("AMD EPYC 7V73X 64-Core Processor"), "Zen 3");
  EXPECT_EQ(family_of("AMD EPYC 7742 64-Core Processor"), "Zen 2");
  EXPECT_EQ(family_of("AMD EPYC 7571"), "Zen");
  EXPECT_EQ(family_of("AMD EPYC 9R14"), "Zen 4");
  EXPECT_EQ(family_of("AMD EPYC 9575F 64-Core Processor"), "Zen 5");
  EXPECT_EQ(family_of("AMD Ryzen 9 5950X 16-Core Processor"), "Zen 3");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"), "Broadwell");
  EXPECT_EQ(family_of("Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz"), "Skylake");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz"), "Skylake-SP");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Gold 5118 CPU @ 2.30GHz"), "Skylake-SP with one FMA unit");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"), "Cascade Lake");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Silver 4214 CPU"), "Cascade Lake with one FMA unit");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Platinum 8380H CPU @ 2.90GHz"), "Cooper Lake");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"), "Ice Lake-SP");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) Platinum 8480+"), "Sapphire Rapids");
  EXPECT_EQ(family_of("INTEL(R) XEON(R) PLATINUM 8581C"), "Emerald Rapids");
  EXPECT_EQ(family_of("Intel(R) Xeon(R) 6975P-C"), "Granite Rapids");
  EXPECT_EQ(family_of("AMD EPYC-Milan Processor"), "Zen 3");
  EXPECT_EQ(family_of("Neoverse-V1"), "Neoverse-V1");
  EXPECT_EQ(family_of("AWS Graviton2"), "Neoverse-N1");
  EXPECT_EQ(family_of("zen 2"), "Zen 2");
}

TEST(CpuPeaks, OfAnUnknownNameNoGuessIsMade) {
  for (const char* name : {"", "Xeon", "AMD EPYC", "Zen 6", "AMD Ryzen 7 5700U", "@ 2.5GHz",
                           "Intel(R) Xeon(R) Processor @ 2.10GHz", "EPYC 77632", "7763"}) {
    const Result<CpuPeaks> peaks = estimate_cpu_peaks(name);
    ASSERT_FALSE(peaks) << name;
    EXPECT_EQ(peaks.failure().code, FailureCode::unknown_cpu);
    EXPECT_HAS(peaks.failure().message, "Haswell, ");
    EXPECT_HAS(peaks.failure().message, "got '" + std::string(name) + "'");
  }
  // One or two units: a factor of two.
  EXPECT_HAS(family_of("Intel Xeon Processor (Skylake, IBRS)"), "name the product");
  EXPECT_HAS(family_of("Intel(R) Core(TM) i9-7900X CPU @ 3.30GHz"), "Core X");
  EXPECT_HAS(family_of("Apple M2"), "matrix unit");
}

TEST(CpuPeaks, AreUnitsTimesLanesTimesClockTimesThreads) {
  const CpuPeaks zen3 = estimate_cpu_peaks("AMD EPYC 7763 64-Core Processor", 8).value();
  EXPECT_DOUBLE_EQ(*zen3.f32, 640);  // 2 units x 8 lanes x 2 x 2.5 GHz x 8
  EXPECT_DOUBLE_EQ(*zen3.f64, 320);
  EXPECT_EQ(zen3.text(), "estimated from the CPU's name: Zen 3, 8 cores, 2.5 GHz, 640 GFLOP/s f32");
  EXPECT_TRUE(zen3.lacks("bf16"));
  EXPECT_DOUBLE_EQ(*zen3.gflops_of("bf16"), 640) << "computed as f32";
  EXPECT_FALSE(zen3.gflops_of("e4m3"));

  const CpuPeaks ice =
      estimate_cpu_peaks("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", 4).value();
  EXPECT_DOUBLE_EQ(*ice.f32, 64 * 2.9 * 4);
  EXPECT_DOUBLE_EQ(*ice.i8, 256 * 2.9 * 4);
  EXPECT_FALSE(ice.is_ghz_assumed);

  const CpuPeaks amx = estimate_cpu_peaks("Sapphire Rapids @ 2 GHz", 1).value();
  EXPECT_DOUBLE_EQ(*amx.gflops_of("bf16"), 2048);
  EXPECT_DOUBLE_EQ(*amx.gflops_of("i8"), 4096);
  EXPECT_TRUE(amx.has("bf16"));

  const CpuPeaks zen4 = estimate_cpu_peaks("AMD EPYC 9654", 1).value();
  EXPECT_FALSE(zen4.gflops_of("bf16")) << "has them, at a rate that the table does not know";
  EXPECT_TRUE(zen4.has("bf16"));
  EXPECT_FALSE(zen4.lacks("bf16"));
}

TEST(CpuPeaks, SayWhatWasAssumed) {
  const CpuPeaks bare = estimate_cpu_peaks("EPYC 7763").value();
  EXPECT_EQ(bare.threads, 1);
  EXPECT_EQ(bare.assumptions(),
            "One core is assumed: --cpu-threads says how many threads the run had. 2.5 GHz is "
            "assumed for this family: \"@ 3.1GHz\" after the name says otherwise.");
  const CpuPeaks given = estimate_cpu_peaks("EPYC 7763 @ 3100 MHz", 2).value();
  EXPECT_DOUBLE_EQ(given.ghz, 3.1);
  EXPECT_EQ(given.assumptions(), "Each thread is assumed to have a core of its own.");
  EXPECT_TRUE(estimate_cpu_peaks("EPYC 7763 @ 31 GHz").value().is_ghz_assumed) << "no clock";
}

TEST(CpuFamilyTable, HasNoRowThatNothingCanReach) {
  std::set<std::string_view> families;
  for (const CpuFamily& family : cpu_family_table()) {
    EXPECT_TRUE(families.insert(family.name).second) << family.name;
    EXPECT_EQ(family_of(std::string(family.name).c_str()), family.name);
    EXPECT_GT(family.f32, 0);
    EXPECT_GT(family.ghz, 1);
    EXPECT_LT(family.ghz, 5);
  }
  ASSERT_GE(families.size(), 20U);
  for (const CpuProduct& product : cpu_product_table()) {
    EXPECT_NE(product.family.empty(), product.reason.empty());
    EXPECT_TRUE(product.family.empty() || families.contains(product.family)) << product.family;
    for (const std::string_view word : product.words)
      for (const char c : word)
        EXPECT_FALSE(std::isupper(static_cast<unsigned char>(c))) << word << " is never found";
  }
}

}  // namespace epilogue::trace::cpu_peaks_test
