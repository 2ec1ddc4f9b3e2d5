// SPDX-License-Identifier: Apache-2.0
// Could it be less? Results of which a part is read, and work that each round does again.
#include "explain/findings/index.h"
#include "explain/findings/waste_rules.h"

namespace epilogue::trace {

constinit const ExplanationRule kLeftRowsRule = {
    .id = "left-rows",
    .says =
        "that layers compute rows (tokens, patches, places) that a gather behind them leaves out",
    .said_if =
        [] {
          return and_share(
              "`gather`, `index_select` or `take_along_dim` reads half of the rows of [batch, "
              "rows, "
              "columns] or less behind 3 linear layers or more on them, nothing else reads these "
              "rows; the layers compute each row alone, or attend under a mask (a question), or, "
              "in training, attend causally for one row each while the batch is a multiple of the "
              "rows (a question)");
        },
    .find = find_wastes_of<WasteKind::left_rows>,
    .is_needless = true};

constinit const ExplanationRule kSpreadTableRule = {
    .id = "spread-table",
    .says =
        "that rows of a small table are written for each pair (relative positions) before a "
        "product reads them",
    .said_if =
        [] {
          return and_share(
              "`embedding`, `index` or `index_select` with [n, m] ids, 4,096 or more, 4 for each "
              "row of the table or more, of a table of n + m rows or less; `einsum`, `bmm` or "
              "`matmul` reads the result within 4 ops; forward and backward");
        },
    .find = find_wastes_of<WasteKind::spread_table>,
    .is_needless = true};

constinit const ExplanationRule kWideSampleRule = {
    .id = "wide-sample",
    .says =
        "that small images are sampled at all points of a large one, most of which may lie "
        "outside",
    .said_if =
        [] {
          return and_share(
              "`grid_sampler` has 16 points or more for each pixel of two images or more; with the "
              "ops on the samples; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::wide_sample>,
    .is_needless = true};

constinit const ExplanationRule kChangedPartRule = {
    .id = "changed-part",
    .says = "that a product of the whole is computed again after a part of it changed",
    .said_if =
        [] {
          return and_share(
              "the same product 8 times in a row within a step or more, and each time an op in "
              "place wrote a sixteenth of its smaller operand or less in between");
        },
    .find = find_wastes_of<WasteKind::changed_part>,
    .is_needless = true};

constinit const ExplanationRule kGrownSetRule = {
    .id = "grown-set",
    .says =
        "that each round of a loop reduces a set that it computes from the start, and that "
        "grows by one",
    .said_if =
        [] {
          return and_share(
              "elementwise ops, distances and a reduction over the same dimension run 8 times or "
              "more in a step while it grows by the same number each time; no softmax, product or "
              "`cat` stands between");
        },
    .find = find_wastes_of<WasteKind::grown_set>,
    .is_needless = true};

constinit const ExplanationRule kEachOrderRule = {
    .id = "each-order",
    .says = "that a loss is computed for each order of a few parts, though its pairs are few",
    .said_if =
        [] {
          return and_share(
              "`index` or `index_select` keeps the sizes of a tensor with n parts (8 at most) and "
              "runs n! times in a step, 6 or more; with what follows it, forward and backward");
        },
    .find = find_wastes_of<WasteKind::each_order>,
    .is_needless = true};

}  // namespace epilogue::trace
