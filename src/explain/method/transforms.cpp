// SPDX-License-Identifier: Apache-2.0
// Fourier transforms that need not run: of what was transformed back, and of the same tensor again.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kTransformWithin = 6;      // ops from a transform back to the next one
constexpr int64_t kRepeatedTransforms = 4;  // of one tensor in a step

constexpr std::array<std::string_view, 7> kForward = {
    "stft", "fft_rfft", "fft_fft", "fft_rfft2", "fft_fft2", "fft_rfftn", "fft_fftn"};

// A tensor as far as ops tell it; empty: not known.
struct Flow {
  std::optional<Dims> dims;
  Dims strides;
};

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(1, dims[d]);
  return strides;
}

std::string_view argument_text(std::span<const OpInput> in, size_t at) {
  return at < in.size() ? std::string_view(in[at].concrete) : std::string_view();
}

class Transforms : AskedSearch {
 public:
  Transforms(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_round_trips();
    if (!all_.has_backward && !all_.links.steps.empty()) find_repeated();
  }

 private:
  // --- Round trips -----------------------------------------------------------------------

  static std::string_view inverse_of(std::string_view base) {
    using Pair = std::pair<std::string_view, std::string_view>;
    constexpr std::array<Pair, 7> kInverses = {{{"istft", "stft"},
                                                {"fft_irfft", "fft_rfft"},
                                                {"fft_ifft", "fft_fft"},
                                                {"fft_irfft2", "fft_rfft2"},
                                                {"fft_ifft2", "fft_fft2"},
                                                {"fft_irfftn", "fft_rfftn"},
                                                {"fft_ifftn", "fft_fftn"}}};
    const auto pair = std::find_if(kInverses.begin(), kInverses.end(),
                                   [&](const Pair& p) { return p.first == base; });
    return pair == kInverses.end() ? std::string_view() : pair->second;
  }

  // The result of a transform back.
  Flow result_of(size_t i) const {
    const auto in = asked_.inputs(i);
    if (in.empty() || in[0].dims.empty()) return {};
    const std::string_view base = asked_.base(i);
    Dims dims = in[0].dims;
    if (base == "istft") return signal_of(in);
    const bool is_real = base.starts_with("fft_irfft");
    if (base != "fft_irfft" && base != "fft_ifft") {
      if (!argument_text(in, 1).empty()) {
        // Sizes of its own: the last ones.
        const std::vector<int64_t> sizes = numbers_of(argument_text(in, 1));
        if (sizes.empty() || sizes.size() > dims.size()) return {};
        std::copy(sizes.begin(), sizes.end(), dims.end() - static_cast<int64_t>(sizes.size()));
      } else if (is_real) {
        dims.back() = 2 * (dims.back() - 1);
      }
      return {dims, {}};
    }
    const auto rank = static_cast<int64_t>(dims.size());
    int64_t d = whole_argument(in, 2).value_or(-1);
    if (d < 0) d += rank;
    if (d < 0 || d >= rank) return {};
    int64_t& size = dims[static_cast<size_t>(d)];
    size = whole_argument(in, 1).value_or(is_real ? 2 * (size - 1) : size);
    return {dims, is_real && d + 1 == rank ? dense_strides(dims) : Dims{}};
  }

  static Flow signal_of(std::span<const OpInput> in) {
    Dims dims = in[0].dims;
    if (dims.size() < 2) return {};
    const int64_t frames = dims.back();
    dims.pop_back();
    const auto fft = whole_argument(in, 1);
    if (!fft) return {};
    int64_t length = *fft + whole_argument(in, 2).value_or(*fft / 4) * (frames - 1);
    if (argument_text(in, 5) != "False") length -= 2 * (*fft / 2);
    dims.back() = whole_argument(in, 8).value_or(length);
    return {dims, {}};
  }

  // An op reads the tensor: sizes and, where both are known, strides are its own.
  bool reads_flow(size_t i, const Flow& flow) const {
    const auto in = asked_.inputs(i);
    if (in.empty() || !flow.dims || in[0].dims != *flow.dims) return false;
    return flow.strides.empty() || in[0].strides.empty() || in[0].strides == flow.strides;
  }

  // Its result, if an op moves no data, or pads.
  Flow viewed(size_t i, const Flow& flow) const {
    const auto in = asked_.inputs(i);
    const std::string_view base = asked_.base(i);
    if (base == "pad") {
      Dims dims = *flow.dims;
      const std::vector<int64_t> more = numbers_of(argument_text(in, 1));
      if (more.empty() || more.size() > 2 * dims.size()) return {};
      for (size_t p = 0; p < more.size(); ++p) dims[dims.size() - 1 - p / 2] += more[p];
      return {dims, {}};
    }
    const uint32_t first = asked_.at(i);
    const int64_t end = all_.event(first).end_ns();
    for (size_t at = first; at < all_.ops.size() && all_.event(at).ts_ns < end; ++at)
      if (all_.base(at) == "as_strided" && all_.inputs(at).size() > 2)
        return {numbers_of(argument_text(all_.inputs(at), 1)),
                numbers_of(argument_text(all_.inputs(at), 2))};
    if (base == "view" || base == "reshape" || base == "_unsafe_view") {
      Dims dims = numbers_of(argument_text(in, 1));
      int64_t known = 1;
      for (const int64_t d : dims) known *= d < 0 ? 1 : d;
      for (int64_t& d : dims)
        if (d < 0) d = TensorShape{*flow.dims, {}}.numel() / std::max<int64_t>(1, known);
      if (dims.empty()) return {};
      return {dims, {}};
    }
    const auto result = output_shape(asked_.name(i), in);
    if (!result) return {};
    return {result->dims, {}};
  }

  // The transform that reads the result of the one back at `i`; nothing where that is not shown.
  std::optional<size_t> undone_by(size_t i) const {
    const std::string_view forward = inverse_of(asked_.base(i));
    if (forward.empty() || step(i) == kNone) return std::nullopt;
    Flow flow = result_of(i);
    for (size_t j = i + 1; j < std::min(asked_.size(), i + kTransformWithin); ++j) {
      // The next iteration's begins where this one's ends.
      if (!flow.dims || step(j) != step(i)) return std::nullopt;
      const bool reads = reads_flow(j, flow);
      if (asked_.base(j) == forward) return reads ? std::optional(j) : std::nullopt;
      if (asked_.base(j) != "pad" && asked_.kind(j) != OpClass::view) return std::nullopt;
      if (reads) flow = viewed(j, flow);
    }
    return std::nullopt;
  }

  // A transform back, and the same transform of its result.
  void find_round_trips() {
    struct Counts {
      int64_t pairs = 0, forward = 0, inverse = 0;
    };
    std::vector<std::pair<size_t, size_t>> pairs;
    // By step, and by the names of both: a loop of a transform, work, and a transform back has one
    // pair less, and each pair is the border of two iterations, which may read another tensor.
    std::map<std::pair<uint32_t, std::string_view>, Counts> counts;
    for (size_t i = 0; i < asked_.size(); ++i)
      if (const auto j = undone_by(i)) {
        pairs.emplace_back(i, *j);
        ++counts[{step(i), asked_.base(*j)}].pairs;
      }
    if (pairs.empty()) return;
    std::map<std::pair<uint32_t, std::string_view>, uint64_t> keys;
    for (const auto& [i, j] : pairs) keys.try_emplace({step(j), asked_.base(j)}, asked_.key(j));
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view base = asked_.base(i);
      const std::string_view back = inverse_of(base);
      const auto of = counts.find({step(i), back.empty() ? base : back});
      if (of == counts.end()) continue;
      if (!back.empty())
        ++of->second.inverse;
      else if (keys[of->first] == asked_.key(i))
        ++of->second.forward;
    }
    std::map<std::string_view, CostlyForm> forms;
    for (const auto& [i, j] : pairs) {
      const Counts& of = counts[{step(i), asked_.base(j)}];
      if (of.forward == of.inverse && of.pairs + 1 == of.forward) continue;
      CostlyForm& form = forms[asked_.name(i)];
      take(form, i);
      take(form, j);
      if (form.count++ == 0) form.first = i;
      form.second = j;
    }
    for (auto& [name, form] : forms)
      report(WasteKind::round_trip, form,
             fmt::format("{} next undoes what {} does", asked_.name(form.second), name),
             {times_of(form)},
             "keep the transformed tensor and work on it (mask, scale, or augment the spectrogram "
             "that the model reads itself): neither transform is needed",
             std::nullopt, WasteProof::likely);
  }

  // --- The same transform again ----------------------------------------------------------

  // Does an op, or a view within it, give a tensor of these sizes and strides?
  bool makes(size_t i, const OpInput& tensor) const {
    const uint32_t first = asked_.at(i);
    const int64_t end = all_.event(first).end_ns();
    bool allocates = false;
    for (size_t at = first; at < all_.ops.size() && all_.event(at).ts_ns < end; ++at) {
      const std::string_view base = all_.base(at);
      const auto in = all_.inputs(at);
      if (base == "as_strided" && in.size() > 2 && numbers_of(in[1].concrete) == tensor.dims &&
          (tensor.strides.empty() || numbers_of(in[2].concrete) == tensor.strides))
        return true;
      if ((base == "view" || base == "_unsafe_view" || base == "_reshape_alias") && in.size() > 1 &&
          numbers_of(in[1].concrete) == tensor.dims)
        return true;
      if (!base.starts_with("empty") || in.empty()) continue;
      allocates = true;
      if (numbers_of(in[0].concrete) == tensor.dims || in[0].dims == tensor.dims) return true;
    }
    const std::string_view base = asked_.base(i);
    if (asked_.kind(i) == OpClass::view) return false;
    if (!inverse_of(base).empty()) {
      const Flow flow = result_of(i);
      return !flow.dims || *flow.dims == tensor.dims;
    }
    if (base.starts_with("fft_") || base == "stft") return false;  // complex, and allocated above
    if (const auto result = output_shape(asked_.name(i), asked_.inputs(i)))
      return result->dims == tensor.dims;
    return !allocates;  // not known
  }

  // The same transform on the same sizes again and again, and nothing that makes what it reads.
  void find_repeated() {
    std::map<uint64_t, std::map<uint32_t, std::vector<size_t>>> runs;
    for (size_t i = 0; i < asked_.size(); ++i)
      if (is_one(kForward, asked_.base(i)) && step(i) != kNone && !asked_.inputs(i).empty() &&
          !asked_.inputs(i)[0].dims.empty())
        runs[asked_.key(i)][step(i)].push_back(i);
    std::map<uint32_t, std::pair<size_t, size_t>> steps;  // first and last op
    for (size_t i = 0; i < asked_.size() && !runs.empty(); ++i)
      steps.try_emplace(step(i), i, i).first->second.second = i;
    for (const auto& [key, by_step] : runs) {
      CostlyForm form;
      for (const auto& [s, its] : by_step) {
        if (static_cast<int64_t>(its.size()) < kRepeatedTransforms) continue;
        const OpInput& tensor = asked_.inputs(its.front())[0];
        // One tensor of these sizes at most, and it is there before the first of the transforms.
        int64_t made = 0;
        for (size_t i = steps[s].first; i < its.back() && made < 2; ++i)
          if (makes(i, tensor)) made += i > its.front() ? 2 : 1;
        if (made > 1) continue;
        if (form.count == 0) form.first = its.front();
        form.count += static_cast<int64_t>(its.size());
        for (const size_t i : its) take(form, i);
      }
      if (form.count == 0) continue;
      const auto per_step = form.count / static_cast<int64_t>(by_step.size());
      report(WasteKind::repeated_transform, form,
             fmt::format("{} of {} runs {} times in a step, and no op of the step makes another "
                         "tensor that it may read",
                         asked_.name(form.first), sizes_text(asked_.inputs(form.first)[0].dims),
                         per_step),
             {times_of(form), "no trace tells whether it reads the same values each time"},
             "if it reads the same tensor each time (a sound that meets many filters), take its "
             "transform once before the loop and reuse the spectrum; spectra of filters that do "
             "not change are computed once, when the model is loaded; then one product with all "
             "filters and one transform back",
             std::nullopt, WasteProof::question);
    }
  }
};

}  // namespace

void find_transforms(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Transforms(asked, places, found).run();
}

}  // namespace epilogue::trace
