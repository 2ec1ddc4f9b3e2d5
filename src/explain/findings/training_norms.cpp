// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// batch_norm(input, weight, bias, running_mean, running_var, training, ...)
struct TrainingNorms : OpVisitor {
  void visit(const VisitedOp& op) override {
    constexpr size_t kTraining = 5;
    if (op.name != "aten::batch_norm" || op.inputs.size() <= kTraining) return;
    if (op.inputs[kTraining].concrete != "True") return;
    if (found.empty()) runs_backward = has_backward(op.trace);
    found.add(op.name, op.event.dur_ns);
  }

  static bool has_backward(const Trace& trace) {
    for (StringId id = 0; id < trace.strings.size(); ++id)
      if (trace.strings[id].find("Backward") != std::string_view::npos) return true;
    return false;
  }

  OpLosses found;
  bool runs_backward = false;
};

void find_training_norms(const Explanation& e, const TrainingNorms& norms,
                         std::vector<Finding>& out) {
  if (norms.runs_backward) return;
  if (auto f = finding_of_op(e, norms.found,
                             "batch norms in training mode take {}, and nothing runs backward",
                             "if this is inference: model.eval() takes the running statistics, and "
                             "no longer changes them"))
    out.push_back(*std::move(f));
}

}  // namespace

constinit const ExplanationRule kTrainingNormsRule = {
    .id = "training-norms",
    .says =
        "what batch norms take that are in training mode in a run without a device and without a "
        "backward pass",
    .said_if =
        [] {
          return "`aten::batch_norm` with `training=True` takes " + share_of_wall() +
                 ", and no name in the trace holds \"Backward\"";
        },
    .visits = visits_of<TrainingNorms, find_training_norms>(),
    .confidence = Confidence::high};

}  // namespace epilogue::trace
