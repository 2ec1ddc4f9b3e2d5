// SPDX-License-Identifier: Apache-2.0
// docs/findings.md against the descriptions of all findings.
#include "explain/findings/index.h"
#include "support/test.h"

namespace epilogue::trace::rules_test {

std::filesystem::path page_path() {
  return (std::filesystem::path(__FILE__) / "../../../../docs/findings.md").lexically_normal();
}

std::string read_page() {
  std::ifstream page(page_path());
  return {std::istreambuf_iterator<char>(page), {}};
}

template <size_t n, class Input>
std::string table_of(const FindingRule<Input>* const (&rules)[n]) {
  std::string table = "| id | says | said if |\n|---|---|---|\n";
  for (const FindingRule<Input>* rule : rules)
    if (!rule->id.empty())
      table += fmt::format("| {} | {} | {} |\n", rule->id, rule->says, rule->said_if());
  return table;
}

// The page with `table` between the marks "<!-- name -->" and "<!-- end of name -->".
std::string with_table(const std::string& page, const std::string& name, const std::string& table) {
  const std::string begin = "<!-- " + name + " -->\n";
  const size_t from = page.find(begin);
  const size_t to = page.find("<!-- end of " + name + " -->");
  if (from == std::string::npos || to == std::string::npos) return "no marks of " + name;
  return page.substr(0, from + begin.size()) + "\n" + table + "\n" + page.substr(to);
}

// EPILOGUE_UPDATE_GOLDENS=1 (scripts/update_goldens.sh) writes the page anew.
TEST(FindingRules, ThePageIsMadeOfTheirDescriptions) {
  const std::string page = read_page();
  const std::string made =
      with_table(with_table(page, "findings of one trace", table_of(kExplanationRules)),
                 "findings of ranks", table_of(kRanksRules));
  if (std::getenv("EPILOGUE_UPDATE_GOLDENS") != nullptr) std::ofstream(page_path()) << made;
  EXPECT_EQ(made, read_page()) << "scripts/update_goldens.sh writes docs/findings.md";
}

TEST(FindingRules, EachHasAnIdOfItsOwnAndAllOfADescription) {
  std::set<std::string_view> ids;
  const auto check = [&](const auto& rule) {
    EXPECT_TRUE((rule.find == nullptr) != (rule.visits.find == nullptr)) << rule.id;
    if (rule.id.empty()) return;  // its findings bring ids along
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_FALSE(rule.says.empty() || rule.said_if().empty()) << rule.id;
  };
  for (const ExplanationRule* rule : kExplanationRules) check(*rule);
  for (const RanksRule* rule : kRanksRules) check(*rule);
  EXPECT_GT(ids.size(), 40U);
}

}  // namespace epilogue::trace::rules_test
