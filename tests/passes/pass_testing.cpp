// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

#include "golden/golden_file.h"
#include "support/test.h"

namespace epilogue::testing {
namespace pass_testing {
namespace {

std::string number(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.15g", x);
  return text.data();
}

std::string text_of(const passes::Note& note) {
  if (!note.done()) return "declined: " + note.what + ": " + note.reason + "\n";
  std::string saved;
  if (note.bytes_saved != 0) saved = number(note.bytes_saved) + " bytes";
  if (note.launches_saved != 0)
    saved += (saved.empty() ? "" : ", ") + std::to_string(note.launches_saved) +
             (note.launches_saved == 1 ? " launch" : " launches");
  return "did: " + note.what + (saved.empty() ? "" : " (saves " + saved + ")") + "\n";
}

// The graph's text, and which values the backward pass makes.
std::string text_of(const Graph& graph) {
  std::string backward;
  for (const graph::Node& node : graph.nodes)
    if (node.is_backward)
      for (const int v : node.outputs)
        backward += (backward.empty() ? "backward: %" : ", %") + std::to_string(v);
  return graph::to_text(graph) + backward + (backward.empty() ? "" : "\n");
}

// A case in the golden file: the graph, "- " before lines that the pass removes, "+ " before those
// that it adds; notes.
std::string transcript(std::string_view name, const PassCase& c) {
  Graph graph = c.graph();
  for (const passes::Pass& pass : passes::pipeline()) {
    std::vector<passes::Note> notes;
    passes::PassContext context(pass.name, c.options, notes);
    const bool is_skipped = std::ranges::count(c.options.skip, pass.name) != 0;
    const std::string before = text_of(graph);
    if (!is_skipped) pass.run(graph, context);
    graph::verify(graph);
    if (pass.name != name) continue;
    const std::string after = text_of(graph);
    std::string text = test::line_diff(before, after) + "-- notes\n";
    for (const passes::Note& note : notes) {
      EXPECT_EQ(note.pass, name);
      text += text_of(note);
    }
    return text + (notes.empty() ? "none\n" : "");
  }
  ADD_FAILURE() << name << " is no pass";
  return "";
}

class CaseTest : public ::testing::Test {
 public:
  CaseTest(std::string pass, const PassCase& c, const test::GoldenFile& golden)
      : pass_(std::move(pass)), case_(c), golden_(golden) {}
  void TestBody() override { golden_.expect(case_.name, transcript(pass_, case_)); }

 private:
  std::string pass_;
  const PassCase& case_;
  const test::GoldenFile& golden_;
};

class FileTest : public ::testing::Test {
 public:
  explicit FileTest(const test::GoldenFile& golden) : golden_(golden) {}
  void TestBody() override { golden_.expect_no_other_sections(); }

 private:
  const test::GoldenFile& golden_;
};

struct Suite {
  std::string pass;
  std::vector<PassCase> cases;
  test::GoldenFile golden;
};

// Registered tests live as long as the process.
std::vector<std::unique_ptr<const Suite>>& suites() {
  static std::vector<std::unique_ptr<const Suite>> all;
  return all;
}

template <class Make>
void register_test(const Suite& suite, const std::string& name, std::source_location where,
                   Make make) {
  ::testing::RegisterTest(suite.pass.c_str(), name.c_str(), nullptr, nullptr, where.file_name(),
                          static_cast<int>(where.line()),
                          [make]() -> ::testing::Test* { return make(); });
}

}  // namespace
}  // namespace pass_testing

PassCases::PassCases(std::string_view pass, std::vector<PassCase> cases,
                     std::source_location where) {
  using namespace pass_testing;
  std::vector<std::string> names;
  for (const PassCase& c : cases) names.push_back(c.name);
  const std::string path = std::string(EPILOGUE_PASS_GOLDENS "/") + std::string(pass) + ".txt";
  const std::string about = "The cases of tests/passes/" + std::string(pass) + "_test.cpp.";
  suites().push_back(std::make_unique<const Suite>(
      Suite{std::string(pass), std::move(cases), test::GoldenFile(path, about, names)}));
  const Suite& suite = *suites().back();
  for (const PassCase& c : suite.cases)
    register_test(suite, c.name, where,
                  [&suite, &c] { return new CaseTest(suite.pass, c, suite.golden); });
  register_test(suite, "GoldenFileHoldsTheseCases", where,
                [&suite] { return new FileTest(suite.golden); });
}

namespace pass_testing {
namespace {

TEST(Passes, EachHasCasesWhereItAppliesAndWhereItDoesNot) {
  std::set<std::string, std::less<>> known;
  for (const auto& suite : suites()) {
    EXPECT_TRUE(known.insert(suite->pass).second) << suite->pass << " has two lists of cases";
    bool applies = false;
    bool does_nothing = false;
    for (const PassCase& c : suite->cases) {
      const std::string text = transcript(suite->pass, c);
      applies = applies || text.find("\ndid: ") != std::string::npos;
      does_nothing = does_nothing || (("\n" + text).find("\n- ") == std::string::npos &&
                                      ("\n" + text).find("\n+ ") == std::string::npos);
    }
    EXPECT_TRUE(applies) << suite->pass;
    EXPECT_TRUE(does_nothing) << suite->pass;
  }
  for (const passes::Pass& pass : passes::pipeline())
    EXPECT_TRUE(known.contains(pass.name)) << pass.name << " has no cases";
}

}  // namespace
}  // namespace pass_testing
}  // namespace epilogue::testing
