// SPDX-License-Identifier: Apache-2.0
// Instruction set levels: names, forcing one, the environment.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

namespace epilogue {
namespace {

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
    EXPECT_EQ(isa.failure().code, "UnknownIsa");
    EXPECT_EQ(isa.failure().message,
              "[isa] expected baseline, avx2, avx512, avx512_bf16 or amx, got '" +
                  std::string(name) + "'");
  }
}

TEST_F(ActiveIsa, EveryLevelOfTheMachineCanBeForced) {
  for (Isa isa : kIsas) {
    if (isa > detected_isa()) continue;
    set_active_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
}

TEST_F(ActiveIsa, ALevelAboveTheMachineIsMisuse) {
  if (detected_isa() == Isa::amx) GTEST_SKIP() << "this machine has every level";
  EXPECT_THROW(set_active_isa(Isa::amx), Error);
  EXPECT_EQ(active_isa(), before_);
}

TEST(IsaEnvironment, IsObeyed) {
  for (Isa isa : kIsas) {
    const std::string name(isa_name(isa));
    const auto [code, out] = run_with_isa(name);
    if (isa <= detected_isa()) {
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
  EXPECT_NE(out.find("got 'sse9'"), std::string::npos) << out;
}

}  // namespace
}  // namespace epilogue
