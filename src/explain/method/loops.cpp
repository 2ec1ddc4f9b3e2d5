// SPDX-License-Identifier: Apache-2.0
// Loops: the same outermost ops again and again within a step.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/method.h"

namespace epilogue::trace {
namespace {

constexpr size_t kLongestPeriod = 64;  // outermost ops of one iteration
constexpr size_t kLeastIterations = 8;
// Without steps the loop may be the one over batches, which a profile of a few steps holds.
constexpr size_t kLeastWithoutSteps = 32;
// If nothing shows whether the iterations are layers: more than models have, of few ops each.
constexpr size_t kMoreThanLayers = 32;
constexpr size_t kFewOps = 12;
// What calling an op and a small op itself take: time up to this is no reason for a loop.
constexpr int64_t kSmallOpNs = 5'000;
constexpr double kLoopOverhead = 0.3;  // of the loop
constexpr double kLeastLoop = 0.03;    // of the run
constexpr size_t kSampled = 12;        // iterations whose modules are compared
// A gap between two ops that lasts so many iterations is a wait for another process or rank.
constexpr int64_t kWaitIterations = 16;
constexpr int64_t kLeastWaitNs = 1'000'000;

// Ops that read parameters: layers have one of them. A custom op may.
bool reads_parameters(std::string_view name) {
  const OpKnowledge* known = op_knowledge(name);
  return known == nullptr || known->has_weights;
}

// A run of iterations among the roots: [first, first + iterations * period).
struct Run {
  size_t first = 0;
  size_t period = 0;
  size_t iterations = 0;
  bool is_counted = false;  // of the backward pass: with the loop that it is of
};

class LoopSearch {
 public:
  LoopSearch(const CountedOps& all, const Places& places) : all_(all), places_(places) {
    find_roots();
    own_ns_.resize(all.ops.size());
    // On the host also where a device works: what the loop costs is the host's time.
    for (size_t at = 0; at < all.ops.size(); ++at) {
      own_ns_[at] = all.event(at).dur_ns;
      const uint32_t parent = all.links.parent[all.ops[at]];
      if (parent != kNone && all.position[parent] != kNone)
        own_ns_[all.position[parent]] -= all.event(at).dur_ns;
    }
  }

  std::vector<CallLoop> run() {
    search(true, kLeastIterations, runs_);
    // Names alone say too little where it is not known what a step is.
    if (!all_.links.steps.empty()) search(false, 2 * kLeastIterations, runs_);
    seeks_nodes_ = true;
    search(false, kLeastIterations, backward_runs_);
    std::vector<CallLoop> loops;
    for (auto& [signature, runs] : runs_) {
      if (auto loop = describe(runs)) loops.push_back(std::move(*loop));
    }
    std::stable_sort(loops.begin(), loops.end(), [](const CallLoop& a, const CallLoop& b) {
      return a.overhead_ns() > b.overhead_ns();
    });
    return loops;
  }

 private:
  using Runs = std::map<std::vector<StringId>, std::vector<Run>>;  // by what an iteration holds

  void find_roots() {
    // Of the thread with the most outermost ops: a loop is one thread's.
    std::map<std::pair<int32_t, int64_t>, size_t> threads;
    for (size_t at = 0; at < all_.ops.size(); ++at)
      if (all_.is_root(at)) ++threads[{all_.event(at).pid, all_.event(at).tid}];
    const auto most =
        std::max_element(threads.begin(), threads.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    for (size_t at = 0; most != threads.end() && at < all_.ops.size(); ++at)
      if (all_.is_root(at) && all_.event(at).pid == most->first.first &&
          all_.event(at).tid == most->first.second)
        roots_.push_back(static_cast<uint32_t>(at));
    taken_.resize(roots_.size());
    // Asked again and again: once for each name, and side by side in memory.
    ByNameOnce<char> nodes(all_.trace);
    ByNameOnce<char> accumulate(all_.trace);
    is_node_.reserve(roots_.size());
    steps_.reserve(roots_.size());
    for (const uint32_t root : roots_) {
      const StringId name = all_.name_id(root);
      is_node_.push_back(nodes.get(name, is_autograd_node));
      steps_.push_back(all_.links.step[all_.ops[root]]);
      if (is_node_.back() != 0 && accumulate.get(name, [](std::string_view text) {
            return text.find("AccumulateGrad") != std::string_view::npos;
          }) != 0)
        ++gradients_;
    }
  }

  uint32_t step_of(size_t root) const { return steps_[root]; }

  // Autograd's nodes are searched apart: alone they may be the backward of layers.
  bool is_of_loop(size_t root) const {
    return taken_[root] == 0 && (is_node_[root] != 0) == seeks_nodes_;
  }

  void search(bool by_inputs, size_t least, Runs& runs) {
    if (all_.links.steps.empty()) least = std::max(least, kLeastWithoutSteps);
    const size_t n = roots_.size();
    std::vector<uint64_t> keys(n);
    for (size_t i = 0; i < n; ++i)
      keys[i] = by_inputs ? all_.key(roots_[i]) : uint64_t{all_.name_id(roots_[i])};
    for (size_t period = 1; period <= kLongestPeriod && period * least <= n; ++period) {
      for (size_t i = 0; i + period < n;) {
        size_t equal = 0;  // keys that are those of a period later
        while (i + equal + period < n && keys[i + equal] == keys[i + equal + period] &&
               (!by_inputs || static_cast<uint32_t>(keys[i + equal]) != kNone) &&
               is_of_loop(i + equal) && is_of_loop(i + equal + period) &&
               step_of(i + equal) == step_of(i + equal + period))
          ++equal;
        if (equal < (least - 1) * period) {
          i += equal + 1;
          continue;
        }
        const Run found{i, period, equal / period + 1, false};
        for (size_t r = i; r < i + found.iterations * period; ++r) taken_[r] = true;
        runs[signature(found)].push_back(found);
        i += found.iterations * period;
      }
    }
  }

  // The names of an iteration whatever it begins with.
  std::vector<StringId> signature(const Run& run) const {
    std::vector<StringId> names;
    for (size_t r = run.first; r < run.first + run.period; ++r)
      names.push_back(all_.name_id(roots_[r]));
    std::sort(names.begin(), names.end());
    return names;
  }

  using ByName = std::unordered_map<StringId, int64_t>;

  // What the gaps of a run hold that its iterations do not ask for. Sorts them.
  static int64_t waits_among(std::vector<int64_t>& gaps, int64_t run_ns, size_t iterations) {
    std::sort(gaps.begin(), gaps.end(), std::greater<>());
    int64_t waits_ns = 0;
    for (const int64_t gap : gaps) {
      const int64_t iteration_ns =
          (run_ns - waits_ns - gap) / static_cast<int64_t>(std::max<size_t>(1, iterations));
      if (gap < kLeastWaitNs || gap / kWaitIterations < iteration_ns) break;
      waits_ns += gap;
    }
    return waits_ns;
  }

  // Adds the times of a run to its loop, and its calls to `calls`.
  void add_times(const Run& run, CallLoop& loop, ByName& by_name, std::vector<uint32_t>* calls) {
    const size_t last = run.first + run.iterations * run.period - 1;
    const Event& first = all_.event(roots_[run.first]);
    const int64_t end = all_.event(roots_[last]).end_ns();
    std::vector<int64_t> gaps;
    for (size_t r = run.first + 1; r <= last; ++r) {
      const int64_t gap = all_.event(roots_[r]).ts_ns - all_.event(roots_[r - 1]).end_ns();
      if (gap > kCallGapNs) gaps.push_back(gap);
    }
    const int64_t waits_ns = waits_among(gaps, end - first.ts_ns, run.iterations);
    loop.wall_ns += end - first.ts_ns - waits_ns;
    loop.between_ns += std::accumulate(gaps.begin(), gaps.end(), int64_t{0}) - waits_ns;
    for (size_t at = roots_[run.first]; at < all_.ops.size(); ++at) {
      const Event& e = all_.event(at);
      if (e.ts_ns >= end) break;
      if (e.pid != first.pid || e.tid != first.tid) continue;
      ++loop.op_calls;
      if (calls != nullptr) calls->push_back(static_cast<uint32_t>(at));
      by_name[e.name] += own_ns_[at];
      loop.work_ns += std::max<int64_t>(0, own_ns_[at] - kSmallOpNs);
    }
  }

  // The backward pass of the loop: as many iterations in the same step. Each belongs to one loop,
  // once: a step may have several runs of a loop, and several loops of as many iterations.
  void add_backward(const Run& run, CallLoop& loop, ByName& by_name) {
    for (auto& [signature, backward] : backward_runs_)
      for (Run& its : backward) {
        const size_t more = std::max(its.iterations, run.iterations);
        const size_t less = std::min(its.iterations, run.iterations);
        if (its.is_counted || more - less > 2 || step_of(its.first) != step_of(run.first) ||
            its.first < run.first || !is_backward_of(its, run))
          continue;
        its.is_counted = true;
        add_times(its, loop, by_name, nullptr);
      }
  }

  int64_t sequence_of(size_t root) const {
    const OpArgs* args = all_.trace.op_args(all_.event(roots_[root]));
    return args == nullptr ? -1 : args->sequence_number;
  }

  // The nodes have the numbers of ops of the run; true where numbers were not recorded.
  bool is_backward_of(const Run& its, const Run& run) const {
    const size_t end = run.first + run.iterations * run.period;
    const int64_t number = sequence_of(its.first + its.period * (its.iterations / 2));
    const int64_t from = sequence_of(run.first);
    const int64_t to = end < roots_.size() ? sequence_of(end) : -1;
    return number < 0 || from < 0 || (number >= from && (to <= from || number < to));
  }

  std::optional<CallLoop> describe(const std::vector<Run>& runs) {
    CallLoop loop;
    ByName by_name;
    std::vector<uint32_t> calls;
    size_t most_iterations = 0;
    bool has_parameters = false;
    bool reads_value = false;
    for (const Run& run : runs) {
      ++loop.runs;
      loop.iterations += static_cast<int64_t>(run.iterations);
      most_iterations = std::max(most_iterations, run.iterations);
      const int64_t before_ns = loop.wall_ns;
      add_times(run, loop, by_name, &calls);
      if (is_after_backward(run)) loop.after_backward_ns += loop.wall_ns - before_ns;
      add_backward(run, loop, by_name);
    }
    if (static_cast<double>(loop.wall_ns) < kLeastLoop * static_cast<double>(all_.wall_ns))
      return std::nullopt;
    // Work that training repeats on the same parameters may be the same each time.
    loop.is_work =
        static_cast<double>(loop.overhead_ns()) < kLoopOverhead * static_cast<double>(loop.wall_ns);
    if (loop.is_work && !all_.has_backward) return std::nullopt;
    const Run& run = *std::max_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.iterations < b.iterations;
    });
    for (size_t r = run.first; r < run.first + run.period; ++r) {
      loop.ops.emplace_back(all_.name(roots_[r]));
      has_parameters = has_parameters || reads_parameters(all_.name(roots_[r]));
      // A value of its own decides how it goes on: no layer does that.
      const std::string_view base = aten_base(all_.name(roots_[r]));
      reads_value = reads_value || base == "item" || base == "is_nonzero";
    }
    std::optional<bool> shares = shares_modules(run);
    // Layers read what the one before gave; tables read ids.
    if (shares && !*shares && reads_tables(run)) shares = true;
    if (shares && !*shares) return std::nullopt;  // layers
    const size_t steps = std::max<size_t>(1, all_.steps);
    const bool more_than_gradients =
        all_.has_backward && gradients_ > 0 && most_iterations > gradients_ / steps;
    loop.is_shown = (shares && *shares) || !has_parameters || more_than_gradients || reads_value;
    if (!loop.is_shown && (most_iterations < kMoreThanLayers || run.period > kFewOps))
      return std::nullopt;
    if (loop.is_work && (!loop.is_shown || !has_parameters)) return std::nullopt;
    loop.place = places_.of(calls);
    // An optimizer's loop over parameters has a rule of its own.
    if (loop.place.annotation.starts_with("Optimizer.")) return std::nullopt;
    for (const auto& [name, ns] : by_name)
      loop.op_ns.emplace_back(all_.trace.strings[name], std::max<int64_t>(0, ns));
    std::sort(loop.op_ns.begin(), loop.op_ns.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    loop.longest = loop.op_ns.front().first;
    std::string recurrent = recurrent_action(run);
    if (recurrent.empty()) recurrent = power_action(run);
    loop.remedy = recurrent.empty() ? remedy_of(loop) : recurrent;
    if (has_parameters && recurrent.empty())
      loop.remedy +=
          "; if each iteration needs the one before, torch.compile or CUDA graphs make the calls "
          "cheaper";
    return loop;
  }

  // Behind the last autograd node of its step, which has some.
  bool is_after_backward(const Run& run) const {
    const uint32_t step = step_of(run.first);
    if (step == kNone) return false;
    for (size_t r = run.first; r < roots_.size() && step_of(r) == step; ++r)
      if (is_node_[r] != 0) return false;
    for (size_t r = run.first; r > 0 && step_of(r - 1) == step; --r)
      if (is_node_[r - 1] != 0) return true;
    return false;
  }

  // All that reads parameters in an iteration looks rows up.
  bool reads_tables(const Run& run) const {
    bool looks_up = false;
    for (size_t r = run.first; r < run.first + run.period; ++r) {
      if (!reads_parameters(all_.name(roots_[r]))) continue;
      if (!all_.base(roots_[r]).starts_with("embedding")) return false;
      looks_up = true;
    }
    return looks_up;
  }

  // Does each iteration call one and the same module? Empty where no module tells.
  std::optional<bool> shares_modules(const Run& run) const {
    // The ops that read parameters tell; else the first.
    std::vector<size_t> offsets;
    for (size_t r = 0; r < run.period; ++r)
      if (reads_parameters(all_.name(roots_[run.first + r]))) offsets.push_back(r);
    if (offsets.empty()) offsets.push_back(0);
    const size_t stride = std::max<size_t>(1, run.iterations / kSampled);
    std::optional<bool> shares;
    for (const size_t offset : offsets) {
      std::vector<uint32_t> calls;
      for (size_t i = 0; i < run.iterations; i += stride)
        calls.push_back(roots_[run.first + i * run.period + offset]);
      std::set<std::string_view> modules;
      std::set<int64_t> starts;
      for (const Places::Module& module : places_.modules_at(calls)) {
        modules.insert(module.name);
        starts.insert(module.start_ns);
      }
      modules.erase("");
      if (modules.size() > 1) return false;  // layers may share one of their parts
      // All in one call of a module: a loop in its forward, or the layers of a compiled model.
      if (modules.size() == 1 && starts.size() == calls.size()) shares = true;
    }
    return shares;
  }

  // A recurrent layer is called for each step of a sequence: its sizes, "" else.
  std::string recurrent_action(const Run& run) const {
    for (size_t r = run.first; r < run.first + run.period; ++r) {
      const std::string_view base = all_.base(roots_[r]);
      if (base != "lstm" && base != "gru" && base != "rnn_tanh" && base != "rnn_relu") continue;
      const auto in = all_.inputs(roots_[r]);
      constexpr size_t kBatchFirst = 8;  // the argument
      if (in.size() <= kBatchFirst || in[0].dims.size() != 3) continue;
      if (in[0].dims[in[kBatchFirst].concrete == "True" ? 1 : 0] != 1) continue;
      return fmt::format(
          "aten::{} gets one step of a sequence in each call: if its inputs are there before the "
          "loop, give it the whole sequence in one call (the result of each step is in its "
          "output, the state goes on within it); only where a step reads what the one before gave "
          "(sampling, teacher forcing off) a loop is needed: nn.LSTMCell in a compiled loop",
          base);
    }
    return "";
  }

  // One product in an iteration, of a square matrix and what has its sizes before and behind it.
  std::string power_action(const Run& run) const {
    size_t product = 0;
    size_t products = 0;
    for (size_t r = run.first; r < run.first + run.period; ++r) {
      const std::string_view base = all_.base(roots_[r]);
      if (base == "matmul" || base == "mm" || base == "bmm" || base == "mv") {
        product = r;
        ++products;
      } else if (op_class(all_.name(roots_[r])) != OpClass::view && base != "copy") {
        return "";
      }
    }
    if (products != 1) return "";
    const std::vector<TensorShape> read = tensor_inputs(all_.inputs(roots_[product]));
    if (read.size() != 2 || read[0].dims.empty() || read[1].dims.empty()) return "";
    const auto is_square = [](const std::vector<int64_t>& dims) {
      return dims.size() > 1 && dims.back() == dims[dims.size() - 2];
    };
    if (!is_square(read[0].dims) && !is_square(read[1].dims)) return "";
    return "if each iteration multiplies the result of the one before by the same matrix (a "
           "kernel, a chain, powers): double what is known (the next 2^n results are the power "
           "A^(2^n) times the first 2^n, one product each: squarings in place of steps), or "
           "diagonalise once (eigenvalues to all powers at once; a diagonal A from the start); if "
           "the operands do not depend on each other, stack them to one product";
  }

  // What the row of the telling op says of loops: one that is more than arithmetic and views, else
  // the longest.
  static std::string remedy_of(const CallLoop& loop) {
    const auto holds = [&](std::string_view base) {
      return std::any_of(loop.op_ns.begin(), loop.op_ns.end(),
                         [&](const auto& op) { return aten_base(op.first) == base; });
    };
    const bool has_product = holds("mm") || holds("addmm");
    // Inner products, steps along a direction and a test: conjugate gradients and their like.
    const auto inner_products = std::ranges::count_if(loop.ops, [](const std::string& op) {
      constexpr std::array<std::string_view, 6> kInner = {
          "sum", "dot", "vdot", "norm", "linalg_vector_norm", "inner"};
      return is_one(kInner, aten_base(op));
    });
    const bool is_tested = holds("is_nonzero") || holds("item");
    if (inner_products >= 2 && is_tested && holds("add") && (holds("div") || holds("reciprocal")) &&
        !holds("index") && !holds("maximum"))
      return "if this is an iterative solver: start from the result of the step before (a warm "
             "start) in place of zeros, precondition (the diagonal, a coarser grid), or solve "
             "directly (a factorisation kept, an FFT for a regular grid); test for the end every "
             "few iterations, since each test reads a value";
    const bool compares_pairs =
        (holds("maximum") && holds("minimum")) || (holds("max") && holds("min"));
    if (compares_pairs && is_tested && !has_product)
      return "if each iteration compares one candidate with the others (suppression, matching): "
             "drop candidates before the loop (a threshold on their scores first, topk), compute "
             "all pairs at once outside of it (one matrix of overlaps or distances), or call the "
             "library's op (torchvision.ops.nms, batched_nms)";
    if (has_product && (holds("tanh") || holds("sigmoid")))
      return "if this is a recurrence over time: nn.LSTM, nn.GRU or nn.RNN run all steps in one "
             "call, and what does not depend on the step before (the product with the input) can "
             "be one product over all steps; else run all iterations as one batch";
    if (loop.ops.size() == 1 && loop.ops.front() == "aten::detach")
      return "a loop of detach alone is most likely state_dict(), or a copy of all parameters, "
             "again and again: call it once and keep the dictionary; averages of weights by "
             "torch._foreach_lerp_ on lists of the parameters";
    if (holds("set") && !has_product)
      return "tensors are unpickled one by one: send or save stacked tensors, not objects "
             "(all_gather or broadcast in place of all_gather_object and broadcast_object_list; "
             "one file of tensors)";
    const auto asks = [&](std::string_view base) {
      return std::ranges::any_of(loop.ops,
                                 [&](const std::string& op) { return aten_base(op) == base; });
    };
    const bool compares = asks("ge") || asks("gt") || asks("le") || asks("lt");
    if (compares && asks("sum") && !has_product && loop.ops.size() <= 12)
      return "if thresholds, bins or edges are gone through one by one (a curve of a metric, a "
             "histogram, ranks): sort once and take cumsum of the labels, which gives all "
             "thresholds (or torch.bucketize, histc or bincount, and cumsum of the counts); few of "
             "them as one broadcast comparison";
    if (asks("roll") && !has_product)
      return "shifts are taken one by one: all of them at once as unfold (windows without a copy), "
             "one gather with a table of indices, or a convolution; a correlation over many shifts "
             "by FFT";
    const bool takes_best = asks("minimum") || asks("maximum") || asks("min") || asks("max");
    if (takes_best && asks("add") && (asks("select") || asks("index")) && !has_product)
      return "if this is a dynamic programme (DTW, edit distance, Viterbi): compute all states, or "
             "a whole anti-diagonal, in one op, all pairs or sequences of the batch at once, and "
             "take backpointers out of the loop; else a compiled loop (torch.compile, numba, C++)";
    if (asks("logsumexp") && asks("sub") && !asks("select") && !asks("slice") && !asks("stack") &&
        !asks("cat") && !has_product)
      return "if rows and columns are normalised by turns (Sinkhorn): fewer iterations, with a "
             "test of convergence every few and the duals of the step before as the start, or "
             "products of exp(-cost / eps) with vectors (K @ v, K.T @ u) in place of logsumexp of "
             "the whole matrix; of a recursion over time the library's op (F.ctc_loss) or a scan";
    if ((holds("logsumexp") || holds("logaddexp")) && !has_product)
      return "if this is a recursion over time (CTC, a CRF, a hidden Markov model): the library's "
             "op runs all steps in one call (F.ctc_loss), or an associative scan does "
             "(logcumsumexp for a plain sum); else write it over the whole tensor: all steps, "
             "labels or samples at once";
    // A call of a library holds the loop: what it is asked for says more than what stands around.
    int64_t loop_ns = 0;
    for (const auto& [name, ns] : loop.op_ns) loop_ns += ns;
    const OpKnowledge* longest = op_knowledge(loop.longest);
    if (longest != nullptr && longest->cost == OpCost::solve && !longest->loop.empty() &&
        4 * loop.op_ns.front().second >= loop_ns)
      return fmt::format(
          "{} takes most: {}; if what it reads depends on no weight (a transform of the data set, "
          "a graph, a fixed matrix), compute it once when the data are prepared (pre_transform, "
          "the Dataset) and keep it; build its matrices without a loop (one index_put or "
          "scatter for the batch)",
          loop.longest, longest->loop);
    if (holds("eq") && (holds("index") || holds("nonzero") || holds("masked_select") ||
                        holds("where") || holds("masked_fill")))
      return "rows are picked by a mask for each label: one index_add, scatter_reduce or bincount "
             "over the labels computes all groups at once (a division by the counts gives means; "
             "segment_reduce if the labels are sorted)";
    // `if not valid.all(): raise`, as the constructors of torch.distributions ask.
    if (asks("is_nonzero") && (asks("all") || asks("_is_all_true")) && !has_product)
      return "values are checked in each iteration (arguments of torch.distributions, asserts): "
             "validate_args=False or Distribution.set_default_validate_args(False) leaves the "
             "checks out; else one object or call for all iterations, outside of the loop";
    // Ops that look at their input themselves (multinomial) take no number out for the program.
    if ((asks("item") || asks("is_nonzero") || asks("_local_scalar_dense")) && !has_product)
      return "numbers are taken out of tensors one by one: compute on the whole tensor and take "
             "one number of it ((scores.argmax(1) == labels).sum().item()), or call tolist() once";
    if (holds("select") && holds("add") && holds("mul") && !has_product && !holds("sum"))
      return "if each iteration needs the one before (a filter, a recurrence): cumsum or cumprod "
             "of scaled values, torchaudio.functional.lfilter, an associative scan, or "
             "torch.compile of the loop; else write it over the whole tensor";
    if (holds("mul") && holds("sum") && !has_product)
      return "stack the parts: products of pairs that are summed are one matrix product (x @ "
             "x.transpose(-1, -2)), and the sum over all pairs is (square of the sum - sum of the "
             "squares) / 2";
    if (holds("lift_fresh") && !has_product)
      return "make one tensor of all numbers (torch.tensor of the whole list, torch.from_numpy) "
             "and index it";
    for (const std::string& name : loop.ops)
      if (const OpKnowledge* known = op_knowledge(name);
          known != nullptr && reads_parameters(name) && !known->loop.empty())
        return std::string(known->loop);
    std::string_view plain;
    for (const auto& [name, ns] : loop.op_ns) {
      const OpKnowledge* known = op_knowledge(name);
      if (known == nullptr || known->loop.empty()) continue;
      const bool is_plain = known->cost == OpCost::metadata ||
                            (known->cost == OpCost::bytes && known->fuses == OpFuses::pointwise);
      if (!is_plain) return std::string(known->loop);
      if (plain.empty()) plain = known->loop;
    }
    return plain.empty() ? "one call over a batch in place of the loop; torch.compile, if the "
                           "iterations depend on each other"
                         : std::string(plain);
  }

  const CountedOps& all_;
  const Places& places_;
  std::vector<uint32_t> roots_;  // positions in the ops
  std::vector<char> taken_;      // by root: part of a run
  std::vector<char> is_node_;    // by root: autograd's
  std::vector<uint32_t> steps_;  // by root
  std::vector<int64_t> own_ns_;  // on the host, by position
  size_t gradients_ = 0;         // accumulated, over all steps
  bool seeks_nodes_ = false;
  Runs runs_;
  Runs backward_runs_;
};

}  // namespace

std::vector<CallLoop> find_loops(const CountedOps& all, const Places& places) {
  return LoopSearch(all, places).run();
}

}  // namespace epilogue::trace
