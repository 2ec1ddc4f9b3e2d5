// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::narrow_draws_test {

template <class F>
Graph of_input(F f) {
  return graph_of({zeros({3, 4})}, {}, [f](In x, In) { return f(x[0]); });
}

Tensor draw() {
  const Tensor mask = empty({3, 4});
  run_op(kBernoulli_, {mask}, {0.5});
  return mask;
}

Graph dropped() {
  return of_input([](const Tensor& x) { return neg(dropout(x, 0.25, true)); });
}

const PassCases kCases("narrow_draws",
                       {{"AMaskThatProgramsReadIsBytes", [] { return dropped(); }},
                        {"AMaskThatAProductReadsAsAnOperandIsBytes",
                         [] {
                           return graph_of({zeros({3, 4})}, {zeros({6, 4})}, [](In x, In p) {
                             return dropout(relu(linear(x[0], p[0])), 0.25, true);
                           });
                         }},
                        {"NotOnADevice", [] { return on_cuda(dropped()); }},
                        {"NotAResult",
                         [] {
                           return of_input([](const Tensor& x) {
                             const Tensor mask = draw();
                             return Out{neg(x * mask), mask};
                           });
                         }},
                        {"NotAMaskThatAnOpReads",
                         [] {
                           return of_input([](const Tensor& x) {
                             const Tensor mask = draw();
                             return x * softmax(mask, 0);
                           });
                         }},
                        {"NotTheRowsOfAProduct", [] {
                           return graph_of({zeros({3, 4})}, {zeros({6, 4})}, [](In x, In p) {
                             const Tensor mask = draw();
                             const Tensor y = linear(mask, p[0]);
                             return Out{y, neg(x[0])};
                           });
                         }}});

}  // namespace epilogue::testing::narrow_draws_test
