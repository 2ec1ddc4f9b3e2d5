// SPDX-License-Identifier: Apache-2.0
// The trace commands as functions: what `epilogue explain`, table, diff, check, report, memory and
// name print, of files or of bytes in memory. The command, the Python package and embedders share
// them.
//
//   const Answer answer = explain_answer({.path = "trace.json.gz"}).value();
//   std::cout << answer.text();
//
// All are safe to call from several threads. Errors in a trace's file are reported by Result;
// misuse (an unknown key, a bad expectation) throws Error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

struct Document;  // of the library

// Which trace, and which part of it.
struct TraceInput {
  std::string path = {};  // "-": stdin
  // Instead of a path: what such a file holds, plain or gzip. Must outlive the call.
  std::optional<std::string_view> bytes = {};
  // Name of the trace in answers and messages. Empty: the path.
  std::string name = {};
  std::optional<int64_t> step = {};  // ProfilerStep#N alone; as select_step()
  std::optional<double> from_ms = {};
  std::optional<double> to_ms = {};
};

// How a call that takes long speaks with its caller, on the thread of the call.
struct AnswerHooks {
  // One line each: what had to be skipped or is doubtful.
  std::function<void(const std::string&)> warn = {};
  // Called before a trace is read. Its result is called as ReadOptions::progress is, and dies
  // when the trace was read. The traces of a folder have one, with the bytes of all of them.
  std::function<std::function<void(int64_t done, int64_t total)>()> watch_reading = {};
  // Called every few milliseconds while a trace is read, and between the stages after that. What
  // it throws ends the call.
  std::function<void()> poll = {};
};

// Reads a trace and cuts it. Fails where read_trace() and select_step() do, and where not one event
// can be read.
Result<Trace> load_trace(const TraceInput& input, PythonFrames frames = PythonFrames::counted,
                         const AnswerHooks& hooks = {});

// The output of a command. Holds no trace. Copies share it; it is made readable on request, by any
// number of threads.
class Answer {
 public:
  // As on a terminal; headings bold with its escapes where asked for.
  std::string text(bool use_bold = false) const;
  std::string markdown() const;
  // The whole JSON, with its last newline.
  std::string json() const;
  // As RFC 4180 has it; "" where the result is no table (table, check and quantities are).
  std::string csv() const;

  // For the library's use. `data` owns what the document refers to.
  Answer(Document document, std::shared_ptr<const void> data);
  const Document& document() const { return *document_; }

 private:
  std::shared_ptr<const void> data_;
  std::shared_ptr<const Document> document_;
};

// Which CPU recorded a trace of a run without a device: its products are compared with what that
// CPU does at most.
struct CpuChoice {
  // A name for estimate_cpu_peaks(); "here": this machine, as `epilogue info --measure` measured
  // it. Empty: not known, nothing is compared. Throws Error for other names.
  std::string name = {};
  int threads = 0;  // that the run had; 0: all of "here", else one
};

struct ExplainAnswerOptions {
  int top = 10;          // rows of each list in text and Markdown; -1: all. JSON has all
  bool modules = false;  // time per nn.Module, if the trace was recorded with_stack (slower)
  CpuChoice cpu = {};    // warns where the products ran on a device; no choice for a folder
  // A trace of the capture, or of an eager run of the same model: names kernels of replayed graphs
  // (graph_report()). Throws Error for a folder.
  std::optional<TraceInput> capture = {};
};
// A path may be a folder with one trace for each rank of a run.
Result<Answer> explain_answer(const TraceInput& input, const ExplainAnswerOptions& options = {},
                              const AnswerHooks& hooks = {});

// Ranks of one run in parts, for folders that one machine would take too long to read: each part is
// read by a call of its own, anywhere, and written to a file; joined they give what
// explain_answer() gives of the folder, bit for bit.
struct ShardAnswerOptions {
  int64_t index = 1;             // the part, from 1
  int64_t count = 1;             // of so many
  std::string folder = "parts";  // of what is written: part-INDEX-of-COUNT.epart; made if missing
  bool modules = false;          // see ExplainAnswerOptions
};
// Reads the traces INDEX, INDEX + COUNT, ... of the folder, by name. Fails where explain_answer()
// does, and if the file cannot be written. Throws Error if the input is no folder.
Result<Answer> shard_answer(const TraceInput& folder, const ShardAnswerOptions& options,
                            const AnswerHooks& hooks = {});

struct MergeAnswerOptions {
  int top = 10;            // see ExplainAnswerOptions
  std::string page = {};   // the HTML page of all ranks is written here; empty: none
  std::string title = {};  // of the page
};
// Joins all parts of one run, in any order; a path may be a folder with them. Fails if a file is no
// part, or damaged. Throws Error if a part is missing or there twice, and if parts do not go
// together.
Result<Answer> merge_answer(const std::vector<std::string>& parts,
                            const MergeAnswerOptions& options = {}, const AnswerHooks& hooks = {});

struct TableAnswerOptions {
  // One of sort_keys(); empty: by the device's own time where there is any, else the host's.
  std::string sort_by = {};
  std::optional<int> row_limit = {};  // -1: all. Empty: 100; JSON has all
  bool group_by_input_shape = false;
  // See ExplainAnswerOptions::capture: work of replayed graphs is booked to the ops that captured
  // it (KeyAveragesOptions::captured).
  std::optional<TraceInput> capture = {};
};
Result<Answer> table_answer(const TraceInput& input, const TableAnswerOptions& options = {},
                            const AnswerHooks& hooks = {});

struct DiffAnswerOptions {
  int top = 15;  // see ExplainAnswerOptions
  // See ExplainAnswerOptions::capture: kernels of replayed graphs are compared by the ops that
  // captured them. One is of both traces, two are of the one before and the one after. Throws Error
  // for more.
  std::vector<TraceInput> captures = {};
};
Result<Answer> diff_answer(const TraceInput& before, const TraceInput& after,
                           const DiffAnswerOptions& options, const AnswerHooks& hooks = {});
// Without captures.
Result<Answer> diff_answer(const TraceInput& before, const TraceInput& after, int top = 15,
                           const AnswerHooks& hooks = {});

struct CheckAnswer {
  Answer answer;
  std::vector<Judgement> judgements;  // in the order of the expressions
  bool all_hold = false;
};
// Throws Error on an expression that is none, and on an unknown quantity, before it reads.
Result<CheckAnswer> check_answer(const TraceInput& input,
                                 const std::vector<std::string>& expressions,
                                 const AnswerHooks& hooks = {});
// All quantities with their values; without an input their names and meanings alone.
Result<Answer> quantities_answer(const std::optional<TraceInput>& input = {},
                                 const AnswerHooks& hooks = {});

struct BaselineAnswerOptions {
  double tolerance_pct = 2;  // smaller changes do not count
};
struct BaselineAnswer {
  Answer answer;
  bool has_regression = false;
};
// Whether the steps of `after`, some traces of one version, take longer than those of `before`,
// beyond noise: StepComparison. Throws Error if either has no steps, and if they are too few to
// decide.
Result<BaselineAnswer> baseline_answer(const std::vector<TraceInput>& before,
                                       const std::vector<TraceInput>& after,
                                       const BaselineAnswerOptions& options = {},
                                       const AnswerHooks& hooks = {});

struct ReportAnswerOptions {
  std::optional<TraceInput> against = {};  // an earlier trace to compare with
  std::string title = {};                  // of the page; empty: the file's name
  bool embeds_trace = true;                // the page holds the trace's file
  bool modules = false;                    // see ExplainAnswerOptions
  CpuChoice cpu = {};                      // see ExplainAnswerOptions
  // See ExplainAnswerOptions; also of the key averages, and of both traces of a comparison.
  std::optional<TraceInput> capture = {};
  // Of a folder of ranks: also a page for each rank, RUN_ranks/rank_0003.html beside RUN.html, to
  // which the page of all ranks links. Throws Error for one trace.
  bool rank_pages = false;
};
struct ReportAnswer {
  Answer answer;
  // Metadata of the traces in the pages that may be credentials: credential_keys(), each once.
  std::vector<std::string> credentials;
};
// Writes the page to `out`; a missing folder is made. A path may be a folder with one trace for
// each rank of a run; then the page of all ranks holds no trace, and `against` throws Error. Ranks
// are read one after the other, once, and no more than one trace is held; pages appear together,
// when all are written.
Result<ReportAnswer> report_answer(const TraceInput& input, const std::string& out,
                                   const ReportAnswerOptions& options = {},
                                   const AnswerHooks& hooks = {});

struct MemoryAnswerOptions {
  int top = 10;                    // rows of each list in text and Markdown; -1: all. JSON has all
  std::optional<int> device = {};  // this one alone; -1: pinned memory of the host
  std::optional<TraceInput> against = {};  // an earlier snapshot to compare with
  std::string page = {};                   // the HTML page is written here; empty: none
  std::string title = {};                  // of the page; empty: the file's name
};
// What a memory snapshot of PyTorch says (epilogue/trace/memory_snapshot.h): the input is a pickle;
// its part (step, from_ms, to_ms) is not looked at. Fails where read_memory_snapshot() does. Throws
// Error if the snapshot does not have the device.
Result<Answer> memory_answer(const TraceInput& input, const MemoryAnswerOptions& options = {},
                             const AnswerHooks& hooks = {});

// Decoded kernel names; a list.
Answer names_answer(std::span<const std::string> names);

}  // namespace epilogue::trace

#pragma GCC visibility pop
