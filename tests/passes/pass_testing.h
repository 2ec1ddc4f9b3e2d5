// SPDX-License-Identifier: Apache-2.0
// Tests that read like the pass: a list of cases, each a graph; golden/PASS.txt holds their texts
// as a diff of before and after the pass, and its notes.
#pragma once

#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/backend.h"
#include "graph/capture.h"
#include "graph/print.h"
#include "ops/op_testing.h"
#include "passes/pipeline.h"

namespace epilogue::testing {

using graph::Graph;
using passes::PipelineOptions;

// Inputs, parameters, results.
using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;

// The graph of `f(inputs, parameters)`, which gives a tensor or several. Operands of a C++ operator
// are evaluated in any order: what is one must have a name, so that the graph is the same.
template <class F>
Graph graph_of(std::vector<Tensor> inputs, std::vector<Tensor> parameters, F f) {
  const auto call = [&](In in) {
    if constexpr (std::is_same_v<std::invoke_result_t<F, In, In>, Tensor>) {
      return Out{f(in, parameters)};
    } else {
      return f(in, parameters);
    }
  };
  Graph graph = graph::capture(call, inputs);
  // The same on every machine.
  graph.capabilities = {.chains_store_values = true,
                        .programs_read_masks = true,
                        .programs_repeat_rows = true,
                        .programs_reduce = true,
                        .fused_kernels = cpu_backend().capabilities().fused_kernels};
  return graph;
}

// Of a graph whose further results are gradients.
inline Graph with_backward(Graph graph, size_t results) {
  graph::mark_backward(graph, results);
  return graph;
}

inline Graph on_cuda(Graph graph) {
  graph.device = {DeviceType::cuda, 0};
  graph.capabilities = {};
  return graph;
}

// After a whole pipeline but for the passes named.
inline Graph after_pipeline(Graph graph, PipelineOptions options = {}) {
  passes::run_pipeline(graph, options);
  return graph;
}

struct PassCase {
  std::string name;
  std::function<Graph()> graph;  // runs through the passes before this one first
  PipelineOptions options = {};
};

// Registers a test per case, PASS.NAME, and one that the golden file holds nothing else.
class PassCases {
 public:
  PassCases(std::string_view pass, std::vector<PassCase> cases,
            std::source_location where = std::source_location::current());
};

}  // namespace epilogue::testing
