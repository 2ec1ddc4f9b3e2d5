// SPDX-License-Identifier: Apache-2.0
// What changed between two traces.
#include "epilogue/trace/diff.h"

#include "explain/answer/load.h"
#include "explain/render/documents.h"

namespace epilogue::trace {

Result<Answer> diff_answer(const TraceInput& before, const TraceInput& after, int top,
                           const AnswerHooks& hooks) {
  const Result<Trace> a = load_trace(before, PythonFrames::counted, hooks);
  if (!a) return a.failure();
  const Result<Trace> b = load_trace(after, PythonFrames::counted, hooks);
  if (!b) return b.failure();
  const Links a_links = link(a.value());
  const Links b_links = link(b.value());
  poll(hooks);
  auto diff =
      std::make_shared<const TraceDiff>(diff_traces(a.value(), a_links, b.value(), b_links));
  return Answer(diff_document(*diff, top), diff);
}

}  // namespace epilogue::trace
