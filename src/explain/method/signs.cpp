// SPDX-License-Identifier: Apache-2.0
#include "explain/method/signs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_ops.h"

namespace epilogue::trace {
namespace {

using Calls = std::span<const uint32_t>;
using Said = std::optional<CostAnswer>;

constexpr size_t kSignCalls = 64;
constexpr size_t kLookAhead = 12;  // ops after the call, those that it calls left out
constexpr size_t kLookBack = 12;
constexpr int64_t kCutTo = 4;      // a slice of a quarter or less
constexpr int64_t kWideTable = 4;  // times as many rows as the batch reads
constexpr int64_t kPairs = 8;      // times as many elements as the larger operand
constexpr int64_t kManyPairs = 1 << 16;
constexpr size_t kGrowingCalls = 8;
constexpr size_t kSingleColumns = 4;
constexpr int64_t kLongKernel = 15;  // along one dimension
constexpr int64_t kManyTaps = 225;   // 15 x 15
constexpr int64_t kTransformTaps = 64;
constexpr int64_t kSharedRates = 8;  // factor of two rates
constexpr double kLargestPower = 32;
constexpr int64_t kGathered = 4;       // times as many rows as the table has
constexpr size_t kGatherLookBack = 8;  // outermost ops
constexpr size_t kSolveLookAhead = 64;
constexpr size_t kReorders = 16;
constexpr int64_t kReordered = 1 << 14;  // elements
constexpr int64_t kLargePrime = 97;      // of the length of a transform

int64_t largest_prime(int64_t n) {
  int64_t largest = 1;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p) largest = p;
  return std::max(n, largest);
}

int64_t elements_of(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return 0;
  return n;
}

bool is_product(std::string_view name) {
  constexpr std::array<std::string_view, 9> kProducts = {
      "mm", "addmm", "bmm", "baddbmm", "matmul", "mv", "addmv", "linear", "_addmm_activation"};
  return std::find(kProducts.begin(), kProducts.end(), aten_base(name)) != kProducts.end();
}

// The first that `find` says something of, if calls with half of the time (of those sampled) agree
// that it says something.
Said by_call(const CountedOps& all, Calls calls, const std::function<Said(size_t at)>& find) {
  const size_t stride = std::max<size_t>(1, calls.size() / kSignCalls);
  int64_t ns = 0;
  int64_t ns_all = 0;
  int64_t most = -1;
  Said said;
  for (size_t c = 0; c < calls.size(); c += stride) {
    const int64_t own = std::max<int64_t>(all.ns_at(calls[c]), 1);
    ns_all += own;
    Said one = find(calls[c]);
    if (!one) continue;
    ns += own;
    if (own > most) {
      most = own;
      said = std::move(one);
    }
  }
  return 2 * ns >= ns_all ? said : std::nullopt;
}

CostAnswer loss(CostQuestion question, std::string text, std::string action = {}) {
  return {question, std::move(text), std::move(action), true};
}

// Visits the ops of the thread that start after the call has ended, until `visit` says stop.
void look_ahead(const CountedOps& all, size_t call, const std::function<bool(size_t at)>& visit) {
  const Event& e = all.event(call);
  // The call may be inside the op that the program calls (sort.stable in sort).
  size_t seen = 0;
  for (size_t at = call + 1; at < all.ops.size() && seen < kLookAhead; ++at) {
    const Event& next = all.event(at);
    if (next.tid != e.tid || next.pid != e.pid || next.ts_ns < e.end_ns()) continue;
    ++seen;
    if (visit(at)) return;
  }
}

Said wide_table(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const std::optional<int64_t> rows = whole_argument(inputs, 2);
    if (!rows || inputs.size() < 2 || inputs[1].dims.empty()) return std::nullopt;
    const int64_t read = elements_of(inputs[1].dims);
    if (read <= 0 || *rows / kWideTable < read) return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("the gradient is a table of {} rows, and the batch reads {} at most",
                            *rows, read));
  });
}

Said accumulates(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const bool adds = inputs.size() > 3 && inputs[3].concrete == "True";
    const std::string_view root = all.trace.name(all.trace.events[all.outermost(at)]);
    const bool is_gradient = root.find("IndexBackward") != std::string_view::npos;
    if (!adds && !is_gradient) return std::nullopt;
    return loss(CostQuestion::less,
                is_gradient ? "it is the gradient of advanced indexing (x[index]): it adds element "
                              "by element, in order"
                            : "accumulate=True adds element by element, in order",
                "index rows with index_select, gather or nn.functional.embedding: their gradients "
                "add whole rows; read ranges by slices");
  });
}

// Elements of a slice or selection of a tensor of these sizes; nothing if it takes all.
std::optional<std::string> cut_of(std::string_view name, std::span<const OpInput> inputs) {
  const std::string_view base = aten_base(name);
  if (inputs.empty() || inputs[0].dims.empty()) return std::nullopt;
  const std::optional<int64_t> dim = whole_argument(inputs, 1);
  if (!dim) return std::nullopt;
  const auto rank = static_cast<int64_t>(inputs[0].dims.size());
  const int64_t d = *dim < 0 ? *dim + rank : *dim;
  if (d < 0 || d >= rank) return std::nullopt;
  const int64_t size = inputs[0].dims[static_cast<size_t>(d)];
  int64_t taken = size;
  if (base == "select") taken = 1;
  if (base == "narrow") taken = whole_argument(inputs, 3).value_or(size);
  if (base == "slice") {
    int64_t start = whole_argument(inputs, 2).value_or(0);
    int64_t end = whole_argument(inputs, 3).value_or(std::numeric_limits<int64_t>::max());
    if (start < 0) start += size;
    if (end < 0) end += size;
    taken = std::min(end, size) - std::clamp<int64_t>(start, 0, size);
  }
  if (taken < 0 || taken > size / kCutTo) return std::nullopt;
  return fmt::format("{} of {}", taken, size);
}

Said cut_after(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    std::vector<int64_t> dims;
    if (!inputs.empty() && !inputs[0].dims.empty()) {
      dims = inputs[0].dims;
    } else if (const auto n = whole_argument(inputs, 0)) {
      dims = {*n};  // randperm(n)
    }
    if (dims.empty()) return std::nullopt;
    Said said;
    look_ahead(all, at, [&](size_t next) {
      const auto read = all.inputs(next);
      if (read.empty() || read[0].dims != dims) return false;
      const auto cut = cut_of(all.name(next), read);
      if (!cut) return false;
      said = loss(CostQuestion::less,
                  fmt::format("{} of the result reads {} elements of a dimension next",
                              all.name(next), *cut));
      return true;
    });
    return said;
  });
}

// Each result is joined with more by a later call.
Said grows(const CountedOps& all, Calls calls) {
  std::unordered_set<int64_t> results;
  size_t grown = 0;
  int64_t first = 0;
  int64_t last = 0;
  int64_t ns = 0;
  int64_t ns_all = 0;
  for (const uint32_t at : calls) {
    const auto inputs = all.inputs(at);
    if (inputs.empty() || inputs[0].list.empty()) continue;
    int64_t sum = 0;
    int64_t largest = 0;
    for (const OpInput& part : inputs[0].list) {
      const int64_t n = elements_of(part.dims);
      sum += n;
      largest = std::max(largest, n);
    }
    ns_all += all.ns_at(at);
    // Most of what is joined is the result of an earlier call.
    if (2 * largest > sum && largest < sum && results.contains(largest)) {
      if (grown++ == 0) first = largest;
      last = std::max(last, sum);
      ns += all.ns_at(at);
    }
    results.insert(sum);
  }
  if (grown < kGrowingCalls || 2 * ns < ns_all || results.size() < kGrowingCalls)
    return std::nullopt;
  return loss(CostQuestion::less,
              fmt::format("{} calls join the result of a call before with a little more: it grows "
                          "from {} to {} elements, and is copied each time",
                          grown, first, last));
}

Said repeats_input(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    if (all.base(at) != "copy") return std::nullopt;
    const auto tensors = tensor_inputs(all.inputs(at));
    if (tensors.size() < 2 || tensors[1].repeats < 2) return std::nullopt;
    // The bias of addmm is such a copy too, and part of the product.
    const uint32_t parent = all.links.parent[all.ops[at]];
    if (parent == kNone) return std::nullopt;
    const std::string_view asked = aten_base(all.trace.name(all.trace.events[parent]));
    constexpr std::array<std::string_view, 5> kAsked = {"clone", "contiguous", "reshape",
                                                        "_to_copy", "repeat"};
    if (std::find(kAsked.begin(), kAsked.end(), asked) == kAsked.end()) return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("aten::{} writes out a tensor of {} that was expanded {} times", asked,
                            sizes_text(tensors[1].dims), tensors[1].repeats),
                "ops that broadcast read the expanded view as it is; a batched product of which "
                "one operand is shared is one matmul of a reshaped operand");
  });
}

Said inference(const CountedOps& all, Calls calls) {
  if (all.has_backward) return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const std::string_view root = all.trace.name(all.trace.events[all.outermost(at)]);
    if (root.find("dropout") == std::string_view::npos &&
        all.name(at).find("dropout") == std::string_view::npos)
      return std::nullopt;
    return loss(CostQuestion::needed,
                "no backward pass is recorded: this looks like inference, and dropout is active",
                "call model.eval() before inference");
  });
}

Said one_hot(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    if (!is_product(all.name(at))) return std::nullopt;
    const auto tensors = tensor_inputs(all.inputs(at));
    size_t seen = 0;
    const size_t root = all.outermost(at);
    for (size_t before = at; before-- > 0 && seen < kLookBack;) {
      if (!all.is_root(before) || all.ops[before] == root) continue;
      ++seen;
      if (all.base(before) != "one_hot") continue;
      const auto classes = whole_argument(all.inputs(before), 1);
      if (!classes || *classes < 2) continue;
      for (const TensorShape& t : tensors)
        if (!t.dims.empty() && (t.dims.back() == *classes || t.dims.front() == *classes))
          return loss(CostQuestion::less,
                      fmt::format("an operand comes from one_hot of {} classes: all but one of "
                                  "each {} products are with zero",
                                  *classes, *classes),
                      "nn.functional.embedding(index, weight), or index_select on the weight, "
                      "reads the rows that count");
    }
    return std::nullopt;
  });
}

Said strided_scan(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const std::optional<int64_t> dim = whole_argument(inputs, 1);
    if (!dim || inputs[0].dims.size() < 2) return std::nullopt;
    const auto rank = static_cast<int64_t>(inputs[0].dims.size());
    const int64_t d = *dim < 0 ? *dim + rank : *dim;
    if (d < 0 || d >= rank || inputs[0].strides.size() != inputs[0].dims.size())
      return std::nullopt;
    const int64_t stride = inputs[0].strides[static_cast<size_t>(d)];
    if (stride < 2 || inputs[0].dims[static_cast<size_t>(d)] < 2) return std::nullopt;
    return loss(CostQuestion::limit,
                fmt::format("it runs along dimension {} of {}, whose elements lie {} apart", d,
                            sizes_text(inputs[0].dims), stride),
                "scan along the last, contiguous dimension");
  });
}

Said outer_broadcast(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const auto tensors = tensor_inputs(inputs);
    const auto result = output_shape(all.name(at), inputs);
    if (tensors.size() < 2 || !result) return std::nullopt;
    int64_t largest = 1;
    std::vector<std::string> operands;
    for (const TensorShape& t : tensors) {
      largest = std::max(largest, t.numel() / std::max<int64_t>(1, t.repeats));
      if (t.numel() > 1) operands.push_back(sizes_text(t.dims));
    }
    if (operands.size() < 2 || result->numel() < kManyPairs || result->numel() / kPairs < largest)
      return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("{} become {}: all pairs, {} times the larger operand",
                            fmt::join(operands, " and "), sizes_text(result->dims),
                            result->numel() / largest),
                "differences of all pairs that are summed are torch.cdist, or |a|^2 + |b|^2 - 2 ab "
                "with one matrix product; products of all pairs that are summed are matmul or "
                "einsum: neither writes the pairs");
  });
}

Said one_column(const CountedOps& all, Calls calls) {
  if (calls.size() < kSingleColumns) return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto tensors = tensor_inputs(all.inputs(at));
    if (tensors.size() < 2) return std::nullopt;
    const TensorShape& matrix = tensors[0].dims.size() >= 2 ? tensors[0] : tensors[1];
    const TensorShape& right = tensors[0].dims.size() >= 2 ? tensors[1] : tensors[0];
    if (matrix.dims.size() != 2) return std::nullopt;
    if (right.dims.size() > 1 && right.dims.back() != 1) return std::nullopt;
    return loss(CostQuestion::together,
                fmt::format("each of {} calls solves {} for a single column", calls.size(),
                            sizes_text(matrix.dims)));
  });
}

Said then_product(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    const std::string_view base = all.base(at);
    if (base.find("inv") == std::string_view::npos) return std::nullopt;
    const auto inputs = all.inputs(at);
    if (inputs.empty() || inputs[0].dims.size() < 2) return std::nullopt;
    const std::vector<int64_t>& dims = inputs[0].dims;
    Said said;
    look_ahead(all, at, [&](size_t next) {
      if (!is_product(all.name(next))) return false;
      for (const TensorShape& t : tensor_inputs(all.inputs(next)))
        if (t.dims.size() >= 2 && t.dims.back() == dims.back() &&
            t.dims[t.dims.size() - 2] == dims[dims.size() - 2])
          said = loss(CostQuestion::less, fmt::format("the inverse of {} is multiplied next ({})",
                                                      sizes_text(dims), all.name(next)));
      return true;
    });
    return said;
  });
}

// --- Signs of no row ---------------------------------------------------------------------

// "[1, 1]": nothing but ones.
bool are_ones(std::string_view text) {
  return !text.empty() && text.find_first_not_of("[]1, ") == std::string_view::npos &&
         text.find("11") == std::string_view::npos;
}

// One channel is read by about as many filters as they have taps: each result is a sum over all
// samples of a frame, as a Fourier transform is.
Said filters_of_a_transform(std::span<const OpInput> inputs) {
  std::vector<int64_t> kernel;
  for (const int64_t n : std::span(inputs[1].dims).subspan(2))
    if (n > 1) kernel.push_back(n);
  const int64_t filters = inputs[1].dims[0];
  if (inputs[1].dims[1] != 1 || kernel.size() != 1 || kernel.front() < kTransformTaps ||
      2 * filters < kernel.front() || inputs[0].dims.size() < 2 || inputs[0].dims[1] != 1)
    return std::nullopt;
  // Little more taps than it steps over: each group of samples becomes another one, as a resampler
  // with a phase for each filter does.
  const std::vector<int64_t> strides =
      inputs.size() > 3 ? numbers_of(inputs[3].concrete) : std::vector<int64_t>();
  const int64_t stride = strides.empty() ? 1 : *std::ranges::max_element(strides);
  const int64_t shared = std::gcd(stride, filters);
  if (shared >= kSharedRates && stride < kernel.front() && 2 * kernel.front() < 3 * stride)
    return loss(
        CostQuestion::less,
        fmt::format("{} filters of {} taps go on by {} samples: {} and {} have the factor {} in "
                    "common",
                    filters, kernel.front(), stride, filters, stride, shared),
        fmt::format("if this resamples (a filter for each phase of the new rate), divide both "
                    "rates by their greatest common divisor (gcd) before the filters are made: {} "
                    "filters with stride {} and few taps each give the same "
                    "(torchaudio.functional.resample does so); a rate that shares no factor is "
                    "replaced by a near one that does",
                    filters / shared, stride / shared));
  return loss(CostQuestion::less,
              fmt::format("{} filters of {} taps read one channel: as many products as a transform "
                          "written out (a DFT, a filter bank)",
                          filters, kernel.front()),
              "if the filters are sines and cosines (a spectrogram), torch.stft computes the same "
              "by FFT (torchaudio.transforms.Spectrogram, MelSpectrogram); other filter banks "
              "convolve by FFT, or with fewer taps");
}

Said wide_kernel(const CountedOps& all, Calls calls) {
  return by_call(all, calls, [&](size_t at) -> Said {
    if (all.name(at).find("conv") == std::string_view::npos) return std::nullopt;
    // The op that the program calls has the strides at one place.
    for (uint32_t op = all.ops[at]; op != kNone; op = all.links.parent[op]) {
      const std::string_view base = aten_base(all.trace.name(all.trace.events[op]));
      if (!is_convolution(base)) continue;
      if (all.position[op] == kNone) return std::nullopt;
      const auto inputs = all.inputs(all.position[op]);
      if (inputs.size() < 4 || inputs[1].dims.size() < 3) return std::nullopt;
      if (auto transform = filters_of_a_transform(inputs)) return transform;
      if (!are_ones(inputs[3].concrete)) return std::nullopt;
      const std::vector<int64_t> kernel(inputs[1].dims.begin() + 2, inputs[1].dims.end());
      const auto longest = std::max_element(kernel.begin(), kernel.end());
      const int64_t taps = elements_of(kernel);
      if (*longest < kLongKernel || taps < kManyTaps) return std::nullopt;
      const bool is_line = *longest == taps;
      return loss(CostQuestion::less,
                  fmt::format("a kernel of {} reads {} samples for each result",
                              fmt::join(kernel, " x "), taps),
                  is_line
                      ? "convolve by FFT: torch.fft.rfft of both, a product, irfft "
                        "(torchaudio.functional.fftconvolve); or take a shorter kernel"
                      : "if it is separable (a Gaussian, a box), two passes with one-dimensional "
                        "kernels (k x 1, then 1 x k) do it; else convolve by FFT, or take a "
                        "smaller kernel; a fixed filter of the input may run outside of the step");
    }
    return std::nullopt;
  });
}

// Outermost ops in their order, and which of them made the autograd node of a number.
struct Outermost {
  explicit Outermost(const CountedOps& all) {
    for (size_t at = 0; at < all.ops.size(); ++at) {
      if (all.is_root(at)) roots.push_back(static_cast<uint32_t>(at));
      const OpArgs* args = all.trace.op_args(all.event(at));
      if (args == nullptr || args->sequence_number < 0 || roots.empty()) continue;
      if (!is_autograd_node(all.name(roots.back())))
        by_number[args->sequence_number] = roots.size() - 1;
    }
  }
  // Of a call, or of the forward op of the node around it; kNone if that is not known.
  size_t of(const CountedOps& all, size_t at) const {
    const uint32_t op = all.outermost(at);
    if (is_autograd_node(all.trace.name(all.trace.events[op]))) {
      const OpArgs* args = all.trace.op_args(all.trace.events[op]);
      const auto found = args == nullptr ? by_number.end() : by_number.find(args->sequence_number);
      return found == by_number.end() ? kNone : found->second;
    }
    const auto found = std::lower_bound(roots.begin(), roots.end(), all.position[op]);
    return found == roots.end() ? kNone : static_cast<size_t>(found - roots.begin());
  }

  std::vector<uint32_t> roots;
  std::unordered_map<int64_t, size_t> by_number;
};

// Rows that were gathered or repeated from far fewer: each is multiplied again and again.
Said gathered_rows(const CountedOps& all, const Outermost& outermost, Calls calls) {
  constexpr std::array<std::string_view, 4> kGathers = {"index", "index_select", "embedding",
                                                        "gather"};
  constexpr std::array<std::string_view, 4> kRepeats = {"repeat", "repeat_interleave", "expand",
                                                        "tile"};
  const auto is_of = [](const auto& list, std::string_view base) {
    return std::find(list.begin(), list.end(), base) != list.end();
  };
  return by_call(all, calls, [&](size_t at) -> Said {
    const size_t root = outermost.of(all, at);
    if (root == kNone || !is_product(all.name(outermost.roots[root]))) return std::nullopt;
    const auto tensors = tensor_inputs(all.inputs(outermost.roots[root]));
    const size_t left = all.base(outermost.roots[root]) == "addmm" ? 1 : 0;
    if (tensors.size() < left + 2 || tensors[left].dims.size() < 2) return std::nullopt;
    int64_t width = tensors[left].dims.back();
    const int64_t rows = tensors[left].numel() / std::max<int64_t>(1, width);
    int64_t gathered = 0;  // columns
    int64_t table = 0;
    std::string_view by;
    std::vector<int64_t> parts;  // columns of what a cat joins
    bool is_mixed = false;       // the rows met as many of another tensor: none is there again
    for (size_t back = 1; back <= std::min(kGatherLookBack, root) && gathered < width; ++back) {
      const uint32_t before = outermost.roots[root - back];
      const std::string_view base = all.base(before);
      const auto read = all.inputs(before);
      if (is_product(all.name(before))) {
        // A layer before this one, on the same rows: they were repeated for it already.
        const auto layer = tensor_inputs(read);
        const size_t of = all.base(before) == "addmm" ? 1 : 0;
        if (all.base(before) != "linear" || layer.size() < of + 2 || gathered > 0 ||
            layer[of].dims.empty() || layer[of + 1].dims.front() != width ||
            layer[of].numel() != rows * layer[of].dims.back())
          break;
        width = layer[of].dims.back();
        parts.clear();
        continue;
      }
      if (base == "cat" && !read.empty())
        for (const OpInput& part : read[0].list)
          if (!part.dims.empty()) parts.push_back(part.dims.back());
      const bool repeats = is_of(kRepeats, base);
      if (!repeats && op_class(all.name(before)) == OpClass::pointwise) {
        const auto operands = tensor_inputs(read);
        const auto full = std::ranges::count_if(
            operands, [&](const TensorShape& t) { return t.numel() == rows * width; });
        is_mixed = is_mixed || full > 1;
      }
      if (repeats && is_mixed) continue;
      if ((!repeats && !is_of(kGathers, base)) || read.empty() || read[0].dims.size() < 2) continue;
      if (!repeats && read[0].dims.size() != 2) continue;
      const int64_t columns = read[0].dims.back();
      const int64_t from = elements_of(read[0].dims) / std::max<int64_t>(1, columns);
      if (from == 0 || from > rows / kGathered) continue;
      if (columns != width && std::find(parts.begin(), parts.end(), columns) == parts.end())
        continue;
      gathered += columns;
      table = std::max(table, from);
      by = base;
    }
    // Of a cat, half of the columns are worth it.
    if (table == 0 || gathered > width || 2 * gathered < width) return std::nullopt;
    const bool repeats = is_of(kRepeats, by);
    return loss(
        CostQuestion::less,
        fmt::format("{}its {} rows were {} from {}{}: each of these is multiplied {} times",
                    gathered < width ? fmt::format("in {} of {} columns ", gathered, width) : "",
                    rows, repeats ? "repeated" : "gathered", table,
                    repeats ? fmt::format(" ({})", by) : "", rows / table),
        repeats ? "project before the rows are repeated: multiply the distinct rows once (one "
                  "per user, query or condition) and expand the results; of a cat split the "
                  "weight, project each part at its own size, and add by broadcasting"
                : "project before the gather: multiply the rows of the table (nodes first), and "
                  "gather the results; of a cat of several gathers split the weight, project "
                  "each table, gather and add; if it is the weights that are gathered (one for "
                  "each edge or row, of few kinds), multiply all rows by each of the few weights, "
                  "or the rows of each kind by its own, and gather the results");
  });
}

bool is_factor_or_solve(std::string_view name) {
  const std::string_view base = aten_base(name);
  return base.starts_with("linalg_") || base.find("cholesky") != std::string_view::npos ||
         base.find("triangular") != std::string_view::npos || base == "inverse";
}

// A matrix of diag_embed that goes into a factorisation as it is.
Said diagonal_matrix(const CountedOps& all, const Outermost& outermost, Calls calls) {
  constexpr std::array<std::string_view, 3> kMakers = {"diag_embed", "diag", "diagflat"};
  return by_call(all, calls, [&](size_t at) -> Said {
    size_t root = outermost.of(all, at);
    if (root == kNone || !is_factor_or_solve(all.name(outermost.roots[root]))) return std::nullopt;
    // Of a solve the factorisation before it counts.
    for (size_t seen = 0; seen < kSolveLookAhead; ++seen, --root) {
      if (is_factor_or_solve(all.name(outermost.roots[root])))
        for (size_t back = 1; back <= std::min<size_t>(kGatherLookBack, root); ++back) {
          const uint32_t before = outermost.roots[root - back];
          if (std::find(kMakers.begin(), kMakers.end(), all.base(before)) != kMakers.end())
            return loss(CostQuestion::less,
                        fmt::format("its matrix comes from {} as it is: a diagonal matrix is "
                                    "factorised and solved like a full one",
                                    all.name(before)),
                        "divide by the diagonal; Independent(Normal(mean, scale), 1) is the "
                        "MultivariateNormal of a diagonal covariance");
          if (all.kind(before) != OpClass::view) break;
        }
      if (root == 0) break;
    }
    return std::nullopt;
  });
}

}  // namespace

// Transforms of a length with a large prime factor take several times as long.
Said awkward_length(const CountedOps& all, Calls calls) {
  const std::string_view base = all.base(calls.front());
  if (base != "_fft_r2c" && base != "_fft_c2r" && base != "_fft_c2c") return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    if (inputs.size() < 4 || inputs[0].dims.empty()) return std::nullopt;
    int64_t worst = 0;
    int64_t factor = 0;
    const auto look = [&](int64_t length) {
      if (const int64_t largest = largest_prime(length); largest > factor) {
        factor = largest;
        worst = length;
      }
    };
    const std::vector<int64_t> over = numbers_of(inputs[1].concrete);
    const auto rank = static_cast<int64_t>(inputs[0].dims.size());
    for (size_t i = 0; i < over.size(); ++i) {
      const int64_t d = over[i] < 0 ? over[i] + rank : over[i];
      if (d < 0 || d >= rank) return std::nullopt;
      // Half of the last dimension of a real result is given.
      const bool is_half = base == "_fft_c2r" && i + 1 == over.size();
      look(is_half ? whole_argument(inputs, 3).value_or(1)
                   : inputs[0].dims[static_cast<size_t>(d)]);
    }
    if (factor < kLargePrime) return std::nullopt;
    int64_t fast = worst;
    while (largest_prime(fast) > 5) ++fast;
    return loss(CostQuestion::limit,
                fmt::format("a transform of length {}, which has the prime factor {}: lengths of "
                            "small factors are several times faster",
                            worst, factor),
                fmt::format("pad to a length of small factors: the next one is {} (n={} of "
                            "torch.fft; a linear convolution stays the same if it is padded more)",
                            fast, fast));
  });
}

// Of a tall or wide matrix full_matrices=True makes a square matrix of vectors that few read.
Said full_vectors(const CountedOps& all, Calls calls) {
  if (all.base(calls.front()) != "_linalg_svd") return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    if (inputs.size() < 3 || inputs[0].dims.size() < 2 || inputs[1].concrete != "True" ||
        inputs[2].concrete != "True")
      return std::nullopt;
    const int64_t rows = inputs[0].dims[inputs[0].dims.size() - 2];
    const int64_t columns = inputs[0].dims.back();
    const int64_t longer = std::max(rows, columns);
    const int64_t shorter = std::min(rows, columns);
    if (shorter == 0 || longer / shorter < 2) return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("full_matrices=True makes {} x {} vectors of {}, of which {} belong to "
                            "a singular value",
                            longer, longer, sizes_text(inputs[0].dims), shorter),
                "pass full_matrices=False if the other vectors are not read (svd(...)[1] alone: "
                "svdvals)");
  });
}

// A softmax over a dimension that is contiguous, of a view in which it is not the last one: a copy
// is made, along which its elements lie apart.
Said transposed_softmax(const CountedOps& all, Calls calls) {
  const std::string_view base = all.base(calls.front());
  const bool is_gradient = base == "_log_softmax_backward_data" || base == "_softmax_backward_data";
  if (base != "_log_softmax" && base != "_softmax" && !is_gradient) return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const auto dim = whole_argument(inputs, is_gradient ? 2 : 1);
    if (!dim || inputs[0].dims.size() < 2) return std::nullopt;
    const auto& dims = inputs[0].dims;
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t d = *dim < 0 ? *dim + rank : *dim;
    if (d < 0 || d + 1 >= rank || inputs[0].strides.size() != dims.size()) return std::nullopt;
    const int64_t apart = elements_of(std::span(dims).subspan(static_cast<size_t>(d) + 1));
    // Of an image the channels lie apart by nature; in its gradient the forward's copy is read.
    if (apart < 2 || (!is_gradient && inputs[0].strides[static_cast<size_t>(d)] != 1) || rank > 3)
      return std::nullopt;
    return loss(
        CostQuestion::limit,
        fmt::format("it runs along dimension {} of {}, a transposed view: it is copied, and "
                    "the elements then lie {} apart",
                    d, sizes_text(dims), apart),
        "softmax along the last, contiguous dimension: flatten scores to [rows, classes] "
        "and targets to [rows] before cross_entropy (no transpose)");
  });
}

// Few exponents have a form of their own; others call a power function for each element.
Said general_power(const CountedOps& all, Calls calls) {
  constexpr std::array<double, 9> kOwnForm = {0, 0.5, 1, 2, 3, -0.5, -1, -2, -0.0};
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    if (inputs.size() < 2 || inputs[0].dims.empty() || inputs[1].concrete.empty())
      return std::nullopt;
    const std::string text(inputs[1].concrete);
    char* end = nullptr;
    const double exponent = std::strtod(text.c_str(), &end);
    if (end == text.c_str() ||
        std::find(kOwnForm.begin(), kOwnForm.end(), exponent) != kOwnForm.end() ||
        std::abs(exponent) > kLargestPower || 2 * exponent != std::round(2 * exponent))
      return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("the exponent is {}: a general power function runs for each element, "
                            "also in its gradient",
                            text),
                "square and multiply: products of squares give whole exponents (x2 = x * x, x6 = "
                "x2 * x2 * x2, x12 = x6 * x6), a product with sqrt gives halves (x * x.sqrt() for "
                "pow(x, 1.5))");
  });
}

// No library multiplies whole numbers: a plain loop does.
Said integer_product(const CountedOps& all, Calls calls) {
  constexpr std::array<std::string_view, 6> kWhole = {"long int",  "int",           "short",
                                                      "short int", "unsigned char", "signed char"};
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    for (const TensorShape& t : tensor_inputs(inputs)) {
      if (t.dims.size() < 2) continue;
      if (std::find(kWhole.begin(), kWhole.end(), t.type) == kWhole.end()) return std::nullopt;
      return loss(CostQuestion::limit,
                  fmt::format("it multiplies whole numbers ({}), for which there is no BLAS: a "
                              "plain loop runs",
                              t.type),
                  "multiply in float32 (.float()), which is exact while results stay below 2^24 "
                  "(float64: 2^53), and convert the result");
    }
    return std::nullopt;
  });
}

// As many rows as there are, again and again: a large tensor is put into another order.
Said reordered_rows(const CountedOps& all, Calls calls) {
  if (calls.size() < kReorders) return std::nullopt;
  return by_call(all, calls, [&](size_t at) -> Said {
    const auto inputs = all.inputs(at);
    const auto dim = whole_argument(inputs, 1);
    if (inputs.size() < 3 || !dim || inputs[0].dims.size() < 3 || inputs[2].dims.size() != 1)
      return std::nullopt;
    const auto rank = static_cast<int64_t>(inputs[0].dims.size());
    const int64_t d = *dim < 0 ? *dim + rank : *dim;
    if (d < 0 || d >= rank || inputs[0].dims[static_cast<size_t>(d)] != inputs[2].dims[0] ||
        elements_of(inputs[0].dims) < kReordered)
      return std::nullopt;
    return loss(CostQuestion::less,
                fmt::format("it takes as many rows as {} has: all of it is copied into another "
                            "order, {} times",
                            sizes_text(inputs[0].dims), calls.size()),
                "reorder only the part that differs (of the cache of a beam search the generated "
                "words: the prompt is the same in all beams and can be kept once), leave it out if "
                "the order is unchanged, or keep indices (which row continues which, a paged "
                "cache) in place of moving rows");
  });
}

std::optional<CostAnswer> answer_of_shapes(const CountedOps& all, std::span<const uint32_t> calls) {
  const std::string_view name = all.name(calls.front());
  if (aten_base(name) == "index_select") return reordered_rows(all, calls);
  if (name.find("conv") != std::string_view::npos) return wide_kernel(all, calls);
  if (aten_base(name) == "pow") return general_power(all, calls);
  if (auto said = awkward_length(all, calls)) return said;
  if (auto said = full_vectors(all, calls)) return said;
  if (auto said = transposed_softmax(all, calls)) return said;
  const bool is_algebra = is_factor_or_solve(name) || aten_base(name) == "tril";
  if (!is_product(name) && !is_algebra) return std::nullopt;
  if (auto said = integer_product(all, calls)) return said;
  const Outermost outermost(all);
  return is_algebra ? diagonal_matrix(all, outermost, calls) : gathered_rows(all, outermost, calls);
}

std::optional<CostAnswer> answer_of_sign(OpSign sign, const CountedOps& all,
                                         std::span<const uint32_t> calls) {
  switch (sign) {
    case OpSign::none: return std::nullopt;
    case OpSign::wide_table: return wide_table(all, calls);
    case OpSign::accumulates: return accumulates(all, calls);
    case OpSign::cut_after: return cut_after(all, calls);
    case OpSign::grows: return grows(all, calls);
    case OpSign::repeats_input: return repeats_input(all, calls);
    case OpSign::inference: return inference(all, calls);
    case OpSign::one_hot: return one_hot(all, calls);
    case OpSign::strided_scan: return strided_scan(all, calls);
    case OpSign::outer_broadcast: return outer_broadcast(all, calls);
    case OpSign::one_column: return one_column(all, calls);
    case OpSign::then_product: return then_product(all, calls);
  }
  return std::nullopt;
}

}  // namespace epilogue::trace
