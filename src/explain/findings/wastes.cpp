// SPDX-License-Identifier: Apache-2.0
// Is it needed, could it be less? Work that the method shows to be more than the result asks for.
#include "explain/findings/index.h"
#include "explain/findings/waste_rules.h"

namespace epilogue::trace {

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
    .find = find_wastes_of<WasteKind::grown_sequence>,
    .is_needless = true};

constinit const ExplanationRule kUnreadGradientRule = {
    .id = "unread-gradient",
    .says = "that the backward pass computes gradients of parameters which no optimizer trains",
    .said_if =
        [] {
          return and_share(
              "in every step, of one backward pass each, some gradients are added to what was "
              "there and others are new; the nodes behind the last new one; or no optimizer runs, "
              "gradients of two layers' weights or more are accumulated, and an op right behind "
              "the pass reads the sizes of another leaf; products that give these gradients");
        },
    .find = find_wastes_of<WasteKind::unread_gradient>,
    .is_needless = true};

constinit const ExplanationRule kConstantMatrixRule = {
    .id = "constant-matrix",
    .says =
        "that products with one large square matrix of data take the time: it may be mostly zeros",
    .said_if =
        [] {
          return and_share(
              "`mm` outside of `linear` whose left operand is square, 256 rows or more, four times "
              "as wide as the right one, or in training whose right operand is; no other op reads "
              "or makes a tensor of its sizes, and it gets no gradient");
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
    .find = find_wastes_of<WasteKind::unfolded_convolution>,
    .is_needless = true};

constinit const ExplanationRule kCutResultRule = {
    .id = "cut-result",
    .says = "that a product or an elementwise op computes far more than what is read of its result",
    .said_if =
        [] {
          return and_share(
              "slices, selections, `diagonal`, `index`, `embedding` or `gather` among the next 12 "
              "outermost ops read a quarter of its result or less, and no other op reads a tensor "
              "of these sizes; of norms and softmax along another dimension than the last; or a "
              "recurrent layer of both directions and 8 steps or more is read at its first or last "
              "step alone");
        },
    .find = find_wastes_of<WasteKind::cut_result>,
    .is_needless = true};

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
    .find = find_wastes_of<WasteKind::untrained_forward>,
    .is_general = true};

constinit const ExplanationRule kRepeatedBackwardRule = {
    .id = "repeated-backward",
    .says = "that several backward passes of a step go through the same part of the graph",
    .said_if =
        [] {
          return and_share(
              "an autograd node of one sequence number runs 8 times or more in a step, or twice "
              "without create_graph, or twice with it in passes that begin at the same node "
              "(autograd.grad for each input apart); what the repetitions take");
        },
    .find = find_wastes_of<WasteKind::repeated_backward>,
    .is_needless = true};

constinit const ExplanationRule kCutGradientsRule = {
    .id = "cut-gradients",
    .says = "that a loop over slices makes a gradient of full size for each slice",
    .said_if =
        [] {
          return and_share("`SelectBackward` or `SliceBackward` runs 8 times in a step or more");
        },
    .find = find_wastes_of<WasteKind::cut_gradients>,
    .is_needless = true};

constinit const ExplanationRule kBesideTrainingRule = {
    .id = "beside-training",
    .says = "that a step does work which is no part of training: metrics, averages, logs",
    .said_if =
        [] {
          return std::string(
              "ops after the last autograd node of a step and outside of `Optimizer.` take 10 % of "
              "the time or more; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::beside_training>,
    .is_general = true};

constinit const ExplanationRule kRepeatedModuleRule = {
    .id = "repeated-module",
    .says =
        "that a loop runs two modules one after the other, of which one may be needed once: the "
        "first if it reads the same each time, the last if no iteration reads its result; or that "
        "passes differ by dropout alone, and what comes before it may run once",
    .said_if =
        [] {
          return and_share(
              "in a run of inference a module runs 3 times in a step or more with the same ops, "
              "and another one after it as often; or an outermost module runs 3 times in a step (8 "
              "times without steps) on the same shapes, with dropout that draws numbers, and what "
              "comes before the first of them; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::repeated_module>};

constinit const ExplanationRule kSmallPassesRule = {
    .id = "small-passes",
    .says = "that a step runs many small backward passes of the same nodes, where one could be all",
    .said_if =
        [] {
          return std::string(
              "8 backward passes of the same nodes in a step or more, each with a forward pass of "
              "its own; calls and small ops take 30 % of the wall time or more (15 % of 16 passes "
              "or more)");
        },
    .find = find_wastes_of<WasteKind::small_passes>};

constinit const ExplanationRule kUnreadGraphRule = {
    .id = "unread-graph",
    .says = "that a run without a backward pass records its ops for gradients",
    .said_if =
        [] {
          return std::string(
              "ops carry sequence numbers, and 2 us for each number are 2 % of the wall time or "
              "more; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::unread_graph>};

constinit const ExplanationRule kDearerOrderRule = {
    .id = "dearer-order",
    .says =
        "that products, an interpolation and a 1 x 1 convolution, a mean and a linear layer, or a "
        "sparse product and a projection are taken in the order that computes more, or that norms "
        "of inference are not folded into the weights before them",
    .said_if =
        [] {
          return and_share(
              "a product multiplies the result of the one before and the other order has half of "
              "the multiplications or fewer, a 1 x 1 convolution to fewer channels follows "
              "`upsample_*`, a mean over rows follows `linear`, a sum over a dimension follows a "
              "product, a projection to half of the columns or fewer follows a sparse product or "
              "`index_add`, or `batch_norm` of a run without a backward pass follows a convolution "
              "or `linear`");
        },
    .find = find_wastes_of<WasteKind::dearer_order>,
    .is_needless = true};

constinit const ExplanationRule kBuiltMatrixRule = {
    .id = "built-matrix",
    .says = "that matrices are made of vectors (`diag_embed`) and multiplied by vectors",
    .said_if =
        [] {
          return and_share(
              "a product is among the 12 ops after `diag_embed` or `diag`, and its other operand "
              "has an eighth of the columns or fewer (of a matrix that is diagonal still: any)");
        },
    .find = find_wastes_of<WasteKind::built_matrix>,
    .is_needless = true};

constinit const ExplanationRule kAllExpertsRule = {
    .id = "all-experts",
    .says = "that every expert of a mixture computes all rows, though each row keeps few of them",
    .said_if =
        [] {
          return and_share(
              "`max`, `argmax` or `topk` of [rows, N] is followed by N products of one kind on all "
              "rows, and by N ops that multiply with a column");
        },
    .find = find_wastes_of<WasteKind::all_experts>,
    .is_needless = true};

constinit const ExplanationRule kPaddingRule = {
    .id = "padding",
    .says = "that batches are padded to a length that few of their sequences have",
    .said_if =
        [] {
          return and_share(
              "`pad_sequence`, or `pad` of each sample before `stack`, fills 40 % of a batch or "
              "more; ops on tensors of these sizes");
        },
    .find = find_wastes_of<WasteKind::padding>,
    .is_needless = true};

constinit const ExplanationRule kAllPairsRule = {
    .id = "all-pairs",
    .says = "that products or differences of all pairs of rows are written out and then reduced",
    .said_if =
        [] {
          return and_share(
              "`cosine_similarity`, or an elementwise op with a reduction of its result within 6 "
              "ops, broadcasts two tensors to 8 times the elements of the larger one and 65,536 or "
              "more");
        },
    .find = find_wastes_of<WasteKind::all_pairs>,
    .is_needless = true};

constinit const ExplanationRule kOverlappingWindowsRule = {
    .id = "overlapping-windows",
    .says =
        "that windows which overlap are reduced one by one, or that a network of convolutions runs "
        "on each of them",
    .said_if =
        [] {
          return and_share(
              "a reduction reads the result of `unfold`, whose windows hold each element 4 times "
              "or more; or, without a backward pass, a convolution reads a batch of all windows of "
              "one `unfold` or of several, and they have 4 times the elements or more");
        },
    .find = find_wastes_of<WasteKind::overlapping_windows>,
    .is_needless = true};

constinit const ExplanationRule kMadeWeightRule = {
    .id = "made-weight",
    .says =
        "that a weight is made anew in each pass: of low-rank factors, or in inference by casts, "
        "masks and scales",
    .said_if =
        [] {
          return and_share(
              "a product of two matrices of a rank of a quarter or less is added to a tensor, and "
              "a linear layer reads the sum with fewer rows than n k / (n + k); or, without a "
              "backward pass, elementwise ops or casts among the 8 ops before a linear layer or a "
              "convolution give a tensor of its weight's sizes");
        },
    .find = find_wastes_of<WasteKind::made_weight>,
    .is_needless = true};

constinit const ExplanationRule kHandPenaltyRule = {
    .id = "hand-penalty",
    .says = "that a penalty of parameters is a loop over them in the forward pass",
    .said_if =
        [] {
          return and_share(
              "`pow`, `square`, `abs` or a norm with a sum and an addition follow each other 4 "
              "times or more and make autograd nodes");
        },
    .find = find_wastes_of<WasteKind::hand_penalty>};

constinit const ExplanationRule kCompositeOpRule = {
    .id = "composite-op",
    .says = "that an op which programs are rarely about holds much of the time in what it calls",
    .said_if =
        [] {
          return std::string(
              "the op and what it calls take 10 % of the wall time or more (30 % if some programs "
              "are about it), half of that or more in what it calls, and no other op has half of "
              "it");
        },
    .find = find_wastes_of<WasteKind::composite_op>};

constinit const ExplanationRule kRoundTripRule = {
    .id = "round-trip",
    .says = "that a Fourier transform is taken back and then taken again",
    .said_if =
        [] {
          return and_share(
              "`stft` follows `istft` in a step, or `fft_*` its inverse, with views and padding "
              "between; its input has the sizes and strides of that result, and the transforms are "
              "no loop that begins with one and ends with its inverse");
        },
    .find = find_wastes_of<WasteKind::round_trip>,
    .is_needless = true};

constinit const ExplanationRule kRepeatedTransformRule = {
    .id = "repeated-transform",
    .says = "that one tensor may be transformed (FFT) again and again within a step",
    .said_if =
        [] {
          return and_share(
              "in a run without a backward pass `stft` or `fft_*` runs 4 times in a step or more "
              "on the same sizes and strides, and at most one op of the step, before the first of "
              "them, makes such a tensor; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::repeated_transform>};

constinit const ExplanationRule kRepeatedSoftmaxRule = {
    .id = "repeated-softmax",
    .says = "that several softmaxes read the same logits, where one could be shared",
    .said_if =
        [] {
          return and_share(
              "`softmax`, `log_softmax`, `logsumexp` and `cross_entropy` of one number of elements "
              "and classes (256 or more), along the last dimension, run more often in a step than "
              "ops make or change such a tensor; those that read what an elementwise op made right "
              "before do not count; what the rest of them take, forward and backward");
        },
    .find = find_wastes_of<WasteKind::repeated_softmax>,
    .is_needless = true};

constinit const ExplanationRule kOrderedPairsRule = {
    .id = "ordered-pairs",
    .says = "that all pairs of a set are computed in both orders, where one may do",
    .said_if =
        [] {
          return std::string(
              "`index`, `index_select` or `embedding` takes n (n - 1) rows of n, 16 or more, and "
              "ops on so many rows take 10 % of the time or more; half of it, low confidence, and "
              "a question");
        },
    .find = find_wastes_of<WasteKind::ordered_pairs>};

constinit const ExplanationRule kRepeatedChainRule = {
    .id = "repeated-chain",
    .says = "that several modules of a step compute the same from the same input",
    .said_if =
        [] {
          return and_share(
              "in a step three modules or more each begin with the same ops on the same sizes, "
              "three elementwise ones, gathers or sums by index or more, without parameters of "
              "layers; they read their own "
              "results and tensors of sizes that no other op of the step makes, and give no weight "
              "of a product; all runs but the first");
        },
    .find = find_wastes_of<WasteKind::repeated_chain>,
    .is_needless = true};

constinit const ExplanationRule kSharedPrefixRule = {
    .id = "shared-prefix",
    .says =
        "that sequences of a batch begin with the same words, which all layers compute for each",
    .said_if =
        [] {
          return std::string(
              "in a run without a backward pass one row of words is expanded or repeated, joined "
              "by `cat` with at most as many words of each sequence, and looked up by `embedding`, "
              "and all attention of the step has `is_causal`; the share of the repeated words is "
              "10 % of the time or more");
        },
    .find = find_wastes_of<WasteKind::shared_prefix>,
    .is_needless = true};

constinit const ExplanationRule kRepeatedRunsRule = {
    .id = "repeated-runs",
    .says =
        "that a function runs the same loop of ops again and again, as finite differences and "
        "sweeps of parameters do",
    .said_if =
        [] {
          return std::string(
              "without a backward pass and without layers, one call of a Python function calls "
              "another 8 times or more, each time with the same ops on the same sizes, one of them "
              "8 times or more, and a number as the result (a sum, a loss); 30 % of the time or "
              "more; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::repeated_runs>};

constinit const ExplanationRule kInputGradientRule = {
    .id = "input-gradient",
    .says = "that the backward pass goes on to a tensor which no optimizer trains: an input",
    .said_if =
        [] {
          return and_share(
              "in each step the last gradient that is accumulated has sizes which no op of the "
              "optimizer reads, while it reads those of half of the others or more, and nothing "
              "reads it afterwards; the nodes behind the last one that is trained");
        },
    .find = find_wastes_of<WasteKind::input_gradient>,
    .is_needless = true};

constinit const ExplanationRule kKeptOrderRule = {
    .id = "kept-order",
    .says =
        "that a softmax or another op which keeps the order runs before an op that reads the "
        "order alone",
    .said_if =
        [] {
          return and_share(
              "`softmax`, `log_softmax` (along the same dimension), `sigmoid`, `exp` or `tanh` "
              "comes right before `topk`, `argmax`, `argsort`, `sort` or `max`, scaled by a number "
              "or not; no later op of the step reads a tensor of these sizes before one makes it; "
              "low confidence if the values are read");
        },
    .find = find_wastes_of<WasteKind::kept_order>,
    .is_needless = true};

constinit const ExplanationRule kUnreadForwardRule = {
    .id = "unread-forward",
    .says =
        "that a part of the forward pass of training is not read by the loss: layers behind the "
        "last one that counts, a head whose output is dropped",
    .said_if =
        [] {
          return std::string(
              "in each step ops before the last autograd node make nodes whose sequence numbers no "
              "backward pass of the trace visits; with the same ops on the same shapes without a "
              "graph they take 8 % of the time or more");
        },
    .find = find_wastes_of<WasteKind::unread_forward>,
    .is_needless = true};

constinit const ExplanationRule kPooledRowsRule = {
    .id = "pooled-rows",
    .says = "that rows of a table are gathered, written and then added up",
    .said_if =
        [] {
          return and_share(
              "`sum` or `mean` over the rows, within 6 ops and through products with a mask alone, "
              "reads what `embedding` or `index` gives: 4 rows for each sum or more, 65,536 "
              "elements or more");
        },
    .find = find_wastes_of<WasteKind::pooled_rows>,
    .is_needless = true};

constinit const ExplanationRule kDenseTargetRule = {
    .id = "dense-target",
    .says = "that a loss goes over a target with a row of classes for each index",
    .said_if =
        [] {
          return and_share(
              "`one_hot`, or `scatter` of one number for each row, makes a tensor of 32 classes or "
              "more, which `kl_div`, `cross_entropy_loss` or a product and its sum reads within 24 "
              "ops");
        },
    .find = find_wastes_of<WasteKind::dense_target>,
    .is_needless = true};

constinit const ExplanationRule kStuffedZerosRule = {
    .id = "stuffed-zeros",
    .says = "that a product or a convolution multiplies zeros that were written for it",
    .said_if =
        [] {
          return and_share(
              "copies fill half of what `zeros` makes or less, and a product or a convolution "
              "reads it within 12 ops; or a product, a solver or a factorisation reads what "
              "`block_diag` makes");
        },
    .find = find_wastes_of<WasteKind::stuffed_zeros>,
    .is_needless = true};

constinit const ExplanationRule kSwappedTimeRule = {
    .id = "swapped-time",
    .says = "that a recurrent layer takes the batch for the time (`batch_first` is missing)",
    .said_if =
        [] {
          return and_share(
              "`gru`, `lstm` or `rnn_*` without batch_first runs 32 steps or more, 4 for each row "
              "of its batch, and the next ops select along dimension 1 of its result");
        },
    .find = find_wastes_of<WasteKind::swapped_time>,
    .is_needless = true};

constinit const ExplanationRule kValueChecksRule = {
    .id = "value-checks",
    .says = "that a step looks for NaN and infinity in many tensors",
    .said_if =
        [] {
          return and_share(
              "`isnan`, `isinf` or `isfinite` runs 4 times in a step or more outside of the "
              "backward pass, with the `any`, `all` and `item` behind it");
        },
    .find = find_wastes_of<WasteKind::value_checks>,
    .is_needless = true};

constinit const ExplanationRule kShiftedSumsRule = {
    .id = "shifted-sums",
    .says = "that a correlation or a convolution is a loop over shifted slices",
    .said_if =
        [] {
          return and_share(
              "`mul` of a slice, of which a sum along it or an addition follows within 4 ops, 16 "
              "times in a row in a step; the slices begin further by the same number each time, "
              "and are 4 times as long as that or longer");
        },
    .find = find_wastes_of<WasteKind::shifted_sums>,
    .is_needless = true};

constinit const ExplanationRule kWidePoolsRule = {
    .id = "wide-pools",
    .says =
        "that windows of max pooling overlap so much that smaller ones in series, or rows and then "
        "columns, are far fewer reads",
    .said_if =
        [] { return and_share("`max_pool2d` with square windows of 5 x 5 or more and stride 1"); },
    .find = find_wastes_of<WasteKind::wide_pools>,
    .is_needless = true};

constinit const ExplanationRule kSiblingModulesRule = {
    .id = "sibling-modules",
    .says =
        "that modules of one class run side by side (heads, experts, ensembles), where one larger "
        "layer could be all of them",
    .said_if =
        [] {
          return and_share(
              "in a run without a device 4 modules of one class or more follow each other within "
              "another module, with the same ops on the same sizes, and a `cat` or `stack` of as "
              "many tensors follows; 30 % of it or more is calls and small ops");
        },
    .find = find_wastes_of<WasteKind::sibling_modules>,
    .is_needless = true};

constinit const ExplanationRule kGatheredProductRule = {
    .id = "gathered-product",
    .says =
        "that each rank computes the product of all gathered rows with all gathered rows, as the "
        "others do",
    .said_if =
        [] {
          return and_share(
              "a `cat` of equal tensors follows an `allgather` of c10d within 12 ops, and a "
              "product multiplies its rows by as many columns");
        },
    .find = find_wastes_of<WasteKind::gathered_product>,
    .is_needless = true};

constinit const ExplanationRule kMaskedKernelRule = {
    .id = "masked-kernel",
    .says = "that convolutions compute taps which a mask of their window may make zero",
    .said_if =
        [] {
          return and_share(
              "`mul` of a weight by a tensor with the sizes of its window, 3 taps or more along a "
              "side, and a convolution with that weight within 8 ops; low confidence, and a "
              "question");
        },
    .find = find_wastes_of<WasteKind::masked_kernel>};

constinit const ExplanationRule kIdleGradientsRule = {
    .id = "idle-gradients",
    .says =
        "that the optimizer updates parameters whose gradients are zeros, which zero_grad wrote",
    .said_if =
        [] {
          return and_share(
              "ranges of `Optimizer.zero_grad` fill 8 tensors in a step or more, and at most half "
              "as many `AccumulateGrad` run; the filling, and the optimizer's time by the share of "
              "parameters without a gradient");
        },
    .find = find_wastes_of<WasteKind::idle_gradients>,
    .is_needless = true};

constinit const ExplanationRule kGradientPenaltyRule = {
    .id = "gradient-penalty",
    .says =
        "that every step differentiates the norm of a gradient: a penalty, which may be taken in "
        "some steps alone",
    .said_if =
        [] {
          return std::string(
              "in every step of an optimizer a pass with create_graph runs, a norm or a sum over "
              "squares is within the 12 outermost ops behind it, and that pass with the nodes that "
              "differentiate it takes 15 % of the time or more; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::gradient_penalty>,
    .is_general = true};

constinit const ExplanationRule kAsideFunctionRule = {
    .id = "aside-function",
    .says =
        "that steps copy objects (deepcopy), read or write files of tensors, or make and fill a "
        "model anew",
    .said_if =
        [] {
          return and_share(
              "Python frames of these functions, in two steps or more (without steps, two calls "
              "or more); all that they call");
        },
    .find = find_wastes_of<WasteKind::aside_function>,
    .is_needless = true};

constinit const ExplanationRule kPiledHooksRule = {
    .id = "piled-hooks",
    .says = "that one hook runs many times for a call of its module: it was registered as often",
    .said_if =
        [] {
          return and_share(
              "a function outside of torch runs 4 times or more within a call of a module, called "
              "by the module itself, and more often in the last call than in the first; 8 times if "
              "the number stays, low confidence");
        },
    .find = find_wastes_of<WasteKind::piled_hooks>,
    .is_needless = true};

constinit const ExplanationRule kFixedOperandRule = {
    .id = "fixed-operand",
    .says =
        "that a large table is normalised again before few rows are multiplied by it or taken of "
        "it",
    .said_if =
        [] {
          return and_share(
              "in a run without a backward pass, norms or means and elementwise ops on a matrix of "
              "1 MiB or more that no other op makes, three times or more; products read it with an "
              "eighth of its rows or less, or rows are taken of it");
        },
    .find = find_wastes_of<WasteKind::fixed_operand>};

constinit const ExplanationRule kWideCountRule = {
    .id = "wide-count",
    .says = "that ones as wide as the messages are added up to count them",
    .said_if =
        [] {
          return and_share(
              "`index_add` or `scatter_add` reads ones of 4 columns or more that an op makes "
              "right before; all but one column of both, forward and backward");
        },
    .find = find_wastes_of<WasteKind::wide_count>,
    .is_needless = true};

constinit const ExplanationRule kParallelEdgesRule = {
    .id = "parallel-edges",
    .says =
        "that many edges of a graph join the same two nodes, which could be one edge with a "
        "count",
    .said_if =
        [] {
          return and_share(
              "`index_add` adds at least twice as many rows as there are pairs of a row that "
              "is taken (`index_select`, `index`, `embedding`, 12 ops before at most) and a "
              "row that is added to; what the repeated ones take, forward and backward");
        },
    .find = find_wastes_of<WasteKind::parallel_edges>,
    .is_needless = true};

constinit const ExplanationRule kPhaseApartRule = {
    .id = "phase-apart",
    .says =
        "that the phase of a spectrum is taken and put back unchanged, where the spectrum "
        "could be scaled itself",
    .said_if =
        [] {
          return and_share(
              "`exp` of complex numbers or `polar` is among the 8 ops behind `angle` on the "
              "same sizes, and no op adds to the phase, unwraps or cuts it in between");
        },
    .find = find_wastes_of<WasteKind::phase_apart>,
    .is_needless = true};

constinit const ExplanationRule kGramPairsRule = {
    .id = "gram-pairs",
    .says =
        "that all pairs of fields are multiplied, picked and summed, where sums of squares "
        "give the same",
    .said_if =
        [] {
          return and_share(
              "`index` takes n (n - 1) / 2 or n (n + 1) / 2 of each n x n products (8 or "
              "more) of a matrix with itself, and `sum` adds these up next; forward and "
              "backward");
        },
    .find = find_wastes_of<WasteKind::gram_pairs>};

constinit const ExplanationRule kPooledAgainRule = {
    .id = "pooled-again",
    .says =
        "that each scale of a pyramid is pooled from the full image, not from the scale "
        "before",
    .said_if =
        [] {
          return and_share(
              "pooling without overlap and padding reads the same sizes with 3 windows or "
              "more in a step, each a multiple of the one before and a divisor of the image; "
              "what all but the smallest take, less a part for each pixel of it");
        },
    .find = find_wastes_of<WasteKind::pooled_again>,
    .is_needless = true};

constinit const ExplanationRule kLateReductionRule = {
    .id = "late-reduction",
    .says = "that ranks send rows which the receiver only adds up",
    .said_if =
        [] {
          return and_share(
              "`sum`, `mean` or `amax` over 4 rows or more reads the result of an all_to_all "
              "or all_gather within 3 ops, not over the dimension of the ranks; or `sum` or `mean` "
              "over the ranks reads what all_gather brings, stacked or whole");
        },
    .find = find_wastes_of<WasteKind::late_reduction>};

constinit const ExplanationRule kLongerSideRule = {
    .id = "longer-side",
    .says = "that products of a tall matrix with itself are those of its longer side",
    .said_if =
        [] {
          return and_share(
              "a product makes n x n (128 or more) of n x k with n at least 2 k; it is "
              "scaled, added and multiplied with itself alone, and a product with n x k "
              "follows within 12 ops; k / n of it would do");
        },
    .find = find_wastes_of<WasteKind::longer_side>,
    .is_needless = true};

constinit const ExplanationRule kTwoSidedProductRule = {
    .id = "two-sided-product",
    .says =
        "that a large square matrix is multiplied from two sides by matrices that nobody "
        "trains",
    .said_if =
        [] {
          return and_share(
              "two products of the same square sizes (128 or more) follow each other, and "
              "the backward pass of each has one product: one operand gets a gradient; low "
              "confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::two_sided_product>};

constinit const ExplanationRule kWeightedRowsRule = {
    .id = "weighted-rows",
    .says = "that all rows of a table are weighed for each sample before a product sums over them",
    .said_if =
        [] {
          return and_share(
              "`mul` of [B, N, 1] and [N, D] (128 rows or more) is followed by a batched "
              "product that sums over N; low confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::weighted_rows>};

constinit const ExplanationRule kRepeatedProjectionRule = {
    .id = "repeated-projection",
    .says =
        "that each round of a loop projects the same input again, as cross attention without "
        "a cache does",
    .said_if =
        [] {
          return and_share(
              "without a backward pass, one module's `linear` or convolution runs 4 times or "
              "more in a step on sizes that no op of the step makes, views left out, and "
              "another product comes before it in the step; all but one of the calls, low "
              "confidence, and a question");
        },
    .find = find_wastes_of<WasteKind::repeated_projection>};

}  // namespace epilogue::trace
