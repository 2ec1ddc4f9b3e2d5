// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

struct PlainAttention : OpVisitor {
  void visit(const VisitedOp& op) override {
    if (op.name == "aten::_scaled_dot_product_attention_math") found.add(op.name, op.event.dur_ns);
  }

  OpLosses found;
};

void find_plain_attention(const Explanation& e, const PlainAttention& attention,
                          std::vector<Finding>& out) {
  auto f = finding_of_op(e, attention.found,
                         "scaled_dot_product_attention runs op by op, which takes {}",
                         "on a CPU the fused kernel takes no dropout: an attention dropout of 0, "
                         "or model.eval() if this is inference");
  if (!f) return;
  f->evidence.front() += ", without its backward pass";
  out.push_back(*std::move(f));
}

}  // namespace

constinit const ExplanationRule kPlainAttentionRule = {
    .id = "plain-attention",
    .says = "that `scaled_dot_product_attention` runs op by op in a run without a device",
    .said_if =
        [] {
          return "`aten::_scaled_dot_product_attention_math` takes " + share_of_wall() +
                 ", with what it calls";
        },
    .visits = visits_of<PlainAttention, find_plain_attention>(),
    .confidence = Confidence::high};

}  // namespace epilogue::trace
