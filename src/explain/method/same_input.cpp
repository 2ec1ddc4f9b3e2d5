// SPDX-License-Identifier: Apache-2.0
// What reads the same input several times: chains of ops on tensors that no op of the step makes,
// and rows of a batch that begin alike.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kLongestSameChain = 64;   // ops
constexpr size_t kLeastSameWork = 3;       // ops of it that move data
constexpr size_t kLeastSameModules = 3;    // in a step
constexpr size_t kLeastRounds = 4;         // in which a module reads the same
constexpr size_t kWeightBehind = 4;        // ops that may read the result as a weight
constexpr size_t kJoinedBehind = 4;        // ops from rows that are repeated to what joins them
constexpr double kPrefixShare = 0.5;       // of the joined rows
constexpr double kLeastPrefixShare = 0.1;  // of the run

// Each call gives other numbers.
bool draws(std::string_view base) {
  constexpr std::array<std::string_view, 6> kDraws = {"rand",   "dropout",     "bernoulli",
                                                      "normal", "exponential", "uniform"};
  return std::ranges::any_of(
      kDraws, [&](std::string_view part) { return base.find(part) != std::string_view::npos; });
}

class SameInput : AskedSearch {
 public:
  SameInput(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_prefixes();
    if (all_.links.steps.empty()) return;
    find_chains();
    if (!all_.has_backward) find_projections();
  }

 private:
  // --- Chains --------------------------------------------------------------------------

  using Sizes = std::pair<bool, Dims>;  // of indices; the sizes

  // Asked ops [first, end) that read their own results and tensors that no op of the step makes.
  struct Chain {
    size_t first = 0;
    size_t end = 0;
    std::vector<uint32_t> sources;  // sizes
  };

  // Sizes have numbers, so that they are compared once; those of indices have others.
  uint32_t number_of(const Dims& dims, std::string_view type = "float") const {
    const bool is_index = type == "long int" || type == "int";
    return numbers_.try_emplace({is_index, dims}, static_cast<uint32_t>(numbers_.size()))
        .first->second;
  }

  // Sizes of the tensors that an op reads.
  const std::vector<uint32_t>& read_by(size_t i) const {
    const uint32_t id = all_.inputs_id(asked_.at(i));
    if (reads_.empty()) reads_.resize(all_.trace.inputs.size());
    auto& read = reads_[id];
    if (!read) {
      read.emplace();
      for (const TensorShape& t : tensors(i))
        if (!t.dims.empty()) read->push_back(number_of(t.dims, t.type));
    }
    return *read;
  }

  // An op whose result depends on nothing but what it reads, and no parameter of a layer.
  bool may_join(size_t i) const {
    if (all_.inputs_id(asked_.at(i)) == kNone || !is_forward(i)) return false;
    return joins_.get(all_.name_id(asked_.at(i)), [](std::string_view name) -> char {
      const OpClass kind = op_class(name);
      if (is_in_place(name) || kind == OpClass::gemm || draws(aten_base(name))) return 0;
      if (kind == OpClass::view || kind == OpClass::pointwise || kind == OpClass::copy) return 1;
      const OpKnowledge* known = op_knowledge(name);
      return known != nullptr && !known->has_weights && known->cost != OpCost::flops &&
                     known->cost != OpCost::wait
                 ? 1
                 : 0;
    }) != 0;
  }

  struct Result {
    uint32_t dims = kNone;  // kNone: not known
    bool is_own = false;    // what the op gives out, and no memory of an op within it
  };

  Result result_at(uint32_t at) const {
    if (all_.inputs_id(at) == kNone) return {};
    const auto [known, is_new] = results_.try_emplace(all_.key(at));
    if (!is_new) return known->second;
    const std::string_view base = all_.base(at);
    const auto in = all_.inputs(at);
    std::optional<Dims> dims;
    std::string_view type = in.empty() ? std::string_view() : in[0].type;
    bool is_own = true;
    if ((base == "as_strided" || base == "view" || base == "_unsafe_view" ||
         base == "_reshape_alias") &&
        in.size() > 1) {
      dims = numbers_of(in[1].concrete);
    } else if (base.starts_with("empty") && !in.empty()) {
      dims = in[0].dims.empty() ? numbers_of(in[0].concrete) : in[0].dims;
      is_own = false;
    } else if (base == "index_select" && in.size() > 2) {
      dims = selected(in);
    } else if (base == "linear" && in.size() > 1 && !in[0].dims.empty() && !in[1].dims.empty()) {
      dims = in[0].dims;
      dims->back() = in[1].dims[0];
    } else if (is_in_place(all_.name(at)) && !in.empty()) {
      dims = in[0].dims;
    } else if (const auto shape = output_shape(all_.name(at), in)) {
      dims = shape->dims;
      type = shape->type;
    }
    if (dims) known->second = {number_of(*dims, type), is_own};
    return known->second;
  }

  // Calls visit(sizes) for what the op gives out or allocates, as far as it is known. Returns
  // whether its own result is among that.
  template <class Visit>
  bool results(size_t i, Visit visit) const {
    bool is_known = false;
    const uint32_t first = asked_.at(i);
    const int64_t end = all_.event(first).end_ns();
    // Norms and sums look at their inputs by views, which are not what they give out.
    const OpClass kind = asked_.kind(i);
    const bool is_told_within =
        kind == OpClass::view || kind == OpClass::copy || is_multiplication(asked_.name(i));
    for (uint32_t at = first; at < all_.ops.size() && all_.event(at).ts_ns < end; ++at) {
      const Result result = result_at(at);
      if (result.dims == kNone) continue;
      visit(result.dims);
      is_known = is_known || (result.is_own && (at == first || is_told_within));
    }
    return is_known;
  }

  static std::optional<Dims> selected(std::span<const OpInput> in) {
    Dims dims = in[0].dims;
    const auto rank = static_cast<int64_t>(dims.size());
    int64_t d = whole_argument(in, 1).value_or(rank);
    if (d < 0) d += rank;
    if (d < 0 || d >= rank || in[2].dims.size() != 1) return std::nullopt;
    dims[static_cast<size_t>(d)] = in[2].dims[0];
    return dims;
  }

  // Of an op whose result is not known: it likely has as many dimensions as a tensor that it reads,
  // and their sizes.
  bool may_make(size_t i, uint32_t number) const {
    const auto of = std::ranges::find(numbers_, number, &std::pair<const Sizes, uint32_t>::second);
    const auto& [is_index, dims] = of->first;
    if (is_index) return false;
    for (const TensorShape& t : tensors(i)) {
      if (t.dims.size() != dims.size()) continue;
      if (std::ranges::all_of(dims, [&](int64_t size) {
            return size == 1 || std::ranges::find(t.dims, size) != t.dims.end();
          }))
        return true;
    }
    return false;
  }

  // It makes numbers of nothing but sizes: the same each time.
  bool is_filled(size_t i) const {
    constexpr std::array<std::string_view, 8> kFills = {
        "zeros", "ones", "full", "arange", "eye", "linspace", "new_zeros", "new_ones"};
    return is_one(kFills, asked_.base(i));
  }

  // The op at chain.end joins, if it reads results of the chain and sources alone. `made`: sizes
  // that ops of the step give out.
  bool add(Chain& chain, std::vector<uint32_t>& live, const std::vector<char>& made) const {
    const size_t i = chain.end;
    const std::vector<uint32_t>& read = read_by(i);
    if (read.empty() && !is_filled(i)) return false;
    const size_t sources = chain.sources.size();
    for (const uint32_t dims : read) {
      if (std::ranges::find(live, dims) != live.end()) continue;
      // Of an op of the chain whose result is not known.
      bool is_live = false;
      for (size_t k = chain.first; k < i && !is_live; ++k)
        is_live = !results(k, [](uint32_t) {}) && may_make(k, dims);
      if (is_live) {
        live.push_back(dims);
        continue;
      }
      if (dims < made.size() && made[dims] != 0) {
        chain.sources.resize(sources);
        return false;
      }
      chain.sources.push_back(dims);
    }
    results(i, [&](uint32_t dims) { live.push_back(dims); });
    ++chain.end;
    return true;
  }

  size_t working(const Chain& chain) const {
    size_t count = 0;
    for (size_t i = chain.first; i < chain.end; ++i)
      count += works_.get(all_.name_id(asked_.at(i)), [](std::string_view name) -> char {
        const OpKnowledge* known = op_knowledge(name);
        return op_class(name) == OpClass::pointwise ||
                       (known != nullptr &&
                        (known->cost == OpCost::gather || known->cost == OpCost::sort ||
                         known->cost == OpCost::search))
                   ? 1
                   : 0;
      });
    return count;
  }

  // What the chain gives is a weight of the next layer: each layer makes its own.
  bool makes_weight(const Chain& chain) const {
    uint32_t last = kNone;
    for (size_t i = chain.first; i < chain.end; ++i)
      results(i, [&](uint32_t dims) { last = dims; });
    for (size_t i = chain.end; i < std::min(asked_.size(), chain.end + kWeightBehind); ++i) {
      const std::string_view base = asked_.base(i);
      const bool is_product = is_multiplication(asked_.name(i));
      if (!is_product && !is_convolution(base)) continue;
      const std::vector<TensorShape> read = tensors(i);
      const size_t weight = base == "addmm" || base == "baddbmm" ? 2 : 1;
      if (last == kNone || read.size() <= weight) return true;
      const Dims& dims = read[weight].dims;
      if (number_of(dims) == last || number_of(Dims(dims.rbegin(), dims.rend())) == last)
        return true;
    }
    return false;
  }

  // Each in a call of another module.
  bool are_of_modules(const std::vector<Chain>& chains) const {
    std::vector<size_t> firsts;
    firsts.reserve(chains.size());
    for (const Chain& chain : chains) firsts.push_back(chain.first);
    return modules_of(firsts).size() == chains.size();
  }

  std::set<std::string_view> modules_of(const std::vector<size_t>& its) const {
    std::vector<uint32_t> ats;
    ats.reserve(its.size());
    for (const size_t i : its) ats.push_back(asked_.at(i));
    std::set<std::string_view> names;
    for (const Places::Module& module : places_.modules_at(ats)) names.insert(module.name);
    names.erase("");
    return names;
  }

  // visit(from, to) for the asked ops of each step.
  template <class Visit>
  void each_step(Visit visit) const {
    for (size_t from = 0; from < asked_.size();) {
      size_t to = from + 1;
      while (to < asked_.size() && step(to) == step(from)) ++to;
      if (step(from) != kNone) visit(from, to);
      from = to;
    }
  }

  // No op of the step outside of the chains may make what they begin with.
  bool are_sources(const std::vector<Chain>& chains, size_t from, size_t to) const {
    size_t next = 0;
    for (size_t i = from; i < to; ++i) {
      while (next < chains.size() && chains[next].end <= i) ++next;
      if (next < chains.size() && i >= chains[next].first) continue;
      if (!is_forward(i) || asked_.kind(i) == OpClass::view || results(i, [](uint32_t) {}))
        continue;
      for (const uint32_t dims : chains.front().sources)
        if (may_make(i, dims)) return false;
    }
    return true;
  }

  void find_chains() {
    struct Found {
      CostlyForm form;
      int64_t saving = 0;
      size_t times = 0;
      size_t end = 0;
    };
    std::map<std::vector<uint64_t>, Found> found;
    each_step([&](size_t from, size_t to) {
      for (auto& [signature, chains] : chains_of(from, to)) {
        if (chains.size() < kLeastSameModules || makes_weight(chains.front()) ||
            !are_sources(chains, from, to) || !are_of_modules(chains))
          continue;
        Found& of = found[signature];
        if (of.form.count == 0) {
          of.form.first = chains.front().first;
          of.end = chains.front().end;
        }
        of.times = std::max(of.times, chains.size());
        int64_t ns = 0;
        for (const Chain& chain : chains)
          for (size_t i = chain.first; i < chain.end; ++i) ns += take(of.form, i);
        of.form.count += std::ssize(chains);
        of.saving += ns - ns / std::ssize(chains);
      }
    });
    for (auto& [signature, of] : found) report_chain(of.form, of.end, of.times, of.saving);
  }

  std::map<std::vector<uint64_t>, std::vector<Chain>> chains_of(size_t from, size_t to) const {
    std::map<std::vector<uint64_t>, std::vector<Chain>> chains;
    // What is asked for once in a step begins no chain that is there again.
    std::unordered_map<uint64_t, size_t> calls;
    for (size_t i = from; i < to; ++i)
      if (may_join(i)) ++calls[asked_.key(i)];
    const auto is_often = [&](size_t i) {
      if (!may_join(i)) return false;
      const auto of = calls.find(asked_.key(i));
      return of != calls.end() && of->second >= kLeastSameModules;
    };
    if (std::ranges::none_of(calls, [](const auto& of) { return of.second >= kLeastSameModules; }))
      return chains;
    std::vector<char> made;
    for (size_t i = from; i < to; ++i)
      if (is_forward(i))
        results(i, [&](uint32_t dims) {
          if (dims >= made.size()) made.resize(dims + 1);
          made[dims] = 1;
        });
    for (size_t i = from; i < to;) {
      Chain chain{i, i, {}};
      std::vector<uint32_t> live;
      while (chain.end < to && chain.end - i < kLongestSameChain && is_often(chain.end) &&
             add(chain, live, made)) {
      }
      if (working(chain) >= kLeastSameWork) {
        std::vector<uint64_t> signature;
        for (size_t k = chain.first; k < chain.end; ++k) signature.push_back(asked_.key(k));
        chains[std::move(signature)].push_back(chain);
      }
      i = std::max(i + 1, chain.end);
    }
    return chains;
  }

  void report_chain(const CostlyForm& form, size_t end, size_t times, int64_t saving_ns) {
    size_t longest = form.first;
    for (size_t i = form.first; i < end; ++i)
      if (all_.event(asked_.at(i)).dur_ns > all_.event(asked_.at(longest)).dur_ns) longest = i;
    if (!is_worth_it(saving_ns)) return;
    report_saving(
        WasteKind::repeated_chain, form,
        fmt::format("{} modules of a step run the same {} ops on the same sizes, {} first and {} "
                    "of {} among them, and no op of the step makes what they read",
                    times, end - form.first, asked_.name(form.first), asked_.name(longest),
                    sizes_text(asked_.inputs(longest)[0].dims)),
        {fmt::format("{}, {} the longest", counted(form.count, "time", "times"),
                     asked_.name(longest)),
         "they read no result of another layer; no trace tells whether each module has a table of "
         "its own"},
        "if all of them read the same tensors (positions, edges, masks, angles), compute this once "
        "before the layers and pass the result to each of them",
        saving_ns, WasteProof::likely);
  }

  // --- Products of the same input in each round --------------------------------------------

  // A layer with weights, of more than one row.
  bool is_projection(size_t i) const {
    const std::string_view base = asked_.base(i);
    if (base != "linear" && !is_convolution(base)) return false;
    const auto in = asked_.inputs(i);
    return in.size() > 1 && in[0].dims.size() > 1 && tensors(i)[0].numel() > in[0].dims.back();
  }

  struct Projected {
    CostlyForm form;
    int64_t saving = 0;
    int64_t rounds = 0;
  };

  // Those of a step, by the call; the first of them, which may read what the step is given, is out.
  std::map<uint64_t, std::vector<size_t>> projections_of(size_t from, size_t to,
                                                         std::set<uint32_t>& made) const {
    std::map<uint64_t, std::vector<size_t>> calls;
    std::optional<uint64_t> first;
    for (size_t i = from; i < to; ++i) {
      if (asked_.kind(i) != OpClass::view) results(i, [&](uint32_t dims) { made.insert(dims); });
      if (!is_projection(i)) continue;
      if (!first) first = asked_.key(i);
      if (asked_.key(i) != *first) calls[asked_.key(i)].push_back(i);
    }
    return calls;
  }

  void find_projections() {
    std::map<uint64_t, Projected> found;
    each_step([&](size_t from, size_t to) {
      std::set<uint32_t> made;
      for (const auto& [key, its] : projections_of(from, to, made)) {
        if (its.size() < kLeastRounds) continue;
        const uint32_t input = number_of(asked_.inputs(its.front())[0].dims);
        if (made.contains(input) || is_made_unseen(from, to, input)) continue;
        const auto modules = std::ssize(modules_of(its));
        if (modules == 0 || std::ssize(its) < modules * static_cast<int64_t>(kLeastRounds))
          continue;
        Projected& of = found[key];
        if (of.form.count == 0) of.form.first = its.front();
        of.form.count += std::ssize(its);
        of.rounds = std::ssize(its) / modules;
        int64_t ns = 0;
        for (const size_t i : its) ns += take(of.form, i);
        of.saving += ns - ns / of.rounds;
      }
    });
    for (const auto& [key, of] : found)
      report_saving(
          WasteKind::repeated_projection, of.form,
          fmt::format("{} reads {} {} times in a step for each module, and no op of the step makes "
                      "such a tensor",
                      asked_.name(of.form.first), sizes_text(asked_.inputs(of.form.first)[0].dims),
                      of.rounds),
          {times_of(of.form), "no trace tells whether the values are the same in each round"},
          "if it reads the same in each round (a source sentence, a prompt, an image that cross "
          "attention looks at), project it once before the loop and keep the result (keys and "
          "values in a cache, is_updated of an encoder-decoder cache)",
          of.saving, WasteProof::question);
  }

  // By an op whose result is not known.
  bool is_made_unseen(size_t from, size_t to, uint32_t dims) const {
    for (size_t i = from; i < to; ++i)
      if (asked_.kind(i) != OpClass::view && !results(i, [](uint32_t) {}) && may_make(i, dims))
        return true;
    return false;
  }

  // --- Rows that begin alike -----------------------------------------------------------

  // [1, P] that becomes [N, P], without padding: N; 0 if the op is another one.
  int64_t repeats_of(size_t i) const {
    constexpr std::array<std::string_view, 4> kRepeats = {"expand", "repeat", "repeat_interleave",
                                                          "expand_as"};
    if (!is_one(kRepeats, asked_.base(i))) return 0;
    const auto in = asked_.inputs(i);
    if (in.size() < 2 || in[0].dims.size() != 2 || in[0].dims[0] != 1) return 0;
    const std::vector<int64_t> sizes = numbers_of(in[1].concrete);
    return !in[1].dims.empty() ? in[1].dims[0] : sizes.empty() ? 0 : sizes[0];
  }

  struct Joined {
    int64_t rows = 0;    // N
    int64_t prefix = 0;  // P
    int64_t length = 0;  // of a row
    size_t embedding = 0;
  };

  // Numbers of words: the same ones for all rows, and others behind them, that are looked up.
  std::optional<Joined> joined_at(size_t i) const {
    const int64_t rows = repeats_of(i);
    if (rows < 2) return std::nullopt;
    const int64_t prefix = asked_.inputs(i)[0].dims[1];
    Dims joined;
    for (size_t j = i + 1; j < end_of(i, kJoinedBehind); ++j) {
      const auto in = asked_.inputs(j);
      if (joined.empty() && asked_.base(j) == "cat" && !in.empty() && in[0].is_list) {
        const auto& list = in[0].list;
        if (list.size() != 2 || list[0].dims != Dims{rows, prefix} || list[1].dims.size() != 2 ||
            list[1].dims[0] != rows)
          return std::nullopt;
        joined = {rows, prefix + list[1].dims[1]};
      } else if (!joined.empty() && asked_.base(j) == "embedding" && in.size() > 1 &&
                 in[1].dims == joined) {
        return Joined{rows, prefix, joined[1], j};
      }
    }
    return std::nullopt;
  }

  // Attention that looks back alone: what stands before is the same whatever follows.
  bool is_causal(size_t i) const {
    const auto in = asked_.inputs(i);
    return asked_.base(i) == "scaled_dot_product_attention" && in.size() > 5 &&
           in[5].concrete == "True";
  }

  void find_prefixes() {
    if (all_.has_backward) return;
    CostlyForm form;
    Joined last;
    double saving = 0;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const auto joined = joined_at(i);
      if (!joined ||
          static_cast<double>(joined->prefix) < kPrefixShare * static_cast<double>(joined->length))
        continue;
      // What has these rows, until the next step.
      CostlyForm own;
      bool looks_back = false;
      bool looks_around = false;
      size_t j = joined->embedding;
      for (; j < asked_.size() && step(j) == step(i); ++j) {
        if (j > joined->embedding && joined_at(j)) break;
        if (asked_.base(j) == "scaled_dot_product_attention")
          (is_causal(j) ? looks_back : looks_around) = true;
        const std::vector<TensorShape> read = tensors(j);
        if (std::ranges::any_of(read, [&](const TensorShape& t) { return has_rows(t, *joined); }))
          take(own, j);
      }
      if (!looks_back || looks_around) continue;
      if (form.count++ == 0) form.first = joined->embedding;
      form.ns += own.ns;
      form.calls.insert(form.calls.end(), own.calls.begin(), own.calls.end());
      form.times.add(own.times);
      const double same = static_cast<double>(joined->prefix * (joined->rows - 1)) /
                          static_cast<double>(joined->length * joined->rows);
      saving += same * static_cast<double>(own.ns);
      last = *joined;
    }
    if (form.count == 0 || saving < kLeastPrefixShare * static_cast<double>(all_.wall_ns)) return;
    report_saving(
        WasteKind::shared_prefix, form,
        fmt::format("{} sequences of {} words begin with the same {}, and all layers run on all of "
                    "them",
                    last.rows, last.length, last.prefix),
        {fmt::format("{}: one row of {} words is repeated and joined with {} words of each",
                     counted(form.count, "time", "times"), last.prefix, last.length - last.prefix),
         "attention looks back alone (is_causal), so that what the layers give for these words is "
         "the same in each sequence"},
        "run the shared words once with a batch of one, keep their keys and values "
        "(past_key_values), and run only what differs against them, expanded over the batch (a "
        "view); of one passage with many answers or samples the prompt is thus computed once",
        static_cast<int64_t>(saving), WasteProof::likely);
  }

  static bool has_rows(const TensorShape& t, const Joined& joined) {
    if (t.dims.empty()) return false;
    if (t.dims[0] == joined.rows * joined.length) return true;
    return std::ranges::find(t.dims, joined.rows) != t.dims.end() &&
           std::ranges::find(t.dims, joined.length) != t.dims.end();
  }

  mutable std::map<Sizes, uint32_t> numbers_;
  mutable std::vector<std::optional<std::vector<uint32_t>>> reads_;  // by the number of the inputs
  mutable std::unordered_map<uint64_t, Result> results_;             // by name and inputs
  mutable ByNameOnce<char> works_{all_.trace};
  mutable ByNameOnce<char> joins_{all_.trace};
};

}  // namespace

void find_same_inputs(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  SameInput(asked, places, found).run();
}

}  // namespace epilogue::trace
