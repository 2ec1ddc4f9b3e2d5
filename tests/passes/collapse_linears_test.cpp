// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::collapse_linears_test {

PipelineOptions asked_for() {
  PipelineOptions options;
  options.collapse_linears = true;
  return options;
}

Graph two_linears(int64_t hidden) {
  return graph_of({zeros({3, 4})}, {zeros({hidden, 4}), zeros({4, hidden})},
                  [](In x, In p) { return linear(linear(x[0], p[0]), p[1]); });
}

const PassCases kCases(
    "collapse_linears",
    {{"TwoWeightsAreOne", [] { return two_linears(64); }, asked_for()},
     {"TheSecondsBiasStays",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({64, 4}), zeros({4, 64}), zeros({4})},
                        [](In x, In p) { return linear(linear(x[0], p[0]), p[1], p[2]); });
      },
      asked_for()},
     {"NotABiasBetweenThem",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({64, 4}), zeros({4, 64}), zeros({64})},
                        [](In x, In p) { return linear(linear(x[0], p[0], p[2]), p[1]); });
      },
      asked_for()},
     {"NotUnlessAskedFor", [] { return two_linears(64); }},
     {"NotWhatOthersRead",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({64, 4}), zeros({4, 64})}, [](In x, In p) {
          const Tensor h = linear(x[0], p[0]);
          return Out{linear(h, p[1]), neg(h)};
        });
      },
      asked_for()},
     {"NotWhereItIsNotCheaper", [] { return two_linears(1); }, asked_for()}});

}  // namespace epilogue::testing::collapse_linears_test
