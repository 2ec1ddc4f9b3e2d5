// SPDX-License-Identifier: Apache-2.0
#include "autograd/tape.h"

#include "autograd/node.h"

namespace epilogue {

void Tape::on_op(const Call& call) {
  Tensor& result = call.out[0];
  if (!is_floating(result.dtype())) return;
  ThreadState& state = thread_state();
  auto node = std::make_shared<Node>();
  node->op = &call.op;
  node->sequence_nr = state.sequence_nr++;
  node->thread_id = current_thread_id();
  node->attrs.assign(call.attrs.begin(), call.attrs.end());
  node->out_meta = {result.sizes(), result.dtype()};
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Tensor& t = call.in[i];
    node->next.push_back(is_floating(t.defined() ? t.dtype() : DType::i64) ? gradient_edge(t)
                                                                           : nullptr);
    node->in_meta.push_back(t.defined() ? OutMeta{t.sizes(), t.dtype()} : OutMeta{{}, DType::f32});
    // Beyond 31 inputs (cat) there are no bits, and nothing to save.
    const bool save =
        i < 31 && (call.op.saves & save_input(static_cast<int>(i))) != 0 && t.defined();
    node->saved_in.push_back(save ? SavedTensor{t, t.version()} : SavedTensor{});
  }
  if ((call.op.saves & kSaveOutput) != 0)
    for (const Tensor& t : call.out) node->saved_out.push_back({detached(t), t.version(), true});
  // An op may hand back its input (a reshape that changes nothing): the result then needs an
  // identity of its own, or the input's place in the graph would be lost.
  for (const Tensor& t : call.in)
    if (t.is_same(result)) result = detached(result);
  result.impl()->requires_grad = true;
  grad_meta(result).grad_fn = std::move(node);
}

void install_tape() {
  static Tape tape;
  set_tape_observer(&tape);
}

}  // namespace epilogue
