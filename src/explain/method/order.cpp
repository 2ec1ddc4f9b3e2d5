// SPDX-License-Identifier: Apache-2.0
// Ops that keep the order of numbers, before one that reads the order alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kReadersWithin = 8;  // ops behind topk that may read its values

class Orders : AskedSearch {
 public:
  Orders(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    std::map<std::pair<uint64_t, uint64_t>, CostlyForm> forms;
    for (size_t i = 1; i < asked_.size(); ++i) {
      if (!reads_order(i)) continue;
      const size_t first = first_of_chain(i);
      if (first == i || is_read_again(i)) continue;
      CostlyForm& form = forms[{asked_.key(i - 1), asked_.key(i)}];
      for (size_t j = first; j < i; ++j) take(form, j);
      if (form.count++ == 0) form.first = first;
      form.second = i;
    }
    for (auto& [key, form] : forms) report_form(form);
  }

 private:
  // Along which dimension; nothing for the whole tensor, or where it is not known.
  std::optional<int64_t> dim_of(size_t i, size_t argument) const {
    const auto in = asked_.inputs(i);
    const auto dim = whole_argument(in, argument);
    if (!dim || in.empty()) return std::nullopt;
    return *dim < 0 ? *dim + static_cast<int64_t>(in[0].dims.size()) : *dim;
  }
  std::optional<int64_t> ordered_dim(size_t i) const {
    return dim_of(i, asked_.base(i) == "topk" ? 2 : 1);
  }

  bool reads_order(size_t i) const {
    constexpr std::array<std::string_view, 6> kOrder = {"topk",    "argmax", "argmin",
                                                        "argsort", "sort",   "max"};
    if (!is_one(kOrder, asked_.base(i)) || asked_.inputs(i).empty() ||
        asked_.inputs(i)[0].dims.empty())
      return false;
    // Of two tensors, or one number: the value itself is asked for.
    return asked_.base(i) != "max" || (tensors(i).size() == 1 && ordered_dim(i));
  }

  // Does an op give the same order along `dim`? Of a divisor the sign is not recorded: it counts
  // before a softmax, where it is a temperature.
  bool keeps_order(size_t i, std::optional<int64_t> dim, bool before_softmax) const {
    constexpr std::array<std::string_view, 5> kGrowing = {"sigmoid", "log_sigmoid", "exp", "tanh",
                                                          "logit"};
    const std::string_view base = asked_.base(i);
    if (base == "softmax" || base == "log_softmax") return dim && dim_of(i, 1) == dim;
    if (is_one(kGrowing, base)) return true;
    if (base != "div" && base != "mul") return false;
    if (!before_softmax) return false;
    const auto in = asked_.inputs(i);
    return in.size() > 1 && in[1].dims.empty();
  }

  // The first of the ops that keep the order right before `i`; `i` if there is none.
  size_t first_of_chain(size_t i) const {
    const auto dim = ordered_dim(i);
    const Dims& dims = asked_.inputs(i)[0].dims;
    size_t first = i;
    bool has_softmax = false;
    for (size_t j = i; j-- > 0;) {
      if (!asked_.is_same_root(i, j) || asked_.inputs(j).empty() ||
          asked_.inputs(j)[0].dims != dims || is_in_place(asked_.name(j)) ||
          !keeps_order(j, dim, has_softmax))
        break;
      // Its gradient is asked for: something else reads it.
      if (all_.has_backward && asked_.sequence(j) >= 0) break;
      const bool is_softmax = asked_.base(j) == "softmax" || asked_.base(j) == "log_softmax";
      has_softmax = has_softmax || is_softmax;
      first = j;
    }
    return first;
  }

  // A later op of the step reads a tensor of these sizes before one makes it anew.
  bool is_read_again(size_t i) const {
    const Dims& dims = asked_.inputs(i)[0].dims;
    for (size_t j = i + 1; j < asked_.size() && step(j) == step(i); ++j) {
      if (reads(j, dims)) return true;
      if (makes(j, dims)) return false;
    }
    return false;
  }
  bool makes(size_t i, const Dims& dims) const {
    if (asked_.kind(i) == OpClass::view) return false;
    const auto result = output_shape(asked_.name(i), asked_.inputs(i));
    return result && result->dims == dims;
  }

  // Ops behind it read numbers of the sizes of what it gives; its places are whole numbers.
  bool values_are_read(size_t i) const {
    Dims given = asked_.inputs(i)[0].dims;
    const auto dim = ordered_dim(i);
    if (!dim || *dim < 0 || static_cast<size_t>(*dim) >= given.size()) return false;
    if (asked_.base(i) == "argmax" || asked_.base(i) == "argmin" || asked_.base(i) == "argsort")
      return false;
    Dims kept = given;
    if (asked_.base(i) == "topk") {
      given[static_cast<size_t>(*dim)] = whole_argument(asked_.inputs(i), 1).value_or(1);
      kept = given;
    } else if (asked_.base(i) == "max") {
      given[static_cast<size_t>(*dim)] = 1;
      kept.erase(kept.begin() + *dim);
    }
    for (size_t j = i + 1; j < end_of(i, kReadersWithin); ++j)
      for (const TensorShape& t : tensors(j))
        if ((t.dims == given || t.dims == kept) && t.type.find("int") == std::string_view::npos)
          return true;
    return false;
  }

  void report_form(CostlyForm& form) {
    const size_t i = form.second;
    const bool are_read = values_are_read(i);
    std::string chain;
    bool is_scaled = false;
    for (size_t j = form.first; j < asked_.size() && chain.size() < 200; ++j) {
      if (asked_.inputs(j).empty() || reads_order(j)) break;
      chain += (chain.empty() ? "" : " and ") + std::string(asked_.name(j));
      is_scaled = is_scaled || asked_.base(j) == "div" || asked_.base(j) == "mul";
    }
    std::vector<std::string> evidence = {
        times_of(form),
        "no other op of the step reads their results; if the program "
        "returns them, they are needed"};
    if (are_read)
      evidence.push_back(fmt::format("the values that {} gives are read, too", asked_.name(i)));
    if (is_scaled) evidence.emplace_back("if the number that scales them is above zero");
    report(WasteKind::kept_order, form,
           fmt::format("{} of {} gives the same places without {} before it", asked_.name(i),
                       sizes_text(asked_.inputs(i)[0].dims), chain),
           std::move(evidence),
           fmt::format("take {} of the raw scores (logits): the same order, so the same places; if "
                       "chances are wanted, softmax of the few that stay where they are normalised "
                       "again, else (value - scores.logsumexp(-1, keepdim=True)).exp() of them",
                       asked_.base(i)),
           are_read ? std::nullopt : std::optional(1.0),
           are_read ? WasteProof::question : WasteProof::likely);
  }
};

}  // namespace

void find_kept_orders(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Orders(asked, places, found).run();
}

}  // namespace epilogue::trace
