// SPDX-License-Identifier: Apache-2.0
// oneDNN did not take the convolution.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

void find_fallback_convolution(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const OpKnowledge* const fallback = op_knowledge("aten::slow_conv2d");
  for (const HostOp& op : e.host->ops) {
    if (op_knowledge(op.name) != fallback) continue;
    if (!is_notable(*e.host, op.self_ns)) continue;
    const auto item = std::find_if(e.method.items.begin(), e.method.items.end(),
                                   [&](const CostItem& i) { return i.op == op.name; });
    const std::string_view shape = item != e.method.items.end() && !item->shapes.empty()
                                       ? std::string_view(item->shapes.front().text)
                                       : std::string_view();
    const bool is_double = shape.find(" double") != std::string_view::npos;
    const bool is_product = !is_double && shape.find(", 1, 1]") != std::string_view::npos;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("{} takes {}: oneDNN did not take this convolution", op.name,
                          share(*e.host, op.self_ns));
    f.evidence.push_back(calls_text(op.count, op.self_ns));
    f.cost_us = to_us(op.self_ns);
    if (is_double) {
      f.title += ", because it is in float64";
      advise(f,
             "convert model and inputs to float32 (.float(); what comes from numpy or from readers "
             "is float64 often): oneDNN takes it, and every other op reads half of the bytes");
    } else if (is_product) {
      f.title += ", because PyTorch runs kernels of 1 x 1 itself on one thread";
      advise(f,
             "nothing for fewer than 16 samples on one thread: such a convolution is a product; "
             "with more threads or samples oneDNN takes it, if torch.backends.mkldnn.enabled");
    } else {
      advise(
          f,
          "oneDNN takes no float64, bf16 and f16 only on CPUs with instructions for them, and "
          "nothing where torch.backends.mkldnn.enabled is False; PyTorch also keeps tiny float32 "
          "convolutions of one sample from it: measure whether a larger batch, which oneDNN "
          "takes, is faster");
    }
    claim_op(f, op.name, op.self_ns);
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kFallbackConvolutionRule = {
    .id = "fallback-convolution",
    .says = "that oneDNN did not take a convolution",
    .said_if =
        [] {
          return "PyTorch's own (`_slow_conv2d_forward`, `slow_conv_dilated2d`, ...) takes " +
                 share_of_wall();
        },
    .find = find_fallback_convolution};

}  // namespace epilogue::trace
