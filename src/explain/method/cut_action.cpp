// SPDX-License-Identifier: Apache-2.0
#include "explain/method/cut_action.h"

#include <fmt/format.h>

#include "explain/index/aten_ops.h"

namespace epilogue::trace {

bool adds_by_index(std::string_view base) {
  return base.starts_with("index_add") || base.starts_with("scatter_add") ||
         base.starts_with("scatter_reduce");
}

std::string cut_action(const CutResult& cut) {
  const bool takes_rows = cut.reader == "aten::index" || cut.reader == "aten::index_select" ||
                          cut.reader == "aten::embedding";
  if (takes_rows && cut.is_graph)
    return "compute only what the rows that are read need: of a graph network their neighbourhood "
           "of as many hops as there are layers (torch_geometric.utils.k_hop_subgraph, "
           "NeighborLoader), the last layer for these rows alone; or, if weights and graph stay, "
           "compute the results of all nodes once, keep them, and look rows up";
  if (takes_rows && op_class(cut.op) == OpClass::pointwise)
    return fmt::format(
        "take the rows first and run {} on the rows that were gathered alone (look up or index, "
        "then compute; a mask or a scale of each row by the same index); means and deviations of "
        "the whole, if it does not change, once; or compute the whole once, before the loop, and "
        "keep it",
        cut.op);
  if (cut.has_convolution && cut.step > 1)
    return fmt::format(
        "give the convolution the step: stride={} computes only what is read (times the stride "
        "that it has)",
        cut.step);
  if (cut.has_convolution && cut.reader == "aten::slice")
    return fmt::format(
        "let {} compute no more than is read: padding=0 and F.pad on the side that stays (of a "
        "causal convolution (kernel - 1) * dilation on the left alone, in place of padding on both "
        "sides and a slice behind it), or slice its input to what the part needs",
        cut.op);
  if (cut.has_convolution && (cut.reader == "aten::select" || cut.reader == "aten::index"))
    return fmt::format(
        "crop the input of the network to the receptive field of what is read (the kernels' "
        "reaches summed over all convolutions before {} too), run it on that patch, and take the "
        "place in the patch; if the places are gone through one by one, keep the features of "
        "those before",
        cut.op);
  if (cut.reader == "aten::diagonal" || cut.reader == "aten::trace")
    return "compute the diagonal alone: (a * b.transpose(-1, -2)).sum(-1) (of a trace the sum of "
           "all), or einsum('...ij,...ji->...i', a, b)";
  if (cut.dimensions < 2)
    return fmt::format(
        "cut first: slice before {} and what comes before it; of a file read only the part that "
        "is used (seek, frame_offset and num_frames, a memory map)",
        cut.op);
  return fmt::format(
      "cut first: select the rows or columns that are read before {} (of a language model the last "
      "position: hidden[:, -1], logits_to_keep=1 of transformers)",
      cut.op);
}

}  // namespace epilogue::trace
