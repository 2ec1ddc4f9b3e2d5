// SPDX-License-Identifier: Apache-2.0
// A folder with one trace for each rank of a run.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "explain/answer/load.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

bool is_folder(const TraceInput& input);

// The traces of a folder, by name. Throws Error if there is none.
std::vector<std::string> traces_of_folder(const std::string& folder);

// The folder's input with another path.
TraceInput rank_input(const TraceInput& folder, const std::string& path);

struct RankFolder {
  std::vector<std::string> paths;     // of the traces that could be read
  RankDigests digests;                // of the same, in the same order
  std::vector<std::string> left_out;  // files that are no traces, with the reason
};
// Digests of some traces of a folder, without a judgement.
struct RankReading {
  RankFolder folder;         // left_out is empty
  std::vector<size_t> read;  // of the digests, in the paths
  std::vector<std::pair<size_t, Failure>> left_out;
};
// What else is done with a trace while it is held; `input` is the trace's own. Fails the reading if
// it fails.
using RankVisitor = std::function<Status(const TraceInput& input, Trace& trace, const Links& links,
                                         const RankDigest& digest)>;
// Reads one trace after the other and holds no more than one at once. Fails if a file cannot be
// read; one that is no trace is left out.
// `positions`: of the paths in the folder, which has `count` traces.
Result<RankReading> read_digests(const TraceInput& folder, const std::vector<std::string>& paths,
                                 const std::vector<size_t>& positions, size_t count,
                                 PythonFrames frames, const AnswerHooks& hooks,
                                 const RankVisitor& visit = {});
// Warns of what was left out and notes it. Fails if nothing was read. Throws Error if the traces,
// two or more, are not the ranks of one run.
Status judge_folder(const std::string& path, const std::vector<Failure>& left_out,
                    RankFolder& folder, const AnswerHooks& hooks);

// Reads one trace after the other and holds no more than one at once. Files that are no traces are
// left out, with a warning. Fails if another file cannot be read, and if all are left out. Throws
// Error if the traces, two or more, are not the ranks of one run.
Result<RankFolder> read_ranks(const TraceInput& folder, const std::vector<std::string>& paths,
                              PythonFrames frames, const AnswerHooks& hooks,
                              const RankVisitor& visit = {});

// For a trace that is read again, and has been warned of.
AnswerHooks without_warnings(AnswerHooks hooks);

}  // namespace epilogue::trace
