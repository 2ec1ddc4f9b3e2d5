// SPDX-License-Identifier: Apache-2.0
// Instruction set levels: names, forcing one, the environment.
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::cpu_features_test {

// Exit code and output of print_isa under EPILOGUE_ISA=level.
std::pair<int, std::string> run_with_isa(const std::string& level) {
  std::FILE* child = popen(("EPILOGUE_ISA='" + level + "' '" + PRINT_ISA + "'").c_str(), "r");
  if (child == nullptr) return {-1, "cannot start print_isa"};
  std::string out;
  for (int c = std::fgetc(child); c != EOF; c = std::fgetc(child)) out += static_cast<char>(c);
  const int status = pclose(child);
  if (!out.empty()) out.pop_back();  // the newline
  return {WEXITSTATUS(status), out};
}

class ActiveIsa : public testing::Test {
 protected:
  void TearDown() override { set_active_isa(before_); }
  const Isa before_ = active_isa();
};

TEST(Isa, NamesParseBack) {
  for (Isa isa : kIsas) EXPECT_EQ(parse_isa(isa_name(isa)).value(), isa);
}

TEST(Isa, UnknownNamesListTheLevels) {
  for (const char* name : {"", "AVX2", "avx", "avx512 "}) {
    const auto isa = parse_isa(name);
    ASSERT_FALSE(isa) << name;
    EXPECT_EQ(isa.failure().code, FailureCode::unknown_isa);
    EXPECT_EQ(isa.failure().message,
              "[isa] expected baseline, avx2, avx512, avx512_bf16 or amx, got '" +
                  std::string(name) + "'");
  }
}

TEST_F(ActiveIsa, EveryLevelOfTheMachineCanBeForced) {
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
}

TEST_F(ActiveIsa, TheFeaturesInUseAreThoseThatTheNameStandsFor) {
  for (const IsaFeatures& set : isa_table()) {
    if (!is_available(set.isa)) continue;
    set_active_isa(set.isa);
    EXPECT_TRUE(active_features().has_all(set.needs)) << set.name;
    EXPECT_TRUE((set.needs | set.may).has_all(active_features())) << set.name;
    EXPECT_TRUE(detected_features().has_all(active_features())) << set.name;
  }
  set_active_isa(Isa::baseline);
  EXPECT_EQ(active_features(), CpuFeatures());
}

TEST(CpuFeatures, AreSets) {
  using enum CpuFeature;
  const CpuFeatures vnni = {avx2, avx512, avx512_vnni};
  EXPECT_TRUE(vnni.has(avx512_vnni));
  EXPECT_FALSE(vnni.has(avx512_bf16));
  EXPECT_TRUE(vnni.has_all({avx2, avx512}));
  EXPECT_FALSE(vnni.has_all({avx2, amx_bf16}));
  EXPECT_EQ(vnni & CpuFeatures({avx512_vnni, amx_bf16}), CpuFeatures({avx512_vnni}));
  EXPECT_EQ((CpuFeatures{avx2} | CpuFeatures{avx512}), CpuFeatures({avx512, avx2}));
}

TEST_F(ActiveIsa, ALevelAboveTheMachineIsMisuse) {
  if (is_available(Isa::amx)) GTEST_SKIP() << "this machine has every level";
  EXPECT_THROW(set_active_isa(Isa::amx), Error);
  EXPECT_EQ(active_isa(), before_);
}

TEST(IsaEnvironment, IsObeyed) {
  for (Isa isa : kIsas) {
    const std::string name(isa_name(isa));
    const auto [code, out] = run_with_isa(name);
    if (is_available(isa)) {
      EXPECT_EQ(out, name);
      EXPECT_EQ(code, 0);
    } else {
      EXPECT_EQ(out, "[EPILOGUE_ISA] this machine has " + std::string(isa_name(detected_isa())) +
                         ", not " + name);
      EXPECT_EQ(code, 2);
    }
  }
}

TEST(IsaEnvironment, EmptyMeansTheBest) {
  EXPECT_EQ(run_with_isa("").second, isa_name(detected_isa()));
}

TEST(IsaEnvironment, NonsenseIsAnError) {
  const auto [code, out] = run_with_isa("sse9");
  EXPECT_EQ(code, 2);
  EXPECT_HAS(out, "got 'sse9'");
}

}  // namespace epilogue::cpu_features_test
