// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/tour_page.h"

#include "base/file.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct Comparison {
  const trace::TraceDiff* diff = nullptr;
  std::string before;  // path of the other trace
};

void write_page(const std::string& path, const std::string& title, const ProfileRun& run,
                const LoadedRun& loaded, const Comparison& with) {
  const std::string file = read_file(run.trace_file).value();
  const trace::Explanation explanation = trace::explain(loaded.trace, loaded.links);
  write_file(path, trace::html_report({.trace = loaded.trace,
                                       .links = loaded.links,
                                       .explanation = explanation,
                                       .title = title,
                                       .embedded = trace::embed_trace(file, run.trace_file),
                                       .diff = with.diff,
                                       .before_path = with.before}))
      .value();
}

}  // namespace

LoadedRun::LoadedRun(const ProfileRun& run)
    : trace(load_trace(run.trace_file)), links(link(trace)) {}

std::string write_step_page(const ProfileRun& run, const std::string& title,
                            const std::string& out_dir) {
  const std::string path = out_dir + "/" + run.tag + ".html";
  write_page(path, title, run, LoadedRun(run), {});
  return path;
}

std::string write_comparison_page(const ProfileRun& before, const ProfileRun& after,
                                  const LoadedRun& loaded_after, const trace::TraceDiff& diff,
                                  const std::string& out_dir) {
  const std::string path = out_dir + "/mlp_eager_to_compile.html";
  write_page(path, "MLP: from eager to compiled", after, loaded_after, {&diff, before.trace_file});
  return path;
}

}  // namespace epilogue::tool
