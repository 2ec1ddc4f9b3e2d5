// SPDX-License-Identifier: Apache-2.0
// Whether a plan holds for every number of rows.
#pragma once

#include "graph/graph.h"

namespace epilogue::plan {

// Whether everything that is no parameter has the leading sizes of input 0, lies without gaps, and
// is computed by fused kernels, which take the number of rows when they run, or drawn.
bool rows_may_be_free(const graph::Graph& graph);

// Whether two graphs of one function, captured with different leading sizes, are the same but for
// those sizes. Both graphs' rows may be free.
bool same_but_rows(const graph::Graph& a, const graph::Graph& b);

}  // namespace epilogue::plan
