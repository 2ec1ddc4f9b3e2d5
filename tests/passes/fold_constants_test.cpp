// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fold_constants_test {

const PassCases kCases("fold_constants", {{"NumbersAreComputedOnce",
                                           [] {
                                             return graph_of({zeros({4})}, {}, [](In x, In) {
                                               return x[0] * (scalar(2.0) + scalar(3.0));
                                             });
                                           }},
                                          // Each parameter may be written between calls.
                                          {"ParametersAreNoNumbers", [] {
                                             return graph_of(
                                                 {zeros({4})}, {zeros({})},
                                                 [](In x, In p) { return x[0] * (p[0] + 3.0); });
                                           }}});

}  // namespace epilogue::testing::fold_constants_test
