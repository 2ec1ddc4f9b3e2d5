// SPDX-License-Identifier: Apache-2.0
// Expectations of a trace, and the quantities that they may name.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "explain/answer/expectations.h"
#include "explain/answer/load.h"
#include "explain/render/document.h"

namespace epilogue::trace {
namespace {

// Six digits, but none before the point is cut; of times in us, no nanosecond.
std::string shown(double value) {
  constexpr double kThreeDigits = 1e3;
  if (std::abs(value) < kThreeDigits) return fmt::format("{:.6g}", value);
  return fmt::format("{:.{}f}", value, value == std::floor(value) ? 0 : 3);
}

std::string found_text(const Judgement& j) {
  return j.found ? shown(*j.found) : "unknown: this trace cannot give it";
}

Value value_or_null(const std::optional<double>& value) { return value ? Value(*value) : Value(); }

// `with_values`: of a trace; without one there are names, and no values.
Document quantities_document(const std::vector<Quantity>& all, bool with_values) {
  Table table{.key = "quantities"};
  table.columns = {
      {.key = "name", .header = "quantity", .width = 26},
      {.header = "here", .width = 14, .is_left_aligned = false, .is_for_people = with_values},
      {.key = "doc", .header = "meaning", .gap = with_values ? 2U : 1U},
      {.key = "value", .is_for_people = false}};
  for (const Quantity& q : all)
    table.rows.push_back({{q.name, q.name, "`" + q.name + "`"},
                          {q.value ? shown(*q.value) : "unknown"},
                          {q.doc, q.doc},
                          {"", value_or_null(with_values ? q.value : std::nullopt)}});
  return {std::move(table)};
}

Document judgements_document(const std::vector<Judgement>& judgements, bool all_hold) {
  Table table{.key = "expectations"};
  table.columns = {{.width = 5},
                   {.key = "expr", .header = "expected"},
                   {.key = "expected", .is_for_people = false},
                   {.key = "found", .header = "found", .is_left_aligned = false},
                   {.key = "holds", .is_for_people = false}};
  for (const Judgement& j : judgements) {
    const std::string& text = j.expectation.text;
    table.rows.push_back({{j.holds ? "holds" : "FAILS"},
                          {text + ": found", text, "`" + text + "`"},
                          {"", j.expectation.expected},
                          {found_text(j), value_or_null(j.found)},
                          {"", j.holds}});
  }
  Document document = {std::move(table)};
  document.facts = {{"holds", all_hold}};
  return document;
}

}  // namespace

Result<CheckAnswer> check_answer(const TraceInput& input,
                                 const std::vector<std::string>& expressions,
                                 const AnswerHooks& hooks) {
  const std::vector<Expectation> expectations = parse_expectations("EXPR", expressions);
  const Result<Trace> trace = load_trace(input, PythonFrames::counted, hooks);
  if (!trace) return trace.failure();
  const std::vector<Quantity> all = quantities(trace.value());
  std::vector<Judgement> judgements;
  bool all_hold = true;
  for (const Expectation& e : expectations) {
    judgements.push_back(judge(e, all));
    all_hold = all_hold && judgements.back().holds;
  }
  Answer answer(judgements_document(judgements, all_hold), nullptr);
  return CheckAnswer{std::move(answer), std::move(judgements), all_hold};
}

Result<Answer> quantities_answer(const std::optional<TraceInput>& input, const AnswerHooks& hooks) {
  if (!input) return Answer(quantities_document(quantities(Trace()), false), nullptr);
  const Result<Trace> trace = load_trace(*input, PythonFrames::counted, hooks);
  if (!trace) return trace.failure();
  return Answer(quantities_document(quantities(trace.value()), true), nullptr);
}

}  // namespace epilogue::trace
