// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::flows_test {

using testing::TraceBuilder;

void sequence(TraceBuilder& b, int64_t number, Scope scope = Scope::function, int64_t fwd_tid = 0) {
  b.last_args().sequence_number = number;
  b.last_args().scope = scope;
  b.last_args().fwd_tid = fwd_tid;
}

// linear (4) > t (4), addmm (5), as a forward pass records it.
TraceBuilder forward() {
  TraceBuilder b;
  b.op("aten::linear", 0, 100, 7);
  sequence(b, 4);
  b.op("aten::t", 10, 20, 7);
  sequence(b, 4);
  b.op("aten::addmm", 30, 90, 7);
  sequence(b, 5);
  return b;
}

TEST(ForwardBackward, JoinsTheLastForwardOpOfANumber) {
  TraceBuilder b = forward();
  b.op("autograd::engine::evaluate_function: AddmmBackward0", 200, 300, 8);
  sequence(b, 5);  // scope function: no end of an arrow
  b.op("AddmmBackward0", 210, 290, 8);
  sequence(b, 5, Scope::backward_function, 7);
  b.op("TBackward0", 310, 320, 8);
  sequence(b, 4, Scope::backward_function, 7);
  link_forward_backward(b.trace);
  ASSERT_EQ(b.trace.flows.size(), 2U);
  EXPECT_EQ(b.trace.flows[0].id, 1);
  EXPECT_EQ(b.trace.flows[0].start.ts_ns, 30);  // addmm
  EXPECT_EQ(b.trace.flows[0].start.tid, 7);
  EXPECT_EQ(b.trace.flows[0].end.ts_ns, 210);
  EXPECT_EQ(b.trace.flows[0].end.tid, 8);
  EXPECT_EQ(b.trace.flows[1].id, 2);
  EXPECT_EQ(b.trace.flows[1].start.ts_ns, 10);  // t, not linear
  EXPECT_EQ(b.trace.flows[1].end.ts_ns, 310);
}

TEST(ForwardBackward, BackwardOnTheForwardThread) {
  TraceBuilder b = forward();
  b.op("autograd::engine::evaluate_function: AddmmBackward0", 200, 300, 7);
  sequence(b, 5, Scope::function, 7);
  b.op("AddmmBackward0", 210, 290, 7);
  sequence(b, 5, Scope::backward_function, 7);
  link_forward_backward(b.trace);
  ASSERT_EQ(b.trace.flows.size(), 1U);
  EXPECT_EQ(b.trace.flows[0].start.ts_ns, 30);
  EXPECT_EQ(b.trace.flows[0].end.ts_ns, 210);
}

TEST(ForwardBackward, NeedsThreadAndNumberToMatch) {
  TraceBuilder b = forward();
  b.op("AddmmBackward0", 210, 290, 8);
  sequence(b, 5, Scope::backward_function, 6);  // another thread
  b.op("AddmmBackward0", 310, 390, 8);
  sequence(b, 9, Scope::backward_function, 7);  // another number
  b.op("AddmmBackward0", 410, 490, 8);
  sequence(b, -1, Scope::backward_function, 7);
  b.op("AddmmBackward0", 1, 2, 8);  // before the forward op ran
  sequence(b, 5, Scope::backward_function, 7);
  link_forward_backward(b.trace);
  EXPECT_TRUE(b.trace.flows.empty());
}

}  // namespace epilogue::trace::flows_test
