// SPDX-License-Identifier: Apache-2.0
// The explanation as one page.
#include "epilogue/trace/report.h"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/units.h"
#include "epilogue/base/error.h"
#include "epilogue/trace/diff.h"
#include "explain/answer/cpu_choice.h"
#include "explain/answer/load.h"
#include "explain/answer/rank_folder.h"
#include "explain/findings/explain_ranks.h"
#include "explain/render/document.h"
#include "trace/nsys/nsys_reader.h"

namespace epilogue::trace {
namespace {

Result<EmbeddedTrace> embedded_trace(const TraceInput& input, const ReportAnswerOptions& options) {
  if (!options.embeds_trace) return EmbeddedTrace{};
  if (is_stdin(input))
    return EmbeddedTrace{.note = "The trace is not in this page: it was read from a pipe."};
  std::optional<MappedFile> file;
  std::string_view content;
  if (input.bytes) {
    content = *input.bytes;
  } else {
    Result<MappedFile> opened = MappedFile::open(input.path);
    if (!opened) return opened.failure();
    file.emplace(std::move(opened).value());
    const std::span<const std::byte> bytes = file->bytes();
    content = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  if (content.starts_with(kSqliteMagic))
    return EmbeddedTrace{.note = "The trace is not in this page: viewers read no SQLite database."};
  EmbeddedTrace embedded = embed_trace(content, input.name.empty() ? input.path : input.name);
  if (is_part(input) && !embedded.gzip.empty())
    embedded.note = "The page shows a part of the trace; the trace in it is the whole file.";
  return embedded;
}

Document outcome(const std::string& file, size_t bytes, const EmbeddedTrace& embedded) {
  const bool has_trace = !embedded.gzip.empty();
  std::string lines = fmt::format("{}: {}, {}\n", file, format_bytes(static_cast<double>(bytes)),
                                  has_trace ? "the trace included" : "without the trace");
  if (!embedded.note.empty()) lines += embedded.note + "\n";
  Document document = {preformatted(lines)};
  document.facts = {{"file", file},
                    {"bytes", static_cast<int64_t>(bytes)},
                    {"has_trace", has_trace},
                    {"note", embedded.note}};
  return document;
}

Result<ReportAnswer> report_file(const TraceInput& input, const std::string& out,
                                 const ReportAnswerOptions& options, const AnswerHooks& hooks) {
  const std::optional<CpuPeaks> cpu = peaks_of_choice(options.cpu);
  const Result<Trace> loaded = load_trace(input, frames_for(options.modules), hooks);
  if (!loaded) return loaded.failure();
  const Trace& trace = loaded.value();
  const Links links = link(trace);
  poll(hooks);
  const Explanation explanation =
      explain(trace, links, ExplainOptions{.cpu = cpu, .between = hooks.poll});
  warn_if_unused(options.cpu, trace, explanation, hooks);
  std::optional<Trace> before;  // the difference is made of it
  std::optional<TraceDiff> diff;
  if (options.against) {
    Result<Trace> read = load_trace(*options.against, PythonFrames::counted, hooks);
    if (!read) return read.failure();
    before = std::move(read).value();
    diff = diff_traces(*before, link(*before), trace, links);
  }
  poll(hooks);
  Result<EmbeddedTrace> embedded = embedded_trace(input, options);
  if (!embedded) return embedded.failure();
  HtmlReportInput page_input = {.trace = trace,
                                .links = links,
                                .explanation = explanation,
                                .title = options.title,
                                .embedded = std::move(embedded).value()};
  if (diff) {
    page_input.diff = &*diff;
    page_input.before_path = before->import.path;
  }
  const std::string page = html_report(page_input);
  poll(hooks);
  if (const Status written = write_file(out, page); !written) return written.failure();
  const bool has_trace = !page_input.embedded.gzip.empty();
  return ReportAnswer{Answer(outcome(out, page.size(), page_input.embedded), nullptr),
                      has_trace ? credential_keys(trace) : std::vector<std::string>()};
}

std::string folder_name(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

Result<ReportAnswer> report_folder(const TraceInput& folder, const std::string& out,
                                   const ReportAnswerOptions& options, const AnswerHooks& hooks) {
  const std::vector<std::string> paths = traces_of_folder(folder.path);
  if (paths.size() == 1) return report_file(rank_input(folder, paths.front()), out, options, hooks);
  if (options.against)
    throw Error(folder.path + ": expected one trace to compare with another, got a folder of " +
                std::to_string(paths.size()));
  refuse_for_ranks(options.cpu, folder, paths.size());
  Result<RankFolder> ranks = read_ranks(folder, paths, frames_for(options.modules), hooks);
  if (!ranks) return ranks.failure();
  if (ranks.value().paths.size() == 1)
    return report_file(rank_input(folder, ranks.value().paths.front()), out, options,
                       without_warnings(hooks));
  const RanksExplanation explanation = explain_ranks(ranks.value().digests, ranks.value().left_out);
  const std::string page = ranks_html_report(
      explanation, options.title.empty() ? folder_name(folder.path) : options.title);
  poll(hooks);
  if (const Status written = write_file(out, page); !written) return written.failure();
  EmbeddedTrace none;
  if (options.embeds_trace) none.note = "The traces of ranks are not put into their page.";
  return ReportAnswer{Answer(outcome(out, page.size(), none), nullptr), {}};
}

}  // namespace

Result<ReportAnswer> report_answer(const TraceInput& input, const std::string& out,
                                   const ReportAnswerOptions& options, const AnswerHooks& hooks) {
  return is_folder(input) ? report_folder(input, out, options, hooks)
                          : report_file(input, out, options, hooks);
}

}  // namespace epilogue::trace
