// SPDX-License-Identifier: Apache-2.0
// What the tests of passes share: a function's graph, and its text after some passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/capture.h"
#include "graph/print.h"
#include "ops/op_testing.h"
#include "passes/passes.h"

namespace epilogue::testing {

using graph::Graph;

inline size_t count_of(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

inline Graph capture(const graph::Function& f, std::vector<Tensor> in) {
  return graph::capture(f, in);
}
inline std::vector<Tensor> one(Tensor t) { return {std::move(t)}; }

// The graph after the passes up to and including `last`.
struct After {
  std::string text;
  std::vector<passes::Note> notes;
};
inline After after(Graph g, std::string_view last, passes::PipelineOptions options = {}) {
  bool reached = false;
  for (const passes::Pass& pass : passes::pipeline()) {
    if (reached) options.skip.emplace_back(pass.name);
    reached = reached || pass.name == last;
  }
  EXPECT_TRUE(reached) << last;
  After result;
  result.notes = passes::run_pipeline(g, options).notes;
  result.text = graph::to_text(g);
  return result;
}

inline std::string reason_of(const After& a, std::string_view pass) {
  for (const passes::Note& note : a.notes)
    if (note.pass == pass && !note.done()) return note.reason;
  return "";
}

}  // namespace epilogue::testing
