// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::overlap_epilogues_test {

Graph product(DType dtype, bool overlaps) {
  Graph graph = graph_of({zeros({3, 4}, dtype)}, {zeros({6, 4}, dtype)},
                         [](In x, In p) { return relu(linear(x[0], p[0])); });
  graph.capabilities.overlaps_bf16_programs = overlaps;
  return graph;
}

const PassCases kCases("overlap_epilogues",
                       {{"BesideAUnitForBf16Products", [] { return product(DType::bf16, true); }},
                        {"NotForF32", [] { return product(DType::f32, true); }},
                        {"NotWithoutSuchAUnit", [] { return product(DType::bf16, false); }}});

}  // namespace epilogue::testing::overlap_epilogues_test
