// SPDX-License-Identifier: Apache-2.0
// The lists of rules against docs/findings.md.
#include "explain/findings/rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace epilogue::trace::rules_test {
namespace {

// The first cells of all tables' rows.
std::set<std::string> documented_ids() {
  const std::filesystem::path here = __FILE__;
  std::ifstream page((here / "../../../../docs/findings.md").lexically_normal());
  std::set<std::string> ids;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| ")) ids.insert(line.substr(2, line.find(' ', 2) - 2));
  ids.erase("id");
  return ids;
}

TEST(FindingRules, EachHasAnIdOfItsOwnAndALineInTheDocumentation) {
  std::set<std::string> ids;
  const auto add = [&](std::string_view id) {
    if (id.empty()) return;  // its findings bring ids along
    EXPECT_TRUE(ids.emplace(id).second) << id;
  };
  for (const ExplanationRule* rule : kExplanationRules) add(rule->id);
  for (const RanksRule* rule : kRanksRules) add(rule->id);
  EXPECT_FALSE(ids.empty());
  EXPECT_EQ(ids, documented_ids());
}

}  // namespace
}  // namespace epilogue::trace::rules_test
