// SPDX-License-Identifier: Apache-2.0
// Knowledge about PyTorch's ops as data: one row for each family. A row says what a call costs,
// whether a compiler can fuse it with its neighbours, when it is misused, and what to do about it.
// Who reads which column:
//
//   names           op_knowledge(), whom all of the others ask
//   cost            host_time() (what computes), the loops' remedy, the units below
//   unit_ns         the method: what a call takes, against what it took where it was measured
//   fuses           what may join a kernel, and what a saving leaves out (work_ops, fusion_groups,
//                   host_model)
//   misuse, remedy  long-op, the method's answers
//   role            long-op: from which share on the op's time is a question
//   loop            call-loop, the method's answer for many short calls
//   sign            the method: signs.cpp looks for it
//   has_weights     call-loop: iterations that read parameters may be layers
//
// Sources: PyTorch's documentation of each op, ATen's native_functions.yaml, and Inductor's
// lowerings and fallbacks (torch/_inductor/lowering.py) of PyTorch 2.15. The numbers of unit_ns
// were measured (bench/op_costs.py): PyTorch 2.15, float32, one core of an AMD EPYC (Zen 3, AVX2).
// docs/ops.md shows the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace epilogue::trace {

// What the time of a call grows with.
enum class OpCost : uint8_t {
  bytes,       // bytes read and written in order
  arithmetic,  // transcendental functions or random numbers, once an element
  flops,       // multiplications and additions: products, convolutions
  gather,      // rows or elements at places that an index names: a cache line for each
  sort,        // n log n comparisons
  scan,        // a pass whose steps depend on each other along one dimension
  solve,       // a LAPACK or cuSOLVER call: n^3 for a matrix of n x n
  transform,   // n log n of an FFT
  search,      // log n comparisons for each element
  pairs,       // each row of one input against each of another
  wait,        // the size of the result depends on data: on a device the host waits for it
  metadata,    // nothing but the tensor's description
};
std::string_view op_cost_name(OpCost cost);  // "bytes"

// How torch.compile's Inductor runs it.
enum class OpFuses : uint8_t {
  pointwise,  // joins the kernels before and after it
  reduction,  // ends a kernel; what comes before it joins it
  rows,       // a softmax: joins, and takes as long as before; its neighbours' bytes are saved
  norms,      // joins on a device; on a CPU it depends on instructions that no trace tells
  epilogue,   // a library call or template: pointwise ops after it may join a template
  draws,      // joins, but random numbers cost as much as before: bytes alone say too much
  scans,      // a kernel of its own on a device, a fallback on a CPU
  alone,      // a call of the same library: nothing joins it
};
std::string_view op_fuses_name(OpFuses fuses);  // "pointwise"

// What the cost is counted in: "element", "n log2 n", ...; docs/ops.md says "ns for each".
std::string_view op_cost_unit(OpCost cost);

// Whether the time of an op alone is a question.
enum class OpRole : uint8_t {
  main,    // a good run may spend its time there: only a sign of misuse makes it a loss
  either,  // the main work of some programs: a question where it takes much (kEitherShare)
  aside,   // rarely what a program is about: a question where it is notable
};
std::string_view op_role_name(OpRole role);  // "aside"

// How a misuse shows in the shapes, the arguments and the neighbours of the calls. signs.cpp
// recognises them; a sign that is found brings its numbers and its remedy along.
enum class OpSign : uint8_t {
  none,
  wide_table,       // the gradient has far more rows than the batch read
  accumulates,      // it adds at places that an index names: the gradient of indexing
  cut_after,        // a small slice of the result is read next
  grows,            // each call joins more than the one before
  repeats_input,    // it writes out a tensor that was expanded
  inference,        // no backward pass is recorded
  one_hot,          // an operand was made by one_hot
  strided_scan,     // it runs along another dimension than the last
  outer_broadcast,  // two tensors become one that is far larger than both: all pairs
  one_column,       // a single right-hand side for each matrix, again and again
  then_product,     // the result is multiplied next
};
std::string_view op_sign_name(OpSign sign);  // "wide_table"

struct OpKnowledge {
  std::string_view family;  // "gradient of an embedding, dense"
  std::string_view names;   // of the ops, separated by spaces, without "aten::"
  OpCost cost;
  double unit_ns;  // of one unit of `cost`; 0: not measured, the unit is the formula
  OpFuses fuses;
  std::string_view misuse;  // when its time is a loss; "" if its time alone does not tell
  std::string_view remedy;  // what to do, as an order; "" if none is known
  OpRole role = OpRole::main;
  std::string_view loop = {};  // what to do if a loop calls it many times; "": nothing particular
  OpSign sign = OpSign::none;
  bool has_weights = false;  // it reads the parameters of a layer
};

// By the op's full name ("aten::cumsum_"): in-place, `_out` and `_backward` forms that have no row
// of their own count as their op. Null if the op is in no family.
const OpKnowledge* op_knowledge(std::string_view name);

// All families, in the order of the page.
std::span<const OpKnowledge> all_op_knowledge();

}  // namespace epilogue::trace
