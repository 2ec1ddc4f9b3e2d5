// SPDX-License-Identifier: Apache-2.0
// The HTML pages that the tour leaves: one of each step, one of two steps beside each other.
#pragma once

#include <string>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"
#include "tools/epilogue/profile/profile_run.h"

namespace epilogue::tool {

// The trace that a run left.
struct LoadedRun {
  explicit LoadedRun(const ProfileRun& run);
  trace::Trace trace;
  trace::Links links;
};

// Writes OUT_DIR/TAG.html and returns its path. Throws Error where a file cannot be read or
// written, as the other does.
std::string write_step_page(const ProfileRun& run, const std::string& title,
                            const std::string& out_dir);

// Writes OUT_DIR/mlp_eager_to_compile.html and returns its path.
std::string write_comparison_page(const ProfileRun& before, const ProfileRun& after,
                                  const LoadedRun& loaded_after, const trace::TraceDiff& diff,
                                  const std::string& out_dir);

}  // namespace epilogue::tool
