// SPDX-License-Identifier: Apache-2.0
// Could it be less? Results for which what reads them asks for less.
#include "explain/findings/index.h"
#include "explain/findings/waste_rules.h"

namespace epilogue::trace {

constinit const ExplanationRule kShorterFormRule = {
    .id = "shorter-form",
    .says =
        "that what reads a result asks for less than was computed: eigenvalues whose "
        "logarithms are added up, an order that is sorted again, an exponential of a sum of rows "
        "and columns",
    .said_if =
        [] {
          return and_share(
              "eigenvalues or singular values are read next by `log` and `sum`, `prod`, `sum`, "
              "`max` or a sum of squares, or `argsort` by `argsort`; or `exp` reads, scaled by a "
              "number or not, a sum of two tensors that each have a dimension where the other has "
              "1");
        },
    .find = find_wastes_of<WasteKind::shorter_form>,
    .is_needless = true};

constinit const ExplanationRule kResizedTwiceRule = {
    .id = "resized-twice",
    .says = "that images are made larger and then smaller again",
    .said_if =
        [] {
          return and_share(
              "`upsample_*` or pooling reads the result of `upsample_*` next, which has 4 times "
              "the elements of what comes before and behind it or more");
        },
    .find = find_wastes_of<WasteKind::resized_twice>,
    .is_needless = true};

constinit const ExplanationRule kOuterLayerRule = {
    .id = "outer-layer",
    .says = "that all products of two vectors are written out for a layer that reads them",
    .said_if =
        [] {
          return and_share(
              "`mul` of [..., n, 1] and [..., 1, m], 16 columns or more each, and a product that "
              "reads n m columns within 3 ops; forward and backward");
        },
    .find = find_wastes_of<WasteKind::outer_layer>,
    .is_needless = true};

constinit const ExplanationRule kTablePenaltyRule = {
    .id = "table-penalty",
    .says = "that a penalty goes over a whole table of which the batch reads few rows",
    .said_if =
        [] {
          return and_share(
              "`square`, `pow` or `abs` and a sum make autograd nodes on a table of 4,096 rows or "
              "more, of which `embedding` reads a quarter or less; forward and backward");
        },
    .find = find_wastes_of<WasteKind::table_penalty>,
    .is_needless = true};

constinit const ExplanationRule kAllTriplesRule = {
    .id = "all-triples",
    .says = "that all triples of rows are written out, of which few may count",
    .said_if =
        [] {
          return and_share(
              "an elementwise op broadcasts to [n, n, n], 32 rows or more, and ops on that follow; "
              "forward and backward");
        },
    .find = find_wastes_of<WasteKind::all_triples>,
    .is_needless = true};

}  // namespace epilogue::trace
