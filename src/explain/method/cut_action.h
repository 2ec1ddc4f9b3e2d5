// SPDX-License-Identifier: Apache-2.0
// How to compute no more of a result than is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace epilogue::trace {

// An op of whose result little is read.
struct CutResult {
  std::string_view op;           // "aten::linear"
  std::string_view reader;       // what reads the part: "aten::index_select"
  size_t dimensions = 0;         // of the result
  int64_t step = 1;              // of a slice
  bool has_convolution = false;  // the op, or one before it on the same elements
  bool is_graph = false;         // an op before it on the same rows adds by index
};

// "index_add", "scatter_add_", ...: messages of a graph.
bool adds_by_index(std::string_view base);

std::string cut_action(const CutResult& cut);

}  // namespace epilogue::trace
