// SPDX-License-Identifier: Apache-2.0
// What is computed more often than its values differ: softmaxes of the same logits, and pairs of a
// set in both orders.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kClasses = 256;      // a softmax over fewer is rarely dear
constexpr size_t kLogitsOfStep = 16;   // sizes of them
constexpr int64_t kLeastOfPairs = 16;  // of a set
constexpr double kPairsShare = 0.1;    // of the run

constexpr std::array<std::string_view, 6> kSoftmaxes = {
    "softmax", "log_softmax", "_softmax", "_log_softmax", "logsumexp", "cross_entropy_loss"};
constexpr std::array<std::string_view, 3> kRowTakers = {"index", "index_select", "embedding"};

// Elements and classes: a loss reads a view of [8, 48, 6000] as [384, 6000].
using Logits = std::pair<int64_t, int64_t>;

std::optional<Logits> logits_of(const Dims& dims) {
  if (dims.size() < 2 || dims.back() < kClasses) return std::nullopt;
  return Logits{TensorShape{dims, {}}.numel(), dims.back()};
}

class ComputedTwice : AskedSearch {
 public:
  ComputedTwice(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_softmaxes();
    find_pairs();
  }

 private:
  // What an op writes, if it is no view; nothing if that is not known.
  std::optional<Logits> written_by(size_t i) const {
    const auto result = output_shape(asked_.name(i), asked_.inputs(i));
    return result ? logits_of(result->dims) : std::nullopt;
  }

  // Along the last dimension, and of a tensor that lies as it was written: a transposed one has
  // other rows. Where strides were not recorded, a square one may be transposed.
  bool is_along_rows(size_t i) const {
    const auto in = asked_.inputs(i);
    const Dims& dims = in[0].dims;
    const auto rank = std::ssize(dims);
    if (asked_.base(i) == "cross_entropy_loss") {
      if (rank != 2) return false;  // classes are in the second dimension
    } else if (in.size() > 1) {
      const std::vector<int64_t> dim = numbers_of(in[1].concrete);
      if (!dim.empty() && (dim.size() > 1 || (dim[0] != -1 && dim[0] != rank - 1))) return false;
    }
    if (in[0].strides.empty()) return dims[dims.size() - 2] != dims.back();
    return in[0].strides.back() == 1;
  }

  struct Readers {
    std::vector<size_t> direct;  // softmaxes of what no elementwise op made for them
    int64_t made = 0;            // tensors that they may read
    size_t first = kNone;        // of the softmaxes
  };

  // Softmaxes that share their logits with another one: more of them than tensors to read.
  void find_softmaxes() {
    std::map<std::pair<uint32_t, Logits>, Readers> readers;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!is_one(kSoftmaxes, asked_.base(i)) || !is_forward(i)) continue;
      const auto in = asked_.inputs(i);
      const auto logits = in.empty() ? std::nullopt : logits_of(in[0].dims);
      if (!logits || !is_along_rows(i)) continue;
      // Scaled or masked right before: a tensor of its own.
      size_t before = i;
      while (before > 0 && asked_.kind(before - 1) == OpClass::view) --before;
      const bool is_own = before > 0 && asked_.kind(before - 1) == OpClass::pointwise &&
                          written_by(before - 1) == logits;
      Readers& of = readers[{step(i), *logits}];
      of.first = std::min(of.first, i);
      if (!is_own) of.direct.push_back(i);
    }
    std::erase_if(readers, [](const auto& of) { return of.second.direct.size() < 2; });
    // Logits of so many sizes are those of attention while a text grows.
    std::map<uint32_t, size_t> sizes;
    for (const auto& [of, its] : readers) ++sizes[of.first];
    std::erase_if(readers, [&](const auto& of) { return sizes[of.first.first] > kLogitsOfStep; });
    if (readers.empty()) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const OpClass kind = asked_.kind(i);
      if (kind == OpClass::view) continue;
      const auto of_step = readers.lower_bound({step(i), Logits{}});
      if (of_step == readers.end() || of_step->first.first != step(i)) continue;
      if (is_in_place(asked_.name(i)) && is_forward(i) && !asked_.inputs(i).empty()) {
        // Logits that are changed are others from then on.
        if (const auto logits = logits_of(asked_.inputs(i)[0].dims))
          if (const auto of = readers.find({step(i), *logits}); of != readers.end())
            ++of->second.made;
        continue;
      }
      if (!is_forward(i) || is_one(kSoftmaxes, asked_.base(i))) continue;
      const auto known = output_shape(asked_.name(i), asked_.inputs(i));
      const auto logits = known ? logits_of(known->dims) : std::nullopt;
      if (known && !logits) continue;
      // Those of its step alone: a long run has thousands.
      for (auto of = of_step; of != readers.end() && of->first.first == step(i); ++of) {
        // Elementwise ops behind the first softmax work on its result: p * log(p).
        const bool is_term = kind == OpClass::pointwise && i > of->second.first;
        const Logits& read = of->first.second;
        if (!is_term && (logits ? *logits == read : may_make(i, read))) ++of->second.made;
      }
    }
    std::map<Logits, CostlyForm> forms;
    std::map<Logits, int64_t> tensors;
    std::map<Logits, int64_t> steps;
    for (const auto& [of, its] : readers) {
      const int64_t made = its.made;
      // Logits that no op makes are data, of which there may be several.
      if (made == 0 || std::ssize(its.direct) <= made) continue;
      CostlyForm& form = forms[of.second];
      if (form.count == 0) form.first = its.direct.front();
      form.count += std::ssize(its.direct);
      tensors[of.second] = std::max(tensors[of.second], made);
      for (const size_t i : its.direct) take(form, i);
      ++steps[of.second];
    }
    for (const auto& [logits, form] : forms) {
      const int64_t per_step = form.count / std::max<int64_t>(1, steps[logits]);
      const auto shared = static_cast<double>(tensors[logits]) / static_cast<double>(per_step);
      report(
          WasteKind::repeated_softmax, form,
          fmt::format("{} softmaxes of a step read {} of {} x {}", per_step,
                      tensors[logits] == 1 ? "one tensor of logits"
                                           : fmt::format("{} tensors of logits", tensors[logits]),
                      logits.first / logits.second, logits.second),
          {times_of(form), "with their gradients; no other op of the step makes such a tensor"},
          "take log_softmax once, keep the result, and pass it to all terms (log-probabilities, "
          "entropy, divergence, loss): its exp() gives the probabilities, F.nll_loss(log_p, "
          "target) the cross entropy, log_p.gather of the chosen ones their log-probabilities; "
          "each of the others reads all logits again, forward and backward",
          std::max(0.0, 1 - shared), WasteProof::likely);
    }
  }

  // An op whose result the shapes do not tell: a product with so many columns, or rows of so many.
  bool may_make(size_t i, const Logits& logits) const {
    const OpKnowledge* known = op_knowledge(asked_.name(i));
    if (known == nullptr) return true;
    const auto in = asked_.inputs(i);
    if (known->cost == OpCost::flops)
      return std::ranges::any_of(tensors(i), [&](const TensorShape& t) {
        return std::ranges::find(t.dims, logits.second) != t.dims.end();
      });
    constexpr std::array<std::string_view, 6> kJoining = {"cat",   "stack",        "embedding",
                                                          "index", "index_select", "repeat"};
    if (!is_one(kJoining, asked_.base(i)) || in.empty()) return false;
    const Dims& dims = in[0].is_list && !in[0].list.empty() ? in[0].list[0].dims : in[0].dims;
    return !dims.empty() && dims.back() == logits.second;
  }

  // --- Pairs in both orders ------------------------------------------------------------

  // n, if the op takes n (n - 1) rows of n.
  std::optional<int64_t> set_of_pairs(size_t i) const {
    if (!is_one(kRowTakers, asked_.base(i))) return std::nullopt;
    const auto in = asked_.inputs(i);
    const std::vector<TensorShape> read = tensors(i);
    if (read.size() < 2 || read[0].dims.empty()) return std::nullopt;
    const int64_t n = read[0].dims[0];
    if (n < kLeastOfPairs || read[1].dims.size() != 1 || read[1].dims[0] != n * (n - 1))
      return std::nullopt;
    return n;
  }

  void find_pairs() {
    std::map<int64_t, int64_t> sets;  // n by the number of pairs
    for (size_t i = 0; i < asked_.size(); ++i)
      if (const auto n = set_of_pairs(i)) sets[*n * (*n - 1)] = *n;
    if (sets.empty()) return;
    std::map<int64_t, CostlyForm> forms;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!is_forward(i)) continue;
      int64_t rows = 0;
      for (const TensorShape& t : tensors(i))
        if (!t.dims.empty() && sets.contains(t.dims[0])) rows = t.dims[0];
      if (rows == 0) continue;
      CostlyForm& form = forms[rows];
      if (form.count++ == 0) form.first = i;
      take(form, i);
    }
    for (const auto& [pairs, form] : forms) {
      const int64_t n = sets[pairs];
      if (static_cast<double>(form.ns) < kPairsShare * static_cast<double>(all_.wall_ns)) continue;
      report(WasteKind::ordered_pairs, form,
             fmt::format("ops on {} rows are of all pairs of {} in both orders, {} x {}", pairs, n,
                         n, n - 1),
             {times_of(form),
              "a loss if what is computed is the same for (i, j) and (j, i): "
              "distances, energies, similarities"},
             fmt::format("if it is symmetric (a function of the distance, a sum of both), compute "
                         "each pair once: i, j = torch.triu_indices({0}, {0}, 1) gives the {1} "
                         "pairs with i < j, and the factor of a half goes (forces come from the "
                         "gradient, or are added to i and subtracted from j); pairs beyond a "
                         "cutoff can go, too (a neighbour list)",
                         n, pairs / 2),
             0.5, WasteProof::question);
    }
  }
};

}  // namespace

void find_computed_twice(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  ComputedTwice(asked, places, found).run();
}

}  // namespace epilogue::trace
