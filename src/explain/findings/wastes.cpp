// SPDX-License-Identifier: Apache-2.0
// Is it needed, could it be less? Work that the method shows to be more than the result asks for.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kWasteShown = 0.05;  // of the run; the method looks for no less

static_assert(static_cast<Confidence>(WasteProof::question) == Confidence::low &&
              static_cast<Confidence>(WasteProof::likely) == Confidence::medium &&
              static_cast<Confidence>(WasteProof::shown) == Confidence::high);

template <WasteKind kind>
void find_wastes_of(const Explanation& e, std::vector<Finding>& out) {
  for (const Waste& waste : e.method.wastes) {
    if (waste.kind != kind) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = waste.title;
    f.evidence = waste.evidence;
    if (const std::string place = waste.place.text(); !place.empty())
      f.evidence.push_back("most of it" + place);
    advise(f, waste.action);
    f.cost_us = to_us(waste.ns);
    if (waste.saving_ns) f.saving_us = to_us(*waste.saving_ns);
    f.confidence = static_cast<Confidence>(waste.proof);
    for (const auto& [op, ns] : waste.op_ns) claim_op(f, op, ns);
    out.push_back(std::move(f));
  }
}

std::string and_share(std::string_view condition) {
  return fmt::format("{}; {} of the time or more", condition, percent_text(kWasteShown));
}

}  // namespace

constinit const ExplanationRule kGrownSequenceRule = {
    .id = "grown-sequence",
    .says =
        "that each pass runs over the whole sequence before it again (decoding without a KV cache)",
    .said_if =
        [] {
          return and_share(
              "rows of products with the same weight grow by the same number 6 times in a row "
              "within a step, at most by an eighth of the longest, while `aten::cat` extends a "
              "tensor as often; 12 times without that, low confidence");
        },
    .find = find_wastes_of<WasteKind::grown_sequence>};

constinit const ExplanationRule kUnreadGradientRule = {
    .id = "unread-gradient",
    .says = "that the backward pass computes gradients of parameters which no optimizer trains",
    .said_if =
        [] {
          return and_share(
              "in every step, of one backward pass each, some gradients are added to what was "
              "there and others are new; the nodes behind the last new one");
        },
    .find = find_wastes_of<WasteKind::unread_gradient>};

constinit const ExplanationRule kConstantMatrixRule = {
    .id = "constant-matrix",
    .says =
        "that products with one large square matrix of data take the time: it may be mostly zeros",
    .said_if =
        [] {
          return and_share(
              "`mm` outside of `linear` whose left operand is square, 256 rows or more, four times "
              "as wide as the right one; no other op reads or makes a tensor of its sizes, and it "
              "gets no gradient");
        },
    .find = find_wastes_of<WasteKind::constant_matrix>};

constinit const ExplanationRule kUnfoldedConvolutionRule = {
    .id = "unfolded-convolution",
    .says = "that a convolution is written as unfold and a product",
    .said_if =
        [] {
          return and_share(
              "a product is among the 8 outermost ops after `im2col` or two `unfold`; the patches "
              "and copies, forward and backward, without the products");
        },
    .find = find_wastes_of<WasteKind::unfolded_convolution>};

constinit const ExplanationRule kCutResultRule = {
    .id = "cut-result",
    .says = "that a product or an elementwise op computes far more than what is read of its result",
    .said_if =
        [] {
          return and_share(
              "slices, selections, `diagonal`, `index` or `gather` among the next 12 outermost ops "
              "read a quarter of its result or less, and no other op reads a tensor of these "
              "sizes; of norms and softmax along another dimension than the last");
        },
    .find = find_wastes_of<WasteKind::cut_result>};

constinit const ExplanationRule kUntrainedForwardRule = {
    .id = "untrained-forward",
    .says =
        "that a part of each training step's forward pass is not trained: its results may be "
        "computed once, or elsewhere",
    .said_if =
        [] {
          return std::string(
              "ops before the backward pass that make no autograd node take 10 % of the time or "
              "more; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::untrained_forward>};

}  // namespace epilogue::trace
