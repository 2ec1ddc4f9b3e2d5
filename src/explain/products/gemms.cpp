// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/gemms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "explain/index/aten_ops.h"
#include "explain/index/trace_metadata.h"
#include "explain/kernel_name/text.h"
#include "explain/products/device_peaks.h"
#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

constexpr int32_t kFirstTensorCoreMajor = 7;  // Volta
constexpr int32_t kFirstTf32Major = 8;        // Ampere
constexpr int64_t kTensorCoreMultiple = 8;    // 16-bit elements in 16 bytes

double element_bytes(std::string_view type, double otherwise) {
  const std::optional<int64_t> twice = element_bytes_x2(type);
  return twice ? static_cast<double>(*twice) / 2 : otherwise;
}

// A [M, K], B [K, N], C [M, N], each moved once: the least that can be.
std::optional<double> bytes_of_product(const Gemm& g) {
  const double a = element_bytes(g.a_type, 0);
  const double b = element_bytes(g.b_type, a);
  const double c = element_bytes(g.c_type, 0);
  if (a == 0 || b == 0 || c == 0) return std::nullopt;
  const auto m = static_cast<double>(g.shape->m);
  const auto n = static_cast<double>(g.shape->n);
  const auto k = static_cast<double>(g.shape->k);
  return static_cast<double>(g.shape->batch) * (m * k * a + k * n * b + m * n * c);
}

// The type that the multipliers take: the kernel's word before the op's. f32 without one of them is
// known only where the kernel says whether it runs on tensor cores.
std::string math_type_of(const Gemm& g, bool amd) {
  const std::optional<GemmFacts>& facts = g.name.gemm;
  if (facts && !facts->math_type.empty()) return facts->math_type;
  std::string type = facts && !facts->a_type.empty() ? facts->a_type : g.a_type;
  const bool known_cores = facts && facts->uses_tensor_cores.has_value();
  if (type == "f32") {
    if (amd) return type;
    return known_cores ? (*facts->uses_tensor_cores ? "tf32" : "f32") : std::string();
  }
  // There is no published rate for 16-bit products off the tensor cores.
  if (known_cores && !*facts->uses_tensor_cores && type != "f64") return {};
  return type;
}

void add_roofline(Gemm& g, const DevicePeaks& peaks) {
  g.peak_of = std::string(peaks.device) + ", " + std::string(peaks.source);
  g.peak_tflops = peak_tflops(peaks, g.math_type);
  if (g.tflops && g.peak_tflops) g.peak_pct = *g.tflops / *g.peak_tflops * 100;
  if (!g.intensity || peaks.memory_gb_per_s <= 0) return;
  const double by_memory = *g.intensity * peaks.memory_gb_per_s * 1e-3;  // TFLOP/s
  // A vector's product has too few operations for any ceiling: the lowest will do.
  const double ceiling = g.peak_tflops ? *g.peak_tflops : peaks.f32;
  if (by_memory < ceiling) {
    g.side = RooflineSide::memory;
    g.attainable_tflops = by_memory;
  } else if (g.peak_tflops) {
    g.side = RooflineSide::compute;
    g.attainable_tflops = g.peak_tflops;
  }
  if (g.tflops && g.attainable_tflops) g.attainable_pct = *g.tflops / *g.attainable_tflops * 100;
}

std::string odd_size(const GemmShape& shape) {
  for (const auto& [name, size] : {std::pair("M", shape.m), {"N", shape.n}, {"K", shape.k}})
    if (size % kTensorCoreMultiple != 0)
      return std::string(name) + " = " + std::to_string(size) + " is not a multiple of 8";
  return {};
}

struct TensorCoreMiss {
  std::string note;
  std::string advice;
};

TensorCoreMiss why_no_tensor_cores(const Gemm& g, const DeviceProperties* device) {
  const int32_t major = device != nullptr && !is_amd(*device) ? device->compute_major : 0;
  if (major > 0 && major < kFirstTensorCoreMajor) return {"the device has no tensor cores", ""};
  if (g.a_type == "f32") {
    if (major > 0 && major < kFirstTf32Major)
      return {"f32, which tensor cores take (as TF32) only from compute capability 8.0 on",
              "this device's take f16: mixed precision (torch.autocast) would use them"};
    return {"f32 without TF32",
            major == 0 ? "" : "torch.set_float32_matmul_precision('high') would allow TF32"};
  }
  if (g.a_type == "f64") return {"f64 on ordinary multiply-adds", ""};
  if (g.shape && (g.shape->m == 1 || g.shape->n == 1))
    return {"a matrix times a vector, which memory limits anyway", ""};
  if (const std::string odd = g.shape ? odd_size(*g.shape) : std::string(); !odd.empty())
    return {odd + " (16-byte rows of 16-bit elements)", "pad it to a multiple of 8"};
  return {};
}

// A split-K kernel starts a whole multiple of its tiles.
int64_t split_of(const Gemm& g, int64_t tiles) {
  const bool splits = g.reduction_ns > 0 || g.name.gemm->splits_k.value_or(false);
  if (!splits || !g.grid_blocks || *g.grid_blocks <= tiles || *g.grid_blocks % tiles != 0) return 1;
  return *g.grid_blocks / tiles;
}

// SMs x blocks of it that fit; a persistent kernel starts fewer blocks than it has tiles.
std::optional<int64_t> tiles_per_wave(const Gemm& g, const KernelArgs* args,
                                      const DeviceProperties* device, int64_t blocks,
                                      bool& assumes_one) {
  if (device == nullptr || device->num_sms <= 0) return std::nullopt;
  const auto fit = args == nullptr ? std::nullopt : compute_occupancy(*args, *device);
  assumes_one = !fit;
  int64_t capacity = device->num_sms * (fit ? fit->blocks_per_sm : 1);
  if (g.grid_blocks && *g.grid_blocks > 0 && *g.grid_blocks < blocks)
    capacity = std::min(capacity, *g.grid_blocks);
  return capacity;
}

void add_rates(Gemm& g, const Trace& trace) {
  const DeviceProperties* device = find_device(trace, g.device);
  g.math_type = is_own_cpu_trace(trace) ? own_math_type(trace, g.name)
                                        : math_type_of(g, device != nullptr && is_amd(*device));
  if (g.flops) {
    if (g.shape) g.bytes = bytes_of_product(g);
    if (g.bytes && *g.bytes > 0) g.intensity = *g.flops / *g.bytes;
    if (const double time_ns = g.rate_time_ns(); time_ns > 0) {
      g.tflops = *g.flops / time_ns * 1e-3;
      if (g.bytes) g.gb_per_s = *g.bytes / time_ns;
    }
  }
  if (const auto peaks = find_device_peaks(trace, g.device)) add_roofline(g, *peaks);
}

void add_tensor_cores(Gemm& g, const DeviceProperties* device) {
  if (!g.name.gemm) return;
  g.uses_tensor_cores = g.name.gemm->uses_tensor_cores;
  if (g.uses_tensor_cores != false) return;
  TensorCoreMiss miss = why_no_tensor_cores(g, device);
  g.tensor_core_note = std::move(miss.note);
  g.tensor_core_advice = std::move(miss.advice);
}

void add_tiling(Gemm& g, const KernelArgs* args, const DeviceProperties* device) {
  // ROCm gives the grid in threads, not in blocks.
  if (args != nullptr && args->has_grid && (device == nullptr || !is_amd(*device)))
    g.grid_blocks = product(args->grid);
  if (!g.shape || !g.name.gemm || !g.name.gemm->tile_m || !g.name.gemm->tile_n) return;
  const GemmFacts& facts = *g.name.gemm;
  const int64_t rows = facts.is_column_major ? *facts.tile_n : *facts.tile_m;
  const int64_t columns = facts.is_column_major ? *facts.tile_m : *facts.tile_n;
  const int64_t down = ceil_div(g.shape->m, rows);
  const int64_t across = ceil_div(g.shape->n, columns);
  const std::optional<int64_t> tiles =
      product(std::array<int64_t, 3>{down, across, g.shape->batch});
  if (!tiles || *tiles <= 0) return;
  GemmTiling t;
  t.tiles = *tiles;
  const double computed = static_cast<double>(down) * static_cast<double>(rows) *
                          static_cast<double>(across) * static_cast<double>(columns);
  const double wanted = static_cast<double>(g.shape->m) * static_cast<double>(g.shape->n);
  t.padding_pct = (1 - wanted / computed) * 100;
  t.split_k = split_of(g, *tiles);
  const int64_t blocks = *tiles * t.split_k;
  t.tiles_per_wave = tiles_per_wave(g, args, device, blocks, t.assumes_one_block_per_sm);
  if (t.tiles_per_wave && *t.tiles_per_wave > 0) {
    t.waves = static_cast<double>(blocks) / static_cast<double>(*t.tiles_per_wave);
    t.wave_efficiency_pct = *t.waves / std::ceil(*t.waves) * 100;
    const int64_t rest = blocks % *t.tiles_per_wave;
    t.last_wave_fill_pct =
        rest == 0 ? 100 : static_cast<double>(rest) / static_cast<double>(*t.tiles_per_wave) * 100;
  }
  g.tiling = t;
}

// Why one product is faster than another of the same FLOPs: the facts that differ in its favour.

constexpr double kLeastRatio = 1.05;  // below, noise
constexpr double kLeastPoints = 5;    // of percentages: below, no reason
constexpr size_t kMostComparisons = 20;
constexpr int64_t kLeastRuns = 3;  // of fewer there is no spread to tell a difference from
constexpr double kLeastIntensityRatio = 1.2;

std::string sizes_text(const GemmShape& s) {
  return s.batch == 1 ? fmt::format("{}x{}x{}", s.m, s.n, s.k)
                      : fmt::format("{} x {}x{}x{}", s.batch, s.m, s.n, s.k);
}

// More work per element loaded: M N / (M + N), for tiles of the same depth.
double tile_reuse(const GemmFacts& g) {
  const auto m = static_cast<double>(*g.tile_m);
  const auto n = static_cast<double>(*g.tile_n);
  return m * n / (m + n);
}

void add_type_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  if (fast.uses_tensor_cores == true && slow.uses_tensor_cores == false) {
    reasons.push_back("it runs on tensor cores and the other does not" +
                      (slow.tensor_core_note.empty() ? "" : " (" + slow.tensor_core_note + ")"));
  } else if (!fast.math_type.empty() && !slow.math_type.empty() &&
             fast.math_type != slow.math_type) {
    reasons.push_back(fast.math_type + " instead of " + slow.math_type);
  }
}

void add_tile_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  const auto& a = fast.name.gemm;
  const auto& b = slow.name.gemm;
  if (a && b && a->tile_m && a->tile_n && b->tile_m && b->tile_n && tile_reuse(*a) > tile_reuse(*b))
    reasons.push_back(fmt::format("larger tiles ({}x{} against {}x{}), which load less per FLOP",
                                  *a->tile_m, *a->tile_n, *b->tile_m, *b->tile_n));
  if (!fast.tiling || !slow.tiling) return;
  const GemmTiling& x = *fast.tiling;
  const GemmTiling& y = *slow.tiling;
  if (x.wave_efficiency_pct && y.wave_efficiency_pct &&
      *x.wave_efficiency_pct > *y.wave_efficiency_pct + kLeastPoints)
    reasons.push_back(
        fmt::format("fuller waves ({:.2f} waves, {:.0f} % of whole ones, against {:.2f}, {:.0f} %)",
                    *x.waves, *x.wave_efficiency_pct, *y.waves, *y.wave_efficiency_pct));
  if (y.padding_pct > x.padding_pct + kLeastPoints)
    reasons.push_back(
        fmt::format("less padding ({:.0f} % against {:.0f} %)", x.padding_pct, y.padding_pct));
}

void add_shape_reasons(const Gemm& fast, const Gemm& slow, std::vector<std::string>& reasons) {
  if (slow.side == RooflineSide::memory && fast.side == RooflineSide::compute) {
    reasons.push_back("the other is limited by memory");
  } else if (fast.intensity && slow.intensity && slow.side == RooflineSide::memory &&
             *fast.intensity > *slow.intensity * kLeastIntensityRatio) {
    reasons.push_back(fmt::format("more FLOPs per byte ({:.0f} against {:.0f})", *fast.intensity,
                                  *slow.intensity));
  }
  if (fast.shape->k > slow.shape->k)
    reasons.push_back(fmt::format(
        "a longer sum (K {} against {}), over which starting and storing a tile is spread",
        fast.shape->k, slow.shape->k));
  if (contains(slow.op, "add") && !contains(fast.op, "add"))
    reasons.push_back("the other also adds a bias or a matrix");
  if (slow.reduction_ns > 0 && fast.reduction_ns == 0)
    reasons.push_back("the other splits K and needs a reduction");
}

// "aten::mm 8x8x8", with the kernel where others of `gemms` are called so, too.
std::string name_of(const Gemm& g, const std::vector<Gemm>& gemms) {
  const auto is_same = [&](const Gemm& other) {
    return other.op == g.op && other.shape == g.shape;
  };
  const bool is_shared = std::count_if(gemms.begin(), gemms.end(), is_same) > 1;
  return g.op + " " + sizes_text(*g.shape) + (is_shared ? " (" + g.kernel + ")" : "");
}

// Whether even the best run of `slow` took longer than `fast` mostly does, by more than the clock
// can miss of two times.
bool is_clearly_faster(const Gemm& fast, const Gemm& slow, int64_t clock_step_ns) {
  if (std::min(fast.time.count, slow.time.count) < kLeastRuns) return false;
  const double best_ns = static_cast<double>(slow.time.min_ns) + slow.reduction_ns_per_launch();
  return best_ns - fast.rate_time_ns() > 2 * static_cast<double>(clock_step_ns);
}

std::string sentence_of(const std::vector<Gemm>& gemms, const GemmComparison& c) {
  const Gemm& fast = gemms[c.faster];
  const Gemm& slow = gemms[c.slower];
  std::vector<std::string> reasons;
  add_type_reasons(fast, slow, reasons);
  add_tile_reasons(fast, slow, reasons);
  add_shape_reasons(fast, slow, reasons);
  std::string text = fmt::format(
      "{} runs {:.2f} times as fast as {} ({:.3g} against {:.3g} TFLOP/s, the same FLOPs)",
      name_of(fast, gemms), c.ratio, name_of(slow, gemms), *fast.tflops, *slow.tflops);
  if (reasons.empty()) return text + "; nothing that the trace says explains it.";
  return text + ", likely for " + (reasons.size() == 1 ? "this reason" : "these reasons") + ": " +
         join(reasons, "; ") + ".";
}

std::vector<GemmComparison> compare_gemms(const std::vector<Gemm>& gemms, int64_t clock_step_ns) {
  std::map<std::pair<int32_t, double>, std::vector<size_t>> groups;
  for (size_t i = 0; i < gemms.size(); ++i)
    if (gemms[i].tflops && gemms[i].shape) groups[{gemms[i].device, *gemms[i].flops}].push_back(i);
  std::vector<GemmComparison> list;
  for (auto& [key, members] : groups) {
    const auto fastest = *std::max_element(members.begin(), members.end(), [&](size_t a, size_t b) {
      return *gemms[a].tflops < *gemms[b].tflops;
    });
    for (const size_t other : members) {
      const double ratio = *gemms[fastest].tflops / *gemms[other].tflops;
      if (other != fastest && ratio >= kLeastRatio &&
          is_clearly_faster(gemms[fastest], gemms[other], clock_step_ns))
        list.push_back({fastest, other, ratio, {}});
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const GemmComparison& a, const GemmComparison& b) {
    return a.ratio > b.ratio;
  });
  if (list.size() > kMostComparisons) list.resize(kMostComparisons);
  for (GemmComparison& c : list) c.sentence = sentence_of(gemms, c);
  return list;
}

constexpr int kMostParents = 64;  // how far up a product's op is looked for

// Launches that are alike: op, its inputs, kernel, device, whether it is the op's only product, and
// the FLOPs that the kernel states, which count where no op gives the shapes.
using Key = std::tuple<StringId, uint32_t, StringId, int32_t, bool, int64_t>;

struct GemmGroup {
  uint32_t kernel = kNone;  // the first of them, in Trace::events
  uint32_t op = kNone;      // the op that gives the shapes
  bool is_enclosing = false;
  std::vector<int64_t> times_ns;
  int64_t reduction_ns = 0;
};

class Collector {
 public:
  Collector(const Trace& trace, const Links& links)
      : trace_(trace), links_(links), op_names_(trace.strings.size()) {}

  GemmReport run() {
    count_products();
    for (const uint32_t i : links_.device_work) {
      const Event& e = trace_.events[i];
      if (e.category != Category::kernel) continue;
      const KernelKind kind = name_of(e).kind;
      if (kind == KernelKind::gemm || kind == KernelKind::gemv) add_product(i);
      if (kind == KernelKind::split_k_reduce) add_reduction(i);
    }
    for (auto& [key, group] : groups_) report_.gemms.push_back(finish(key, group));
    std::stable_sort(report_.gemms.begin(), report_.gemms.end(), [](const Gemm& a, const Gemm& b) {
      return a.time.total_ns + a.reduction_ns > b.time.total_ns + b.reduction_ns;
    });
    report_.comparisons = compare_gemms(report_.gemms, clock_step_ns(trace_));
    return std::move(report_);
  }

 private:
  const KernelName& name_of(const Event& e) {
    const auto [it, is_new] = names_.try_emplace(e.name);
    if (is_new) it->second = decode_kernel_name(trace_.name(e));
    return it->second;
  }

  struct Found {
    uint32_t op = kNone;
    bool is_enclosing = false;
    bool is_hidden = false;
  };

  // An op with several products cannot say which of its FLOPs a kernel has.
  void count_products() {
    for (const uint32_t i : links_.device_work) {
      const Event& e = trace_.events[i];
      if (e.category != Category::kernel) continue;
      const KernelKind kind = name_of(e).kind;
      if (kind == KernelKind::gemm || kind == KernelKind::gemv) ++products_[find_op(i).op];
    }
  }

  // What names, and lists of arguments, say of ops: each is asked once.
  struct OpName {
    bool is_known = false;
    bool hides_gemms = false;
    bool is_gemm = false;
  };
  OpName op_name(StringId name) {
    OpName& known = op_names_[name];
    if (!known.is_known) {
      const std::string_view text = trace_.strings[name];
      known = {true, hides_gemms(text), is_gemm_op(text)};
    }
    return known;
  }
  bool has_problem(const Event& e) {
    const OpArgs* args = trace_.op_args(e);
    if (args == nullptr || args->inputs == kNone) return false;
    const uint64_t key = uint64_t{e.name} << 32 | args->inputs;
    const auto [known, is_new] = has_problem_.try_emplace(key, false);
    if (is_new)
      known->second = gemm_problem(trace_.name(e), trace_.inputs[args->inputs]).has_value();
    return known->second;
  }

  // The innermost op around the launch that is a product with recorded shapes.
  Found find_op(uint32_t kernel) {
    Found found;
    uint32_t op = links_.op[kernel];
    for (int depth = 0; op != kNone && depth < kMostParents; ++depth) {
      const Event& e = trace_.events[op];
      const OpName name = op_name(e.name);
      if (name.hides_gemms) {
        found.is_hidden = true;
        return found;
      }
      if (found.op == kNone && name.is_gemm && has_problem(e)) {
        found.op = op;
        found.is_enclosing = depth > 0;
      }
      op = links_.parent[op];
    }
    return found;
  }

  void add_product(uint32_t i) {
    const Event& e = trace_.events[i];
    const Found found = find_op(i);
    if (found.is_hidden) return;
    ++report_.kernels;
    report_.total_ns += e.dur_ns;
    const KernelArgs* args = trace_.kernel_args(e);
    const uint32_t launcher = links_.op[i];
    const bool is_only = products_[found.op] == 1;
    const Event* op = found.op == kNone ? nullptr : &trace_.events[found.op];
    if (op != nullptr) ++report_.kernels_with_shape;
    GemmGroup& group =
        groups_[{op == nullptr ? 0 : op->name, op == nullptr ? kNone : trace_.op_args(*op)->inputs,
                 e.name, args == nullptr ? e.pid : args->device, is_only,
                 op == nullptr && args != nullptr ? args->flops : -1}];
    if (group.kernel == kNone) {
      group.kernel = i;
      group.op = found.op;
      group.is_enclosing = found.is_enclosing;
    }
    group.times_ns.push_back(e.dur_ns);
    if (launcher != kNone) last_of_op_[launcher] = &group;
  }

  // Belongs to the product that the same op launched before it.
  void add_reduction(uint32_t i) {
    const auto it = last_of_op_.find(links_.op[i]);
    if (links_.op[i] != kNone && it != last_of_op_.end())
      it->second->reduction_ns += trace_.events[i].dur_ns;
  }

  Gemm finish(const Key& key, GemmGroup& group) {
    const Event& kernel = trace_.events[group.kernel];
    const KernelArgs* args = trace_.kernel_args(kernel);
    Gemm g;
    g.kernel = std::string(trace_.name(kernel));
    g.name = name_of(kernel);
    g.device = std::get<3>(key);
    g.time = distribution(std::move(group.times_ns)).value_or(Distribution());
    g.reduction_ns = group.reduction_ns;
    if (group.op != kNone) {
      const Event& op = trace_.events[group.op];
      const auto problem = gemm_problem(trace_.name(op), trace_.inputs[trace_.op_args(op)->inputs]);
      g.op = std::string(trace_.name(op));
      g.is_shape_of_enclosing_op = group.is_enclosing;
      g.shape = problem->shape;
      g.a_type = problem->a_type;
      g.b_type = problem->b_type;
      const bool is_only = std::get<4>(key);
      if (is_only)
        g.flops = 2.0 * static_cast<double>(g.shape->m) * static_cast<double>(g.shape->n) *
                  static_cast<double>(g.shape->k) * static_cast<double>(g.shape->batch);
    }
    if (group.op == kNone && args != nullptr && args->flops > 0) {
      g.flops = static_cast<double>(args->flops);
      if (args->bytes > 0) g.bytes = static_cast<double>(args->bytes);
    }
    add_types(g);
    const DeviceProperties* device = find_device(trace_, g.device);
    add_rates(g, trace_);
    add_tensor_cores(g, device);
    if (g.flops) add_tiling(g, args, device);
    return g;
  }

  static void add_types(Gemm& g) {
    const std::optional<GemmFacts>& facts = g.name.gemm;
    if (facts) {
      if (g.a_type.empty()) g.a_type = facts->a_type;
      if (g.b_type.empty()) g.b_type = facts->b_type;
      g.c_type = facts->c_type;
    }
    // Products of one type give that type, but for fp8 and integers.
    const bool is_float =
        g.a_type == "f32" || g.a_type == "f64" || g.a_type == "f16" || g.a_type == "bf16";
    if (g.c_type.empty() && is_float && g.a_type == g.b_type) g.c_type = g.a_type;
  }

  const Trace& trace_;
  const Links& links_;
  std::unordered_map<StringId, KernelName> names_;
  std::unordered_map<uint32_t, int64_t> products_;       // by the op that gives the shapes
  std::vector<OpName> op_names_;                         // by StringId
  std::unordered_map<uint64_t, bool> has_problem_;       // by name and arguments
  std::unordered_map<uint32_t, GemmGroup*> last_of_op_;  // the last product that an op launched
  std::map<Key, GemmGroup> groups_;
  GemmReport report_;
};

}  // namespace

GemmReport gemm_report(const Trace& trace, const Links& links) {
  return Collector(trace, links).run();
}

namespace {

using Dims = std::span<const int64_t>;

enum class Form : uint8_t {
  matmul,  // [..., M, K] x [..., K, N], with vectors
  linear,  // [..., K] x [N, K]
};

struct GemmOp {
  std::string_view name;
  size_t a;  // which argument A is; B is the next
  Form form;
};
constexpr GemmOp kGemmOps[] = {
    {"aten::mm", 0, Form::matmul},         {"aten::bmm", 0, Form::matmul},
    {"aten::mv", 0, Form::matmul},         {"aten::dot", 0, Form::matmul},
    {"aten::matmul", 0, Form::matmul},     {"aten::_int_mm", 0, Form::matmul},
    {"aten::_scaled_mm", 0, Form::matmul}, {"aten::addmm", 1, Form::matmul},
    {"aten::addmm_", 1, Form::matmul},     {"aten::_addmm_activation", 1, Form::matmul},
    {"aten::addmv", 1, Form::matmul},      {"aten::addmv_", 1, Form::matmul},
    {"aten::baddbmm", 1, Form::matmul},    {"aten::baddbmm_", 1, Form::matmul},
    {"aten::linear", 0, Form::linear},
};

const GemmOp* find_op(std::string_view name) {
  const auto* const it = std::find_if(std::begin(kGemmOps), std::end(kGemmOps),
                                      [&](const GemmOp& op) { return op.name == name; });
  return it == std::end(kGemmOps) ? nullptr : it;
}

std::optional<GemmShape> linear_shape(Dims x, Dims weight) {
  if (x.empty() || weight.size() != 2 || x.back() != weight[1]) return std::nullopt;
  const std::optional<int64_t> rows = product(x.first(x.size() - 1));
  if (!rows) return std::nullopt;
  return GemmShape{*rows, weight[0], weight[1], 1};
}

// Leading dimensions broadcast, as torch.matmul does it.
std::optional<int64_t> broadcast_batch(Dims a, Dims b) {
  int64_t batch = 1;
  for (size_t i = 1; i <= std::max(a.size(), b.size()); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    const int64_t size = x == 1 ? y : x;
    if (size < 0 || __builtin_mul_overflow(batch, size, &batch)) return std::nullopt;
  }
  return batch;
}

std::optional<GemmShape> matmul_shape(Dims a, Dims b) {
  if (a.empty() || b.empty()) return std::nullopt;
  GemmShape shape = {
      .m = a.size() == 1 ? 1 : a[a.size() - 2], .n = b.size() == 1 ? 1 : b.back(), .k = a.back()};
  if (shape.k != (b.size() == 1 ? b[0] : b[b.size() - 2])) return std::nullopt;
  const Dims a_batch = a.size() > 2 ? a.first(a.size() - 2) : Dims();
  const Dims b_batch = b.size() > 2 ? b.first(b.size() - 2) : Dims();
  if (b_batch.empty() && !a_batch.empty()) {
    // One matrix for all rows: torch folds the batch into M.
    const std::optional<int64_t> rows = product(a.first(a.size() - 1));
    if (!rows) return std::nullopt;
    shape.m = *rows;
    return shape;
  }
  const std::optional<int64_t> batch = broadcast_batch(a_batch, b_batch);
  if (!batch) return std::nullopt;
  shape.batch = *batch;
  return shape;
}

}  // namespace

bool is_gemm_op(std::string_view op) { return find_op(op) != nullptr; }

bool hides_gemms(std::string_view op) {
  return contains(op, "convolution") || contains(op, "::conv") ||
         contains(op, "ConvolutionBackward") || contains(op, "_rnn") || contains(op, "lstm");
}

std::optional<GemmProblem> gemm_problem(std::string_view op, std::span<const OpInput> inputs) {
  const GemmOp* found = find_op(op);
  if (found == nullptr || inputs.size() < found->a + 2) return std::nullopt;
  const OpInput& a = inputs[found->a];
  const OpInput& b = inputs[found->a + 1];
  // Of a sparse operand most products are left out: sizes do not tell the FLOPs.
  if (a.is_list || b.is_list || has_sparse(inputs)) return std::nullopt;
  const std::optional<GemmShape> shape =
      found->form == Form::linear ? linear_shape(a.dims, b.dims) : matmul_shape(a.dims, b.dims);
  if (!shape || shape->m <= 0 || shape->n <= 0 || shape->k <= 0 || shape->batch <= 0)
    return std::nullopt;
  return GemmProblem{*shape, std::string(element_type(a.type)), std::string(element_type(b.type))};
}

std::optional<int64_t> element_bytes_x2(std::string_view type) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"f64", 16},  {"c64", 16},       {"c128", 32},      {"i64", 16}, {"f32", 8},
      {"tf32", 8},  {"i32", 8},        {"f16", 4},        {"bf16", 4}, {"e4m3", 2},
      {"e5m2", 2},  {"i8", 2},         {"u8", 2},         {"bool", 2}, {"e2m1", 1},
      {"mxfp4", 1}, {"mxfp8_e4m3", 2}, {"mxfp8_e5m2", 2}, {"nvfp4", 1}};
  for (const auto& [name, size] : kSizes)
    if (name == type) return size;
  return std::nullopt;
}

}  // namespace epilogue::trace
