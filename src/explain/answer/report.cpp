// SPDX-License-Identifier: Apache-2.0
// The explanation as one page.
#include "epilogue/trace/report.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/units.h"
#include "epilogue/base/error.h"
#include "epilogue/trace/diff.h"
#include "explain/answer/cpu_choice.h"
#include "explain/answer/load.h"
#include "explain/answer/rank_folder.h"
#include "explain/answer/rank_pages.h"
#include "explain/findings/explain_ranks.h"
#include "explain/render/document.h"
#include "explain/render/json_numbers.h"
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
  Result<Trace> loaded = load_trace(input, frames_for(options.modules), hooks);
  if (!loaded) return loaded.failure();
  Trace& trace = loaded.value();
  const Result<std::optional<GraphReference>> capture = read_capture(options.capture, hooks);
  if (!capture) return capture.failure();
  const GraphReference* const reference = capture.value() ? &*capture.value() : nullptr;
  const Links links = link(trace);
  poll(hooks);
  // The page's other parts show the trace's own times.
  const Explanation explanation = explain_without_pauses(
      trace, links, {.cpu = cpu, .capture = reference, .between = hooks.poll});
  std::array<std::optional<CapturedOps>, 2> captured;  // of the earlier trace and this one
  if (reference != nullptr) captured[1] = captured_ops(trace, links, reference);
  if (reference != nullptr && explanation.graphs.is_empty())
    warn_of_capture(explanation.path, hooks);
  warn_if_unused(options.cpu, trace, explanation, hooks);
  std::optional<Trace> before;  // the difference is made of it
  std::optional<TraceDiff> diff;
  if (options.against) {
    Result<Trace> read = load_trace(*options.against, PythonFrames::counted, hooks);
    if (!read) return read.failure();
    before = std::move(read).value();
    const Links before_links = link(*before);
    if (reference != nullptr) captured[0] = captured_ops(*before, before_links, reference);
    diff = diff_traces(*before, before_links, trace, links,
                       {.captured = {captured[0] ? &*captured[0] : nullptr,
                                     captured[1] ? &*captured[1] : nullptr}});
  }
  poll(hooks);
  Result<EmbeddedTrace> embedded = embedded_trace(input, options);
  if (!embedded) return embedded.failure();
  HtmlReportInput page_input = {.trace = trace,
                                .links = links,
                                .explanation = explanation,
                                .title = options.title,
                                .embedded = std::move(embedded).value(),
                                .captured = captured[1] ? &*captured[1] : nullptr};
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

// The page of one rank of several, while its trace is held.
Status write_rank_page(const TraceInput& input, Trace& trace, const Links& links,
                       const std::string& title, const ReportAnswerOptions& options,
                       const AnswerHooks& hooks, RankPages& pages) {
  const Explanation explanation = explain_without_pauses(trace, links, {.between = hooks.poll});
  Result<EmbeddedTrace> embedded = embedded_trace(input, options);
  if (!embedded) return embedded.failure();
  const bool has_trace = !embedded.value().gzip.empty();
  const std::string page = html_report({.trace = trace,
                                        .links = links,
                                        .explanation = explanation,
                                        .title = title,
                                        .embedded = std::move(embedded).value(),
                                        .ranks_page = pages.path_to_report()});
  poll(hooks);
  if (has_trace) pages.add_credentials(credential_keys(trace));
  return pages.add(page);
}

// With pages of ranks.
Document ranks_outcome(Document document, const RankPages& pages) {
  std::get<Preformatted>(document.blocks.front()) = preformatted(
      std::get<Preformatted>(document.blocks.front()).text +
      fmt::format("{}: {}, {}\n", pages.folder(),
                  counted(std::ssize(pages.list()), "page of a rank", "pages of ranks"),
                  format_bytes(static_cast<double>(pages.bytes()))));
  nlohmann::ordered_json json = {{"schema_version", kJsonSchemaVersion}};
  for (const auto& [key, value] : document.facts)
    std::visit(
        [&, &name = key](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
            json[name] = nullptr;
          else
            json[name] = v;
        },
        value);
  json["rank_pages"] = nlohmann::ordered_json::array();
  for (const RankPages::Page& page : pages.list())
    json["rank_pages"].push_back({{"rank", page.rank}, {"file", page.file}, {"bytes", page.bytes}});
  document.json = [json = std::move(json)] { return dump_json(json); };
  return document;
}

Result<ReportAnswer> report_folder(const TraceInput& folder, const std::string& out,
                                   const ReportAnswerOptions& options, const AnswerHooks& hooks) {
  const std::vector<std::string> paths = traces_of_folder(folder.path);
  if (paths.size() == 1) return report_file(rank_input(folder, paths.front()), out, options, hooks);
  if (options.against)
    throw Error(folder.path + ": expected one trace to compare with another, got a folder of " +
                std::to_string(paths.size()));
  refuse_for_ranks(options.cpu, folder, paths.size());
  if (options.capture) refuse_capture_for_ranks(folder.path, paths.size());
  const std::string title = options.title.empty() ? folder_name(folder.path) : options.title;
  RankPages pages(out);
  RankVisitor visit;
  if (options.rank_pages)
    visit = [&](const TraceInput& input, Trace& trace, const Links& links,
                const RankDigest& digest) {
      const int64_t rank = pages.begin(digest.identity.rank);
      return write_rank_page(input, trace, links, fmt::format("{}: rank {}", title, rank), options,
                             hooks, pages);
    };
  Result<RankFolder> ranks = read_ranks(folder, paths, frames_for(options.modules), hooks, visit);
  if (!ranks) return ranks.failure();
  if (ranks.value().paths.size() == 1)
    return report_file(rank_input(folder, ranks.value().paths.front()), out, options,
                       without_warnings(hooks));
  const RanksExplanation explanation = explain_ranks(ranks.value().digests, ranks.value().left_out);
  const std::string page = ranks_html_report(explanation, title, pages.relative_paths());
  poll(hooks);
  if (const Status written = pages.commit(); !written) return written.failure();
  if (const Status written = write_file(out, page); !written) return written.failure();
  EmbeddedTrace none;
  if (options.embeds_trace && !options.rank_pages)
    none.note = "The traces of ranks are not put into their page.";
  Document document = outcome(out, page.size(), none);
  if (options.rank_pages) document = ranks_outcome(std::move(document), pages);
  return ReportAnswer{Answer(std::move(document), nullptr), pages.credentials()};
}

}  // namespace

Result<ReportAnswer> report_answer(const TraceInput& input, const std::string& out,
                                   const ReportAnswerOptions& options, const AnswerHooks& hooks) {
  if (is_folder(input)) return report_folder(input, out, options, hooks);
  if (options.rank_pages)
    throw Error(
        fmt::format("{}: expected a folder with one trace for each rank, to write a page "
                    "of each, got one trace",
                    input.name.empty() ? input.path : input.name));
  return report_file(input, out, options, hooks);
}

}  // namespace epilogue::trace
