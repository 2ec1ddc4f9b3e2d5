// SPDX-License-Identifier: Apache-2.0
// What holds the time, whatever it is: each op by time, until most of the run is accounted for,
// with the place that calls it and the answers of the trace to four questions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

enum class CostQuestion : uint8_t {
  needed,    // does it have to run at all?
  less,      // could it be less: fewer rows, fewer bytes, a cheaper op?
  limit,     // is it as fast as it can be?
  together,  // could its calls be one?
};
std::string_view cost_question_name(CostQuestion question);  // "needed"

struct CostAnswer {
  CostQuestion question = CostQuestion::less;
  std::string text;      // "the gradient has 1,000,000 rows, of which a call reads 4,096 at most"
  std::string action;    // what to do; "" if the answer is that nothing is lost
  bool is_loss = false;  // the trace shows the loss; false: it holds if what `text` asks is so
};

// Where most of an item's time is called from. "" where the trace does not say.
struct CostPlace {
  std::string op;          // the outermost op or autograd node around it
  std::string annotation;  // the innermost of the user's ranges
  std::string module;      // "Encoder_0/Linear_3"; of a backward op: of its forward op
  std::string function;    // the innermost Python function outside of torch: "train.py(33): loss"

  // " in ENCODER, train.py(33): loss"; "" if nothing is known.
  std::string text() const;
};

// Calls of one op on the same inputs.
struct CostShape {
  std::string text;  // "[64, 512] float, [512, 512]"; "" if shapes were not recorded
  Distribution time;
};

struct CostItem {
  std::string op;
  int64_t count = 0;
  int64_t ns = 0;                 // of the calls themselves; with a device, of what they launched
  std::vector<CostShape> shapes;  // the longest first, at most kCostShapes
  int64_t shape_kinds = 0;        // how many different inputs there are
  CostPlace place;
  // The op around most of it which the program called for it, where that says more than the op
  // itself: "aten::one_hot" of a fill. "" if there is none.
  std::string asked;
  std::vector<CostAnswer> answers;  // those that show a loss first
  bool is_channels_last = false;    // the images that most of its time is on
};
inline constexpr size_t kCostShapes = 3;

// Outermost ops that follow each other again and again, on the same shapes.
struct CallLoop {
  std::vector<std::string> ops;  // of one iteration, in their order
  int64_t iterations = 0;        // of all its runs
  int64_t runs = 0;              // how often it began
  int64_t wall_ns = 0;           // from the first op to the last, of all runs
  int64_t work_ns = 0;           // of that, in the ops beyond what calling them costs
  int64_t op_calls = 0;          // also of the ops that they call
  int64_t between_ns = 0;        // of wall_ns: in gaps between ops above kCallGapNs
  std::string longest;           // the op inside with most time
  // Time by op name, of the ops themselves: what the loop accounts for.
  std::vector<std::pair<std::string, int64_t>> op_ns;
  CostPlace place;
  std::string remedy;
  // The modules or the number of gradients show that the iterations share what they call. False:
  // they may be the layers of a model.
  bool is_shown = false;
  // Most of it is work on parameters that the iterations share.
  bool is_work = false;
  int64_t after_backward_ns = 0;  // of wall_ns: behind the last autograd node of a step

  int64_t overhead_ns() const { return wall_ns - work_ns; }
};

// Work that ran more often than its result changes.
struct RepeatedWork {
  enum class Kind : uint8_t {
    recomputed_forward,  // ops of the forward pass run again within the backward pass
    rebuilt_constant,    // made of numbers alone, the same in every step
    repeated_module,     // one module ran several times in a step, on the same shapes
  };
  Kind kind = Kind::recomputed_forward;
  std::vector<std::string> ops;  // outermost, the longest first (a constant's: in their order)
  std::string what;              // the module, or the size of what is made
  int64_t count = 0;             // calls, or times that it is made
  int64_t per_step = 0;
  int64_t ns = 0;
  int64_t again_ns = 0;  // of the repetitions
  std::vector<std::pair<std::string, int64_t>> op_ns;
  CostPlace place;
  bool is_shown = true;  // by the sizes; false: the names of the ops alone suggest it
};

// A module, a range of the program, a Python function or a gap that holds a notable share of the
// time, beside the ops.
struct CostSpot {
  enum class Kind : uint8_t {
    module,    // its own time: not that of modules below
    range,     // record_function(): its time outside of ops and of ranges within it
    function,  // its time outside of ops and of the functions that it calls
    gap,       // a stretch in which the device idled
  };
  Kind kind = Kind::module;
  std::string name;  // "" of a gap in which the trace names nothing
  int64_t count = 0;
  int64_t ns = 0;
  std::string text;  // what the trace says of it; "" nothing more
};
std::string_view cost_spot_name(CostSpot::Kind kind);  // "module"

// Work that an expert would not have the program do, with what shows it.
enum class WasteKind : uint8_t {
  grown_sequence,   // each pass runs over all of the passes before
  unread_gradient,  // gradients that no optimizer reads
  constant_matrix,  // products with one matrix that nothing in the run makes or trains
  unfolded_convolution,
  cut_result,         // of a result that was computed in full little is read
  untrained_forward,  // a part of the forward pass of training that gradients do not reach
  repeated_backward,  // several backward passes go through the same nodes
  dearer_order,       // the same ops in another order compute less
  built_matrix,       // matrices are made of vectors and multiplied by vectors
  all_experts,        // every expert computes all rows, of which a choice keeps few
  padding,            // most elements of a batch fill it up
  beside_training,    // ops after the backward pass and outside of the optimizer
  repeated_module,    // the first module of a loop may read the same each time
  small_passes,       // many backward passes of the same small ops in a step
  unread_graph,       // nodes are recorded for gradients, and no pass reads them
  cut_gradients,      // the gradient of each slice fills a tensor of full size
  all_pairs,          // pairs of rows are written out and reduced
  overlapping_windows,
  made_weight,       // a weight is made of factors in each pass
  hand_penalty,      // a sum over parameters in the forward pass
  round_trip,        // a transform of what was transformed back
  composite_op,      // one that programs are rarely about, with what it calls
  unread_forward,    // nodes of the forward pass that no backward pass visits
  pooled_rows,       // rows are gathered and then added up
  dense_target,      // a loss reads a row of classes for each index
  stuffed_zeros,     // most of what a product reads are zeros
  swapped_time,      // a recurrent layer takes the batch for the time
  value_checks,      // values are looked at for NaN and infinity
  shifted_sums,      // products of shifted slices are summed one by one
  wide_pools,        // windows of max pooling that overlap much
  sibling_modules,   // modules of one class side by side
  gathered_product,  // each rank computes the product of all gathered rows
  masked_kernel,     // a mask zeroes taps of a convolution
  idle_gradients,    // zeros are written for gradients that no pass gives, and the optimizer reads
  gradient_penalty,  // the norm of a gradient is differentiated in every step
  aside_function,    // a Python function that programs call rarely: copies, files, new models
  piled_hooks,       // one hook runs many times for a call of its module
  fixed_operand,     // the same table is made ready in every step
  repeated_transform,   // the same Fourier transform of tensors that nothing makes in between
  kept_order,           // ops that keep the order before one that reads the order alone
  repeated_softmax,     // softmaxes of the same logits
  ordered_pairs,        // each pair of a set in both orders
  input_gradient,       // the backward pass goes on to a tensor that no optimizer trains
  repeated_chain,       // modules compute the same from the same input
  shared_prefix,        // sequences of a batch that begin alike
  repeated_runs,        // a function runs the same loop again and again
  wide_count,           // ones are added up, many times side by side
  parallel_edges,       // rows go between the same places again
  phase_apart,          // a phase is taken and put back unchanged
  gram_pairs,           // all pairs of products are picked and added up
  pooled_again,         // each scale is pooled from the full image
  late_reduction,       // what a collective brings is reduced behind it
  longer_side,          // products of the longer side of a matrix
  two_sided_product,    // a matrix between two that get no gradient
  weighted_rows,        // all rows are weighed for each sample
  repeated_projection,  // a product of the same input in each round of a loop
  shorter_form,         // what reads the result asks for less: eigenvalues of a determinant
  resized_twice,        // an image is made larger, and then smaller again
  outer_layer,          // all products of two vectors are written for a layer
  table_penalty,        // a penalty of a table of which few rows are read
  all_triples,          // all triples of rows are written out
  left_rows,            // layers compute rows that a gather leaves out
  spread_table,         // rows of a table are written for each pair that a product reads
  wide_sample,          // a small image is sampled at the points of a large one
  changed_part,         // a product of a whole of which a part changed
  grown_set,            // each round computes the set of the round before and one more
  each_order,           // the same for each order of a few parts
};
// How far the trace shows it.
enum class WasteProof : uint8_t {
  question,  // it is a loss if what the evidence asks is so
  likely,
  shown,
};
struct Waste {
  WasteKind kind = WasteKind::grown_sequence;
  std::string title;
  std::vector<std::string> evidence;
  std::string action;
  int64_t ns = 0;                    // what it takes now
  std::optional<int64_t> saving_ns;  // empty: how much remains is not known
  WasteProof proof = WasteProof::likely;
  std::vector<std::pair<std::string, int64_t>> op_ns;
  int64_t op_calls = 0;    // that would go: calling them takes time, too; 0: not counted
  int64_t between_ns = 0;  // of it outside of ops
  CostPlace place;
};

struct Method {
  bool is_device = false;  // times are of device work, else of the host's main thread
  int64_t wall_ns = 0;
  std::vector<CostItem> items;  // by time
  int64_t told_ns = 0;          // by the items together
  // Time of all ops by name, that of the items too.
  std::vector<std::pair<std::string, int64_t>> op_ns;
  std::vector<CallLoop> loops;  // by overhead
  std::vector<RepeatedWork> repeats;
  std::vector<CostSpot> spots;  // by time
  std::vector<Waste> wastes;    // the largest first
  // Where most small calls stand, and the outermost ops and autograd nodes around most of them,
  // with the numbers of calls; empty with a device, and where calls take little.
  CostPlace calls_place;
  std::vector<std::pair<std::string, int64_t>> callers;
  bool has_backward = false;
};

}  // namespace epilogue::trace

#pragma GCC visibility pop
