// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/fusion.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/units.h"
#include "explain/fusion/fusion_groups.h"
#include "explain/fusion/fusion_model.h"
#include "explain/fusion/row_chains.h"

namespace epilogue::trace {
namespace {

std::string shape_text(const TensorShape* shape) {
  if (shape == nullptr) return "";
  std::string text = "[";
  for (size_t i = 0; i < shape->dims.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shape->dims[i]);
  return text + "] " + std::string(shape->type);
}

// A saving below both, a share of the ops' own time and a time over all occurrences, is
// nothing to act on.
constexpr double kMinSavingShare = 0.01;
constexpr double kMinSavingUs = 1;

// A row chain is listed even if it loses: compile() does not help there.
bool is_worth_telling(const Fusion& f) {
  return f.kind == FusionKind::row_chain ||
         (f.predicted_saving_us > 0 &&
          f.predicted_saving_us >= std::min(kMinSavingUs, kMinSavingShare * f.time_us));
}

// One occurrence of a pattern.
struct Found {
  FusionKind kind;
  std::vector<uint32_t> ops;  // ascending
  uint32_t result;            // whose shape names it
  Prediction prediction;
  Confidence confidence;
  std::string assumption;
};

class Finder {
 public:
  Finder(const Trace& trace, const Links& links, const FusionOptions& options)
      : trace_(trace),
        options_(options),
        work_(work_ops(trace, links)),
        patterns_(find_patterns(trace, work_)),
        flow_(infer_dataflow(trace, work_)),
        model_(trace, work_, options) {}

  FusionFindings run() {
    for (const FusionGroup& group : chain_groups(trace_, work_, flow_)) add_group(group);
    for (const std::vector<uint32_t>& gemms : mergeable_gemms(trace_, work_, flow_))
      add_merged(gemms);
    if (work_.is_synchronous && work_.has_shapes) add_row_chains();
    FusionFindings findings;
    findings.bandwidth_gb_per_s = model_.bandwidth_gb_per_s();
    findings.has_shapes = work_.has_shapes;
    findings.patterns = std::move(patterns_);
    for (auto& [key, fusion] : by_pattern_)
      if (is_worth_telling(fusion)) findings.fusions.push_back(std::move(fusion));
    std::stable_sort(findings.fusions.begin(), findings.fusions.end(),
                     [](const Fusion& a, const Fusion& b) {
                       return a.predicted_saving_us > b.predicted_saving_us;
                     });
    return findings;
  }

 private:
  void add_group(const FusionGroup& group) {
    const std::optional<GroupBytes> bytes = group_bytes(group, work_, flow_);
    if (group.members.size() > 1) {
      const Assumption a = assumption_of_chain(group, bytes.has_value());
      add({FusionKind::pointwise_chain, group.members, group.members.back(),
           model_.chain(group, bytes), a.confidence, std::string(a.text)});
    }
    if (group.products.empty() || !bytes) return;
    const std::string libraries = work_.has_device_work
                                      ? "(cuBLASLt, CUTLASS, max-autotune)"
                                      : "(oneDNN's post-ops, Inductor's C++ templates)";
    std::vector<uint32_t> ops = group.products;
    ops.insert(ops.end(), group.members.begin(), group.members.end());
    std::sort(ops.begin(), ops.end());
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    add({FusionKind::gemm_epilogue, std::move(ops), group.members.back(),
         model_.epilogue(group, *bytes), has_rows(group) ? Confidence::low : Confidence::medium,
         group.products.size() > 1
             ? "one of the GEMMs' kernels takes an epilogue " + libraries +
                   " that reads what the others wrote; on top of the chain's own saving"
             : "the GEMM's kernel takes an epilogue " + libraries +
                   "; on top of the chain's own saving"});
  }

  struct Assumption {
    Confidence confidence;
    std::string_view text;
  };

  Assumption assumption_of_chain(const FusionGroup& group, bool has_bytes) const {
    if (!has_bytes)
      return {
          Confidence::low,
          "each op reads what the one before it wrote, and the longest hides the others (shapes "
          "were not recorded, or do not tell the bytes)"};
    const auto copies = std::count_if(group.members.begin(), group.members.end(), [&](uint32_t i) {
      return work_.ops[i].op_class == OpClass::copy;
    });
    // Which of several like tensors a copy reads is a guess.
    if (copies > 1 && 2 * static_cast<size_t>(copies) >= group.members.size())
      return {Confidence::low,
              "each copy reads what the op before it wrote, and not another tensor of this size"};
    if (has_rows(group))
      return {Confidence::medium,
              "each op reads what the ones before it wrote; one kernel keeps whole rows"};
    return {Confidence::high, "each op reads what the ones before it wrote, and nobody else does"};
  }

  bool has_rows(const FusionGroup& group) const {
    return std::any_of(group.members.begin(), group.members.end(),
                       [&](uint32_t i) { return !is_elementwise(work_.ops[i].op_class); });
  }

  void add_merged(const std::vector<uint32_t>& gemms) {
    const WorkOp& first = work_.ops[gemms.front()];
    const size_t left = left_operand(trace_, first);
    const double read_again = static_cast<double>(first.inputs[left].bytes().value_or(0)) *
                              static_cast<double>(gemms.size() - 1);
    add({FusionKind::merged_gemms, gemms, gemms.front(), model_.merged(gemms, read_again),
         Confidence::medium,
         "the weights can be stored side by side; the shared input is read once"});
  }

  void add_row_chains() {
    const std::optional<ChainModel> chains = ChainModel::of(trace_);
    for (const RowChainGroup& group : row_chain_groups(trace_, work_, flow_)) {
      const std::optional<double> chain_ns =
          chains ? chains->time_ns(group.work) : std::optional<double>();
      const Prediction p = model_.row_chain(group, chain_ns);
      // With rates also what would be slower: that it is no gain is worth knowing.
      if (!chain_ns && p.device_saving_ns + p.host_saving_ns <= 0) continue;
      add({FusionKind::row_chain, group.members, group.members.back(), p,
           chain_ns ? Confidence::high : Confidence::low,
           chain_ns
               ? "compile() runs them depth first over blocks of rows, at the rates measured on "
                 "this machine; includes what the other findings save on these ops"
               : "compile() runs them depth first over blocks of rows, with products as fast as "
                 "now (profile --measure measures them); includes what the other findings save "
                 "on these ops"});
    }
  }

  void add(const Found& found) {
    Fusion& fusion = by_pattern_[key(found)];
    if (fusion.count == 0) {
      fusion.kind = found.kind;
      for (const uint32_t i : found.ops) fusion.ops.emplace_back(name(i));
      fusion.shape = shape_text(work_.ops[found.result].output);
      fusion.confidence = found.confidence;
      fusion.assumption = found.assumption;
    }
    ++fusion.count;
    for (const uint32_t i : found.ops) {
      add_kernel(fusion, work_.ops[i]);
      if (found.kind != FusionKind::gemm_epilogue || work_.ops[i].op_class != OpClass::gemm)
        fusion.op_us.try_emplace(std::string(name(i))).first->second +=
            static_cast<double>(work_.ops[i].device_ns) / kNsPerUs;
      if (work_.ops[i].is_in_pattern)
        fusion.pattern_us += static_cast<double>(work_.ops[i].device_ns) / kNsPerUs;
    }
    const Prediction& p = found.prediction;
    fusion.kernels_now += p.kernels_now;
    fusion.kernels_after += p.kernels_after;
    fusion.time_us += p.time_ns / kNsPerUs;
    fusion.bytes_now += p.bytes_now;
    fusion.bytes_after += p.bytes_after;
    fusion.device_saving_us += p.device_saving_ns / kNsPerUs;
    fusion.new_pages_us += p.new_pages_ns / kNsPerUs;
    fusion.host_saving_us += p.host_saving_ns / kNsPerUs;
    fusion.host_us += p.host_ns / kNsPerUs;
    // Where the launch is the kernel, host and device take turns: both count.
    const bool counts_host = work_.is_synchronous || options_.is_host_bound;
    const bool counts_device = work_.is_synchronous || !options_.is_host_bound;
    fusion.predicted_saving_us =
        (counts_host ? fusion.host_saving_us : 0) + (counts_device ? fusion.device_saving_us : 0);
    fusion.predicted_cost_us =
        (counts_host ? fusion.host_us : 0) + (counts_device ? fusion.time_us : 0);
  }

  void add_kernel(Fusion& fusion, const WorkOp& op) const {
    const std::string kernel(trace_.strings[op.kernel]);
    if (!kernel.empty() &&
        std::find(fusion.kernels.begin(), fusion.kernels.end(), kernel) == fusion.kernels.end())
      fusion.kernels.push_back(kernel);
  }

  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[work_.ops[i].event]); }

  // Same ops, same shapes. The kind comes first: chains before what builds on them.
  std::string key(const Found& found) const {
    std::string text(1, static_cast<char>('0' + static_cast<int>(found.kind)));
    for (const uint32_t i : found.ops) {
      text += name(i);
      text += shape_text(work_.ops[i].output) + ";";
    }
    return text;
  }

  const Trace& trace_;
  const FusionOptions& options_;
  WorkOps work_;
  std::vector<Pattern> patterns_;
  Dataflow flow_;
  FusionModel model_;
  std::map<std::string, Fusion> by_pattern_;
};

}  // namespace

std::string_view fusion_kind_name(FusionKind kind) {
  switch (kind) {
    case FusionKind::pointwise_chain: return "pointwise-chain";
    case FusionKind::gemm_epilogue: return "gemm-epilogue";
    case FusionKind::merged_gemms: return "merged-gemms";
    case FusionKind::row_chain: return "row-chain";
  }
  return "";
}

std::string_view confidence_name(Confidence confidence) {
  switch (confidence) {
    case Confidence::low: return "low";
    case Confidence::medium: return "medium";
    case Confidence::high: return "high";
  }
  return "";
}

FusionFindings find_fusions(const Trace& trace, const Links& links, const FusionOptions& options) {
  return Finder(trace, links, options).run();
}

namespace {

// Adds to a sum that is unknown as soon as one part is.
void add_known(int64_t& sum, int64_t part) { sum = sum < 0 || part < 0 ? -1 : sum + part; }

}  // namespace

std::vector<FusedKernel> fused_kernels(const Trace& trace) {
  std::map<std::pair<StringId, StringId>, FusedKernel> sums;
  for (const Event& e : trace.events) {
    if (e.category != Category::kernel) continue;
    const KernelArgs* args = trace.kernel_args(e);
    if (args == nullptr || args->fused_ops == 0) continue;
    FusedKernel& sum = sums[{e.name, args->fused_ops}];
    ++sum.count;
    sum.total_ns += e.dur_ns;
    add_known(sum.bytes, args->bytes);
    add_known(sum.unfused_bytes, args->unfused_bytes);
  }
  std::vector<FusedKernel> list;
  for (auto& [key, sum] : sums) {
    sum.kernel = trace.strings[key.first];
    for (const std::string_view op : fused_op_names(trace.strings[key.second]))
      sum.ops.emplace_back(op);
    list.push_back(std::move(sum));
  }
  std::stable_sort(list.begin(), list.end(), [](const FusedKernel& a, const FusedKernel& b) {
    return a.total_ns > b.total_ns;
  });
  return list;
}

std::vector<std::string_view> fused_op_names(std::string_view fused_ops) {
  constexpr std::string_view kSeparator = ", ";
  std::vector<std::string_view> names;
  while (!fused_ops.empty()) {
    const size_t end = std::min(fused_ops.find(kSeparator), fused_ops.size());
    names.push_back(fused_ops.substr(0, end));
    fused_ops.remove_prefix(std::min(end + kSeparator.size(), fused_ops.size()));
  }
  return names;
}

}  // namespace epilogue::trace
