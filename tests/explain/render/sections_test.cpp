// SPDX-License-Identifier: Apache-2.0
#include "explain/sections/section.h"

#include "epilogue/trace/file.h"
#include "explain/gpu_trace.h"
#include "explain/render/json_numbers.h"
#include "support/test.h"
#include "trace/real_traces.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::sections_test {

// Reads every value of every column, and compares the rows with those of the JSON.
class CheckingSink : public SectionSink {
 public:
  explicit CheckingSink(Json json) : json_(std::move(json)) {}

  void head(std::string, Where) override {}
  void note(std::string, Where) override {}
  void bullets(const std::vector<Item>&, Where) override {}
  void plot(std::string_view, const Json&) override {}
  int top() const override { return -1; }
  void table(const SectionTable& table) override {
    SCOPED_TRACE(table.caption);
    EXPECT_TRUE(
        table.sort_by.empty() ||
        std::ranges::any_of(table.columns, [&](const Column& c) { return c.key == table.sort_by; }))
        << table.sort_by;
    for (size_t i = 0; i < table.size; ++i) {
      const Json row = table.row(i);
      for (const Column& column : table.columns)
        EXPECT_NO_THROW(static_cast<void>(value_of(column, row))) << column.title;
    }
    if (table.list.empty()) return;
    const Json::json_pointer at("/" + slashes(table.list));
    ASSERT_TRUE(json_.contains(at)) << table.list;
    tables_.insert(table.list);
    for (size_t i = 0; i < std::min(table.size, json_[at].size()); ++i)
      for (const auto& column : table.columns)
        if (!column.key.empty() && column.where != Where::text) {
          EXPECT_EQ(value_of(column, json_[at][i]), value_of(column, table.row(i))) << column.key;
        }
  }

  size_t tables() const { return tables_.size(); }

 private:
  static std::string slashes(std::string path) {
    std::ranges::replace(path, '.', '/');
    return path;
  }

  Json json_;
  std::set<std::string> tables_;
};

size_t checked_tables(const Trace& trace) {
  const Explanation e = explain(trace, link(trace));
  CheckingSink sink(explanation_json(e, std::numeric_limits<size_t>::max()).json);
  for (const Section* section : shown_sections())
    if (section->show != nullptr) section->show(e, sink);
  return sink.tables();
}

TEST(Sections, AreInBothOrdersOnce) {
  const auto shown = shown_sections();
  const std::set<const Section*> people(shown.begin(), shown.end());
  const std::set<const Section*> scripts(json_sections().begin(), json_sections().end());
  EXPECT_EQ(people.size(), shown.size());
  EXPECT_EQ(scripts.size(), json_sections().size());
  std::set<std::string_view> ids;
  for (const Section* section : shown) {
    EXPECT_TRUE(ids.insert(section->id).second) << section->id;
    EXPECT_EQ(section->add_json != nullptr, scripts.contains(section)) << section->id;
  }
  for (const Section* section : scripts) EXPECT_TRUE(people.contains(section)) << section->id;
}

TEST(Sections, ColumnsReadRowsThatTheJsonHas) {
  testing::TraceBuilder b;
  const int64_t id = b.op("aten::mm", 0, 5000).external_id;
  b.kernel("ampere_sgemm_128x64_tn", 1000, 4000, id);
  EXPECT_GT(checked_tables(b.trace), 0U);
}

TEST(Sections, OfARealTraceTooHaveRowsThatTheJsonHas) {
  constexpr std::string_view name = "tracelens/h100_qwen_0.5b.json.gz";
  if (!testing::has_real_trace(name)) GTEST_SKIP() << "no " << name;
  EXPECT_GT(checked_tables(read_trace(testing::real_trace_path(name)).value()), 10U);
}

}  // namespace epilogue::trace::sections_test
