// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::drop_dead_test {

template <class F>
Graph of_input(Dims sizes, F f) {
  return graph_of({zeros(sizes)}, {}, [f](In x, In) { return f(x[0]); });
}

const PassCases kCases(
    "drop_dead", {{"WhatNobodyReadsGoes",
                   [] {
                     return of_input({3}, [](const Tensor& x) {
                       exp(relu(x));
                       return neg(x);
                     });
                   }},
                  {"ViewsThatUndoEachOtherGo",
                   [] {
                     return of_input({3, 4}, [](const Tensor& x) {
                       const Tensor y = relu(x);
                       const Tensor same = t(t(y));
                       return Out{same, neg(view(view(y, {4, 3}), {3, 4}))};
                     });
                   }},
                  {"DrawsThatNobodyReadsStayBeforeThoseBehindThem",
                   [] {
                     return of_input({3, 4}, [](const Tensor& x) {
                       dropout(x, 0.25, true);
                       return dropout(x, 0.5, true);
                     });
                   }},
                  // One row: the sum over rows has the rows' sizes, and is still none of them.
                  {"NotWhatReadsASumOverOneRow",
                   [] {
                     return graph_of({zeros({1, 4})}, {zeros({6, 4})}, [](In x, In p) {
                       const Tensor dh = matmul(x[0], t(p[0]));
                       return Out{dh, neg(sum(dh, {0}, true))};
                     });
                   }},
                  {"NotWhatIsRead", [] {
                     return of_input({3, 4}, [](const Tensor& x) { return softmax(x, -1); });
                   }}});

}  // namespace epilogue::testing::drop_dead_test
