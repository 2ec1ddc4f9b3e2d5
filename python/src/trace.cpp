// SPDX-License-Identifier: Apache-2.0
// The trace half: epilogue/trace/answer.h. Work is done without the interpreter's lock, which is
// taken now and then to see whether Ctrl-C was pressed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "epilogue/trace/answer.h"
#include "epilogue/trace/report.h"
#include "module.h"
#include "trace_source.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace epilogue::python {
namespace {

using trace::Answer;
using trace::AnswerHooks;
using trace::TraceInput;

Source make_source(std::string path, std::optional<nb::bytes> bytes, std::string name,
                   std::optional<int64_t> step, std::optional<double> from_ms,
                   std::optional<double> to_ms) {
  Source source{.path = std::move(path), .bytes = std::move(bytes), .input = {}};
  source.input = {.path = source.path,
                  .name = std::move(name),
                  .step = step,
                  .from_ms = from_ms,
                  .to_ms = to_ms};
  if (source.bytes)
    source.input.bytes = std::string_view(source.bytes->c_str(), source.bytes->size());
  return source;
}

std::optional<TraceInput> input_of(const Source* source) {
  return source == nullptr ? std::nullopt : std::optional(source->input);
}

auto explain(const Source& source, int top, bool modules, std::string cpu, int cpu_threads,
             const Source* capture) {
  const trace::ExplainAnswerOptions options = {.top = top,
                                               .modules = modules,
                                               .cpu = {std::move(cpu), cpu_threads},
                                               .capture = input_of(capture)};
  return unlocked([&](const AnswerHooks& hooks) {
    return trace::explain_answer(source.input, options, hooks);
  });
}

auto shard(const Source& folder, int64_t index, int64_t count, std::string out, bool modules) {
  const trace::ShardAnswerOptions options = {
      .index = index, .count = count, .folder = std::move(out), .modules = modules};
  return unlocked(
      [&](const AnswerHooks& hooks) { return trace::shard_answer(folder.input, options, hooks); });
}

auto merge(const std::vector<std::string>& parts, int top, std::string page, std::string title) {
  const trace::MergeAnswerOptions options = {
      .top = top, .page = std::move(page), .title = std::move(title)};
  return unlocked(
      [&](const AnswerHooks& hooks) { return trace::merge_answer(parts, options, hooks); });
}

auto table(const Source& source, std::string sort_by, std::optional<int> row_limit,
           bool group_by_input_shape, const Source* capture) {
  return unlocked([&](const AnswerHooks& hooks) {
    return trace::table_answer(source.input,
                               {.sort_by = std::move(sort_by),
                                .row_limit = row_limit,
                                .group_by_input_shape = group_by_input_shape,
                                .capture = input_of(capture)},
                               hooks);
  });
}

std::vector<TraceInput> inputs_of(const std::vector<const Source*>& sources) {
  std::vector<TraceInput> inputs;
  for (const Source* source : sources) inputs.push_back(source->input);
  return inputs;
}

auto diff(const Source& before, const Source& after, int top,
          const std::vector<const Source*>& captures) {
  return unlocked([&](const AnswerHooks& hooks) {
    return trace::diff_answer(before.input, after.input,
                              {.top = top, .captures = inputs_of(captures)}, hooks);
  });
}

auto check(const Source& source, const std::vector<std::string>& expressions) {
  auto [check, warnings] = unlocked([&](const AnswerHooks& hooks) {
    return trace::check_answer(source.input, expressions, hooks);
  });
  return std::tuple(std::move(check.answer), check.all_hold, std::move(warnings));
}

auto check_baseline(const std::vector<const Source*>& after,
                    const std::vector<const Source*>& before, double tolerance_pct) {
  auto [compared, warnings] = unlocked([&](const AnswerHooks& hooks) {
    return trace::baseline_answer(inputs_of(before), inputs_of(after),
                                  {.tolerance_pct = tolerance_pct}, hooks);
  });
  return std::tuple(std::move(compared.answer), !compared.has_regression, std::move(warnings));
}

auto quantities(const Source& source) {
  return unlocked(
      [&](const AnswerHooks& hooks) { return trace::quantities_answer(source.input, hooks); });
}

auto report(const Source& source, const std::string& out, const Source* against, std::string title,
            bool embeds_trace, bool modules, bool rank_pages, std::string cpu, int cpu_threads,
            const Source* capture) {
  const trace::ReportAnswerOptions options = {.against = input_of(against),
                                              .title = std::move(title),
                                              .embeds_trace = embeds_trace,
                                              .modules = modules,
                                              .cpu = {std::move(cpu), cpu_threads},
                                              .capture = input_of(capture),
                                              .rank_pages = rank_pages};
  auto [report, warnings] = unlocked([&](const AnswerHooks& hooks) {
    return trace::report_answer(source.input, out, options, hooks);
  });
  return std::tuple(std::move(report.answer), std::move(report.credentials), std::move(warnings));
}

auto memory(const Source& source, const Source* against, std::optional<int> device, int top,
            std::string page) {
  trace::MemoryAnswerOptions options = {.top = top, .device = device, .page = std::move(page)};
  if (against != nullptr) options.against = against->input;
  return unlocked(
      [&](const AnswerHooks& hooks) { return trace::memory_answer(source.input, options, hooks); });
}

std::vector<std::string> sort_keys() {
  const auto keys = trace::sort_keys();
  return {keys.begin(), keys.end()};
}

}  // namespace

void bind_trace(nb::module_& m) {
  // Text of foreign traces may hold anything; the renderers escape or replace it.
  nb::class_<Answer>(m, "Answer")
      .def("text", &Answer::text, "use_bold"_a = false, nb::call_guard<nb::gil_scoped_release>())
      .def("markdown", &Answer::markdown, nb::call_guard<nb::gil_scoped_release>())
      .def("json", &Answer::json, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Source>(m, "Source");
  m.def("source", make_source, "path"_a, "bytes"_a.none(), "name"_a, "step"_a.none(),
        "from_ms"_a.none(), "to_ms"_a.none());
  m.def("explain", explain, "source"_a, "top"_a, "modules"_a, "cpu"_a, "cpu_threads"_a,
        "capture"_a.none());
  m.def("shard", shard, "folder"_a, "index"_a, "count"_a, "out"_a, "modules"_a);
  m.def("merge", merge, "parts"_a, "top"_a, "page"_a, "title"_a);
  m.def("table", table, "source"_a, "sort_by"_a, "row_limit"_a.none(), "group_by_input_shape"_a,
        "capture"_a.none());
  m.def("diff", diff, "before"_a, "after"_a, "top"_a, "captures"_a);
  m.def("check", check, "source"_a, "expressions"_a);
  m.def("check_baseline", check_baseline, "after"_a, "before"_a, "tolerance_pct"_a);
  m.def("quantities", quantities, "source"_a);
  m.def("report", report, "source"_a, "out"_a, "against"_a.none(), "title"_a, "embeds_trace"_a,
        "modules"_a, "rank_pages"_a, "cpu"_a, "cpu_threads"_a, "capture"_a.none());
  m.def("memory", memory, "source"_a, "against"_a.none(), "device"_a.none(), "top"_a, "page"_a);
  m.def("names", [](const std::vector<std::string>& names) { return trace::names_answer(names); });
  m.def("sort_keys", sort_keys);
}

}  // namespace epilogue::python
