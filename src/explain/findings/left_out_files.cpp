// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_left_out(const RanksExplanation& e, std::vector<Finding>& out) {
  if (e.left_out.empty()) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = e.left_out.size() == 1
                ? "1 file of the folder is left out: it cannot be read as a trace"
                : fmt::format("{} files of the folder are left out: they cannot be read as traces",
                              e.left_out.size());
  f.evidence = e.left_out;
  advise(f, "keep the traces of one run alone in the folder, or record these again");
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kLeftOutFilesRule = {
    .id = "left-out-files",
    .says = "which files of the folder cannot be read as traces",
    .said_if = [] { return std::string("there are such files"); },
    .find = find_left_out};

}  // namespace epilogue::trace
