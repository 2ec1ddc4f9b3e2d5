// SPDX-License-Identifier: Apache-2.0
// Findings of a snapshot: each where the snapshot shows it, with the numbers that show it, and a
// remedy.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "memory_snapshot/memory_report.h"

namespace epilogue::trace {
namespace {

namespace limits = snapshot_thresholds;

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

bool is_share(int64_t part, int64_t whole, double share) {
  return whole > 0 && static_cast<double>(part) >= share * static_cast<double>(whole) &&
         static_cast<double>(part) >= limits::kLeastBytes;
}

std::string percent(int64_t part, int64_t whole) {
  return whole > 0 ? fmt::format("{:.0f} %",
                                 100.0 * static_cast<double>(part) / static_cast<double>(whole))
                   : "-";
}

const SnapshotHolder* category_of(const DeviceMemoryReport& d, HolderCategory category) {
  for (const SnapshotHolder& h : d.by_category)
    if (h.label == kHolderCategoryNames[static_cast<size_t>(category)]) return &h;
  return nullptr;
}

class Finder {
 public:
  Finder(const MemoryReport& report, DeviceMemoryReport& device) : report_(report), d_(device) {}

  void run() {
    out_of_memory();
    leak();
    fragmentation();
    held_at_peak();
    rounding();
    empty_cache();
    cached();
    pending();
    private_pools();
    unknown();
  }

 private:
  void add(MemoryFinding finding) { d_.findings.push_back(std::move(finding)); }

  std::string switch_on() const {
    return report_.expandable
               ? "expandable_segments is on already: allocate large tensors first, or fewer sizes"
               : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, with which segments grow and "
                 "need not be in one piece";
  }

  void out_of_memory() {
    if (d_.ooms.empty()) return;
    const SnapshotOom& last = d_.ooms.back();
    const int64_t cached = std::max<int64_t>(0, last.reserved_bytes - last.allocated_bytes);
    const bool would_fit = cached + last.device_free_bytes >= last.asked_bytes;
    MemoryFinding f{
        .id = "out-of-memory",
        .severity = "error",
        .title = fmt::format("{} asked for {} and did not get it",
                             last.label.empty() ? "an allocation without frames" : last.label,
                             size_text(last.asked_bytes))};
    f.evidence.push_back(
        fmt::format("then {} were allocated and {} reserved; the device had {} free",
                    size_text(last.allocated_bytes), size_text(last.reserved_bytes),
                    size_text(last.device_free_bytes)));
    if (would_fit) {
      f.evidence.push_back(
          fmt::format("{} were reserved and not allocated: with what the device had free that is "
                      "enough, but not in one piece that this stream and pool may use",
                      size_text(cached)));
      f.remedy = switch_on();
    } else {
      f.evidence.push_back(
          fmt::format("even with every cached byte {} were missing",
                      size_text(last.asked_bytes - cached - last.device_free_bytes)));
      f.remedy = "less must be alive at the peak: the tables below say what is";
    }
    if (d_.ooms.size() > 1)
      f.evidence.push_back(fmt::format(
          "{} in all", counted(static_cast<int64_t>(d_.ooms.size()), "failure", "failures")));
    add(std::move(f));
  }

  void leak() {
    for (size_t i = 0; i < std::min<size_t>(d_.leaks.size(), 3); ++i) {
      const SnapshotLeak& l = d_.leaks[i];
      const bool has_steps = d_.steps_by != "eighths of the history";
      add({.id = "growth",
           .severity = has_steps ? "warning" : "info",
           .title = fmt::format("{} holds more after each {}: {} in all", l.label,
                                has_steps ? "step" : "part of the history", size_text(l.bytes)),
           .evidence = {fmt::format(
               "it grew in {} of {} and never fell, by {} each", l.steps,
               counted(static_cast<int64_t>(d_.steps.size()), has_steps ? "step" : "part",
                       has_steps ? "steps" : "parts"),
               size_text(static_cast<int64_t>(l.bytes_per_step)))},
           .remedy = "store numbers (loss.item(), tensor.detach().cpu()), not tensors that keep a "
                     "graph; bound lists and caches",
           .saving_bytes = l.bytes});
    }
  }

  void fragmentation() {
    if (!is_share(d_.inactive_split_bytes, d_.reserved_bytes, limits::kSplitShare) ||
        static_cast<double>(d_.inactive_split_bytes) < limits::kSplitBytes)
      return;
    add({.id = "fragmentation",
         .severity = "warning",
         .title = fmt::format("{} of reserved memory are free, but within segments that are in use",
                              size_text(d_.inactive_split_bytes)),
         .evidence = {fmt::format("{} of {} reserved, in {}; the largest is {}",
                                  percent(d_.inactive_split_bytes, d_.reserved_bytes),
                                  size_text(d_.reserved_bytes),
                                  counted(d_.free_blocks, "block", "blocks"),
                                  size_text(d_.largest_free_bytes)),
                      "empty_cache() cannot give them back: it frees whole segments"},
         .remedy = switch_on(),
         .saving_bytes = d_.inactive_split_bytes});
  }

  void held_at_peak() {
    const auto share = [&](HolderCategory category, double least) -> const SnapshotHolder* {
      const SnapshotHolder* h = category_of(d_, category);
      return h != nullptr && is_share(h->bytes, d_.peak_bytes, least) ? h : nullptr;
    };
    const auto of_peak = [&](const SnapshotHolder& h) {
      return fmt::format("{} in {}: {} of the peak", size_text(h.bytes),
                         counted(h.allocations, "allocation", "allocations"),
                         percent(h.bytes, d_.peak_bytes));
    };
    if (const SnapshotHolder* h = share(HolderCategory::activations, limits::kActivationShare))
      add({.id = "activations",
           .severity = "info",
           .title = fmt::format("activations that wait for backward are {} of the peak",
                                percent(h->bytes, d_.peak_bytes)),
           .evidence = {of_peak(*h)},
           .remedy = "activation checkpointing (torch.utils.checkpoint) of the modules that hold "
                     "most, or a smaller micro-batch",
           .saving_bytes = {}});
    if (const SnapshotHolder* h = share(HolderCategory::optimizer_state, limits::kOptimizerShare))
      add({.id = "optimizer-state",
           .severity = "info",
           .title = fmt::format("the optimizer's state is {} of the peak",
                                percent(h->bytes, d_.peak_bytes)),
           .evidence = {of_peak(*h), "in 8 bits it would take a quarter, if it is 32 bits now"},
           .remedy = "an optimizer with states in 8 bits (torchao, bitsandbytes), or states "
                     "sharded over ranks (FSDP, ZeRO)",
           .saving_bytes = h->bytes * 3 / 4});
    const int64_t kept = d_.kept_gradient_bytes;
    if (!is_share(kept, d_.peak_bytes, limits::kGradientShare)) return;
    add({.id = "gradients-kept",
         .severity = "warning",
         .title =
             fmt::format("gradients of an earlier step are alive at the peak: {}", size_text(kept)),
         .evidence = {fmt::format("{} of the peak; forward ran after backward made them",
                                  percent(kept, d_.peak_bytes))},
         .remedy = "optimizer.zero_grad(set_to_none=True) before forward; where gradients are "
                   "accumulated on purpose, this is their price",
         .saving_bytes = kept});
  }

  void rounding() {
    const int64_t lost = d_.allocated_bytes - d_.requested_bytes;
    if (!is_share(lost, d_.allocated_bytes, limits::kRoundingShare)) return;
    add({.id = "rounding",
         .severity = "info",
         .title = fmt::format("blocks are {} larger than what was asked for", size_text(lost)),
         .evidence = {fmt::format("{} allocated for {} requested: {} is rounding",
                                  size_text(d_.allocated_bytes), size_text(d_.requested_bytes),
                                  percent(lost, d_.allocated_bytes))},
         .remedy = "roundup_power2_divisions closer to the sizes that are asked for, or less of "
                   "it; max_split_size_mb splits large blocks",
         .saving_bytes = lost});
  }

  void empty_cache() {
    if (d_.empty_cache_calls < limits::kEmptyCacheCalls ||
        static_cast<double>(d_.retaken_bytes) < limits::kLeastBytes)
      return;
    add({.id = "empty-cache",
         .severity = "warning",
         .title = fmt::format("empty_cache() gave memory back {}, and segments of the same size "
                              "were taken again: {}",
                              counted(d_.empty_cache_calls, "time", "times"),
                              size_text(d_.retaken_bytes)),
         .evidence = {"each segment taken again is a cudaMalloc, and each given back a cudaFree, "
                      "which waits for the device"},
         .remedy = "leave empty_cache() out of the loop: the allocator reuses its cache, and "
                   "empties it before it fails",
         .saving_bytes = {}});
  }

  void cached() {
    if (!is_share(d_.releasable_bytes, d_.reserved_bytes, limits::kCachedShare)) return;
    add({.id = "cached",
         .severity = "info",
         .title =
             fmt::format("{} are reserved in segments without use", size_text(d_.releasable_bytes)),
         .evidence = {fmt::format(
             "{} of {} reserved: this process can reuse them, others on the device cannot",
             percent(d_.releasable_bytes, d_.reserved_bytes), size_text(d_.reserved_bytes))},
         .remedy = "one torch.cuda.empty_cache() behind the phase that needed them, if another "
                   "process needs the memory",
         .saving_bytes = d_.releasable_bytes});
  }

  void pending() {
    if (!is_share(d_.pending_bytes, d_.active_bytes, limits::kPendingShare)) return;
    add({.id = "pending-free",
         .severity = "info",
         .title =
             fmt::format("{} are freed, but wait for another stream", size_text(d_.pending_bytes)),
         .evidence = {fmt::format("{} of active memory",
                                  percent(d_.pending_bytes, d_.active_bytes))},
         .remedy = "record_stream() holds blocks until the stream has passed: free on the stream "
                   "that used the tensor, or wait for it earlier",
         .saving_bytes = d_.pending_bytes});
  }

  void private_pools() {
    int64_t reserved = 0, idle = 0, pools = 0;
    for (const SnapshotPool& p : d_.pools) {
      if (p.first == 0 && p.second == 0) continue;
      ++pools;
      reserved += p.reserved_bytes;
      idle += p.reserved_bytes - p.active_bytes;
    }
    if (!is_share(idle, d_.reserved_bytes, limits::kPoolIdleShare)) return;
    add({.id = "private-pools",
         .severity = "info",
         .title = fmt::format("{} hold {} that nobody else may use",
                              counted(pools, "private pool", "private pools"), size_text(idle)),
         .evidence = {fmt::format("{} reserved in pools of CUDA graphs or MemPools",
                                  size_text(reserved))},
         .remedy = "capture graphs with one shared pool (torch.cuda.graph(pool=...)), the largest "
                   "first; fewer captured sizes",
         .saving_bytes = idle});
  }

  void unknown() {
    const SnapshotHolder* h = category_of(d_, HolderCategory::unknown);
    if (h == nullptr || !is_share(h->bytes, d_.peak_bytes, limits::kUnknownShare)) return;
    std::vector<std::string> evidence;
    if (d_.before_bytes > 0)
      evidence.push_back(
          fmt::format("{} were allocated before the history begins", size_text(d_.before_bytes)));
    if (d_.no_frame_bytes > 0)
      evidence.push_back(fmt::format("{} have no frames", size_text(d_.no_frame_bytes)));
    if (evidence.empty())
      evidence.push_back("their frames are none of a module, of autograd or of an optimizer");
    add({.id = "unknown",
         .severity = "info",
         .title = fmt::format("for {} of the peak the snapshot does not say what it is",
                              percent(h->bytes, d_.peak_bytes)),
         .evidence = std::move(evidence),
         .remedy = "torch.cuda.memory._record_memory_history(stacks='all', max_entries=...) before "
                   "the model is made: backward's thread has frames of C++ alone",
         .saving_bytes = {}});
  }

  const MemoryReport& report_;
  DeviceMemoryReport& d_;
};

}  // namespace

void find_memory_findings(const MemorySnapshot&, const MemoryReport& report,
                          DeviceMemoryReport& device) {
  Finder(report, device).run();
}

}  // namespace epilogue::trace
