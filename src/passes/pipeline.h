// SPDX-License-Identifier: Apache-2.0
// The pass pipeline: an array of named passes, a driver that verifies after each, and notes that
// say what was done, what was not, and why.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/fusion_choices.h"
#include "graph/graph.h"

namespace epilogue::passes {

// One thing that a pass did, or decided against.
struct Note {
  std::string pass;
  std::string what;    // "aten::gelu into the product %4"
  std::string reason;  // why not; empty where it was done
  double bytes_saved = 0;
  int launches_saved = 0;
  bool done() const { return reason.empty(); }
};

struct PipelineOptions {
  std::vector<std::string> skip;  // names of passes
  bool collapse_linears = false;  // weights are frozen: products of weights may be computed once
  bool keep_texts = false;        // keep the graph's text after each pass
  Saved saved = Saved::automatic;
  Packed packed = Packed::automatic;
};

// What a pass works with besides the graph.
class PassContext {
 public:
  PassContext(std::string_view pass, const PipelineOptions& options, std::vector<Note>& notes)
      : pass_(pass), options_(options), notes_(notes) {}
  const PipelineOptions& options() const { return options_; }
  void did(std::string what, double bytes_saved, int launches_saved) {
    notes_.push_back({std::string(pass_), std::move(what), "", bytes_saved, launches_saved});
  }
  void declined(std::string what, std::string reason) {
    notes_.push_back({std::string(pass_), std::move(what), std::move(reason)});
  }
  // Drops this pass's notes of what it declined: for another round, that decides anew.
  void forget_declined() {
    std::erase_if(notes_, [this](const Note& n) { return n.pass == pass_ && !n.done(); });
  }

 private:
  std::string_view pass_;
  const PipelineOptions& options_;
  std::vector<Note>& notes_;
};

struct Pass {
  std::string_view name;
  void (*run)(graph::Graph&, PassContext&);
};

// All passes, in their order.
std::span<const Pass> pipeline();

// Throws Error for the first name that is no pass's.
void require_known_names(const std::vector<std::string>& skip);

struct PassRecord {
  std::string name;
  int64_t ns = 0;
  bool skipped = false;
  std::string text;  // the graph after it, where asked for
};
struct PipelineResult {
  std::vector<PassRecord> passes;
  std::vector<Note> notes;
};

// Runs the pipeline and verifies the graph after each pass. Throws Error on a name in `skip` that
// is no pass.
PipelineResult run_pipeline(graph::Graph& graph, const PipelineOptions& options);

}  // namespace epilogue::passes
