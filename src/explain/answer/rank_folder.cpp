// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/rank_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "epilogue/base/error.h"
#include "explain/findings/rank_findings.h"

namespace epilogue::trace {
namespace {

// Read, and found to be something else.
bool is_no_trace(const Failure& failure) {
  return failure.code == FailureCode::not_a_trace || failure.code == FailureCode::not_json ||
         failure.code == FailureCode::empty;
}

// One watch over the reading of all files, in bytes of all of them.
class FolderWatch {
 public:
  FolderWatch(const std::vector<std::string>& paths, const AnswerHooks& hooks) : hooks_(hooks) {
    for (const std::string& path : paths) {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(path, error);
      bytes_.push_back(error ? 0 : static_cast<int64_t>(bytes));
      total_ += bytes_.back();
    }
    if (hooks.watch_reading) watch_ = hooks.watch_reading();
  }

  // For the reading of the next file.
  AnswerHooks next_file() {
    AnswerHooks hooks = hooks_;
    const int64_t before = done_;
    const int64_t bytes = bytes_[next_++];
    done_ += bytes;
    if (!watch_) return hooks;
    hooks.watch_reading = [this, before, bytes] {
      return [this, before, bytes](int64_t done, int64_t) {
        watch_(before + std::min(done, bytes), total_);
      };
    };
    return hooks;
  }

 private:
  const AnswerHooks& hooks_;
  std::function<void(int64_t, int64_t)> watch_;
  std::vector<int64_t> bytes_;
  size_t next_ = 0;
  int64_t done_ = 0;  // with the file that is being read
  int64_t total_ = 0;
};

// Nothing of the trace is left when it returns.
Status add_rank(const TraceInput& input, PythonFrames frames, const AnswerHooks& hooks,
                const RankVisitor& visit, RankFolder& folder) {
  Result<Trace> trace = load_trace(input, frames, hooks);
  if (!trace) return trace.failure();
  const Links links = link(trace.value());
  poll(hooks);
  folder.digests.add({trace.value(), links});
  folder.paths.push_back(input.path);
  return visit ? visit(input, trace.value(), links, folder.digests.ranks.back()) : ok_status();
}

// The same, with what its trace alone shows. Frames name the program's functions; the comparison of
// ranks does not see them where other ranks have none.
Status add_explained_rank(const TraceInput& input, PythonFrames frames, bool all_are_explained,
                          const AnswerHooks& hooks, const RankVisitor& visit, RankFolder& folder) {
  const bool reads_frames = frames == PythonFrames::counted;
  Result<Trace> read = load_trace(input, reads_frames ? PythonFrames::beside : frames, hooks);
  if (!read) return read.failure();
  Trace trace = std::move(read).value();
  const Links links = link(trace);
  poll(hooks);
  // The ranks' times are compared as they are.
  const Explanation own = explain_without_pauses(trace, links, {.between = hooks.poll});
  if (reads_frames && !all_are_explained) trace.frames.clear();
  folder.digests.add({trace, links});
  add_own_findings(own, folder.digests.ranks.back());
  folder.paths.push_back(input.path);
  return visit ? visit(input, trace, links, folder.digests.ranks.back()) : ok_status();
}

}  // namespace

bool is_folder(const TraceInput& input) {
  std::error_code ignored;
  return !input.bytes && std::filesystem::is_directory(input.path, ignored);
}

std::vector<std::string> traces_of_folder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    constexpr std::string_view kEnds[] = {".json", ".json.gz", ".sqlite", ".pftrace",
                                          ".pftrace.gz"};
    if (std::ranges::any_of(kEnds, [&](std::string_view end) { return path.ends_with(end); }))
      paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw Error(
        folder +
        ": expected traces (*.json, *.json.gz, *.sqlite, *.pftrace), one per rank, got none");
  return paths;
}

TraceInput rank_input(const TraceInput& folder, const std::string& path) {
  TraceInput input = folder;
  input.path = path;
  return input;
}

Result<RankReading> read_digests(const TraceInput& folder, const std::vector<std::string>& paths,
                                 const std::vector<size_t>& positions, size_t count,
                                 PythonFrames frames, const AnswerHooks& hooks,
                                 const RankVisitor& visit) {
  RankReading result;
  FolderWatch watch(paths, hooks);
  for (size_t i = 0; i < paths.size(); ++i) {
    const TraceInput input = rank_input(folder, paths[i]);
    const AnswerHooks its_hooks = watch.next_file();
    const Status added =
        is_explained_rank(positions[i], count)
            ? add_explained_rank(input, frames, count <= 3, its_hooks, visit, result.folder)
            : add_rank(input, frames, its_hooks, visit, result.folder);
    // Without a rank that cannot be read the others would mislead.
    if (!added && !is_no_trace(added.failure())) return added.failure();
    if (added)
      result.read.push_back(i);
    else
      result.left_out.emplace_back(i, added.failure());
  }
  return result;
}

Status judge_folder(const std::string& path, const std::vector<Failure>& left_out,
                    RankFolder& folder, const AnswerHooks& hooks) {
  if (folder.paths.empty()) return left_out.front();
  for (const Failure& failure : left_out) {
    warn(hooks, failure.message + "; left out");
    folder.left_out.push_back(failure.message);
  }
  if (const std::string reason = why_not_ranks(folder.digests); !reason.empty())
    throw Error(fmt::format(
        "{}: expected the ranks of one run, got {} traces of different runs: {}; name one trace, "
        "or compare two with epilogue diff A B",
        path, folder.paths.size(), reason));
  return ok_status();
}

Result<RankFolder> read_ranks(const TraceInput& folder, const std::vector<std::string>& paths,
                              PythonFrames frames, const AnswerHooks& hooks,
                              const RankVisitor& visit) {
  std::vector<size_t> positions(paths.size());
  std::iota(positions.begin(), positions.end(), size_t{0});
  Result<RankReading> read =
      read_digests(folder, paths, positions, paths.size(), frames, hooks, visit);
  if (!read) return read.failure();
  RankFolder result = std::move(read.value().folder);
  std::vector<Failure> failures;
  for (const auto& [position, failure] : read.value().left_out) failures.push_back(failure);
  const Status judged = judge_folder(folder.path, failures, result, hooks);
  if (!judged) return judged.failure();
  return result;
}

AnswerHooks without_warnings(AnswerHooks hooks) {
  hooks.warn = nullptr;
  return hooks;
}

}  // namespace epilogue::trace
