// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::merge_gemms_test {

// The gate is a result too.
Graph gate_that_is_read() {
  return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({6, 4})}, [](In x, In p) {
    const Tensor gate = linear(x[0], p[0]);
    return Out{gate * linear(x[0], p[1]), gate};
  });
}

const PassCases kCases(
    "merge_gemms",
    {{"GateAndUpAreOneProduct",
      [] {
        return graph_of({zeros({2, 3, 4})}, {zeros({6, 4}), zeros({6, 4}), zeros({4, 6})},
                        [](In x, In p) {
                          const Tensor activated = gelu(linear(x[0], p[0]), Gelu::tanh);
                          return linear(activated * linear(x[0], p[1]), p[2]);
                        });
      }},
     {"BiasesAreOperands",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({6, 4}), zeros({6}), zeros({6})},
                        [](In x, In p) {
                          const Tensor gate = silu(linear(x[0], p[0], p[2]));
                          return gate * linear(x[0], p[1], p[3]);
                        });
      }},
     {"WhatOthersReadOfABranchIsStored", [] { return gate_that_is_read(); }},
     {"NotWhatOthersReadOfABranchOnADevice", [] { return on_cuda(gate_that_is_read()); }},
     {"NotWhereTheRowsDiffer",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 4})}, {zeros({6, 4}), zeros({6, 4})},
                        [](In x, In p) {
                          const Tensor first = linear(x[0], p[0]);
                          return first * linear(x[1], p[1]);
                        });
      }},
     {"NotWhereTheWeightsDifferInSize",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({1, 4})}, [](In x, In p) {
          const Tensor first = linear(x[0], p[0]);
          return first * linear(x[0], p[1]);
        });
      }},
     {"NotWhereOneNeedsTheOther", [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({6, 4})}, [](In x, In p) {
          const Tensor gate = linear(x[0], p[0]);
          return gate * addmm(softmax(gate, -1), x[0], t(p[1]));
        });
      }}});

}  // namespace epilogue::testing::merge_gemms_test
