// SPDX-License-Identifier: Apache-2.0
// Replays the history of each device. Two passes: the first pairs allocations with frees and finds
// the peak, the second knows how long each lived, and so what it was.
#include "memory_snapshot/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/units.h"

namespace epilogue::trace {
namespace {

constexpr uint32_t kAlive = UINT32_MAX;
constexpr size_t kCurvePoints = 1000;
constexpr size_t kHistoryParts = 8;
constexpr size_t kMaxSteps = 100'000;
constexpr size_t kMaxPeakStacks = 1000;  // with their labels, which are long
constexpr size_t kMaxEndStacks = 10'000;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The part of a run that a stack belongs to; its rows in classify() are tried from the first on.
enum class Phase : uint8_t {
  none,
  workspace,
  accumulate,
  backward,
  optimizer_state,
  optimizer,
  parameters,
  forward
};

struct StackFacts {
  Phase phase = Phase::none;
  uint32_t label = 0;   // 0: no frames
  uint32_t module = 0;  // 0: none is visible
  bool is_zero_grad = false;
  bool is_empty_cache = false;
};

// Frames of the interpreter and the dispatcher, which _memory_viz leaves out too.
bool is_plumbing(std::string_view name, std::string_view file) {
  for (const char* part : {"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp",
                           "_start", "__libc_start_main", "PyEval_", "PyObject_", "PyFunction_"})
    if (has(name, part)) return true;
  for (const char* part : {"core/boxing", "/Register", "/Redispatch", "pythonrun.c",
                           "Modules/main.c", "Objects/call.c", "Objects/methodobject.c",
                           "pycore_ceval.h", "ceval.c", "cpython/abstract.h"})
    if (has(file, part)) return true;
  return false;
}

bool is_library(std::string_view file) {
  return has(file, "site-packages/") || has(file, "dist-packages/") || has(file, "/lib/python") ||
         has(file, "/torch/") || file.starts_with("<");
}

class Labels {
 public:
  explicit Labels(std::vector<std::string>& list) : list_(list) { id(""); }
  uint32_t id(const std::string& text) {
    const auto [found, is_new] = ids_.try_emplace(text, static_cast<uint32_t>(list_.size()));
    if (is_new) list_.push_back(text);
    return found->second;
  }

 private:
  std::vector<std::string>& list_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// Hostile names are as long as a file allows; what they mean stands in their ends.
constexpr size_t kNameBytes = 400;
constexpr size_t kLabelFrames = 200;
std::string_view name_of(const MemorySnapshot& s, const SnapshotFrame& frame) {
  return s.text(frame.name).substr(0, kNameBytes);
}
std::string_view file_of(const MemorySnapshot& s, const SnapshotFrame& frame) {
  const std::string_view file = s.text(frame.file);
  return file.substr(file.size() - std::min(file.size(), kNameBytes));
}

struct FrameFacts {
  bool is_known = false;
  bool is_own = false;  // of a file that is not a library's
  bool is_python = false;
  bool is_shown = false;      // no plumbing
  bool is_workspace = false;  // cuBLAS's, kept for good: whatever needs a product first makes it
  bool accumulates = false;
  bool is_backward = false;
  bool is_state = false;
  bool is_optimizer = false;
  bool is_zero_grad = false;
  bool is_empty_cache = false;
  bool moves = false;  // makes or moves parameters
  bool is_forward = false;
  uint32_t module = 0;  // the label of its nn.Module
};

// "Linear" of a forward frame: its class where the frame has it, else its place; "" of others.
std::string module_of(std::string_view name, std::string_view file, int32_t line) {
  constexpr std::string_view kProfiled = "nn.Module: ";
  constexpr std::string_view kForward = ".forward";
  if (name.starts_with(kProfiled)) return std::string(name.substr(kProfiled.size()));
  if (name.ends_with(kForward)) {
    name.remove_suffix(kForward.size());
    return std::string(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
  }
  if (name != "forward") return "";
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), line);
}

FrameFacts facts_of_frame(const MemorySnapshot& s, const SnapshotFrame& frame, Labels& modules) {
  const std::string_view name = name_of(s, frame);
  const std::string_view file = file_of(s, frame);
  const bool is_module_file = has(file, "torch/nn/modules/");
  const bool is_optimizer =
      has(file, "/optim/") || has(file, "/optimizers/") || has(name, "Optimizer.step");
  FrameFacts f{.is_known = true};
  f.is_python = file.ends_with(".py");
  f.is_own = f.is_python && !is_library(file);
  f.is_shown = !is_plumbing(name, file) && !has(name, "CachingAllocator::");
  f.is_workspace = has(name, "setWorkspaceForHandle") || has(name, "BlasLtWorkspace");
  f.accumulates = has(name, "AccumulateGrad");
  // Not all of torch::autograd: VariableType is in the stacks of forward too.
  f.is_backward = has(name, "torch::autograd::Engine") || has(name, "torch::autograd::Node") ||
                  has(name, "torch::autograd::generated::") || name == "backward" ||
                  name.ends_with(".backward") || has(name, "_engine_run_backward");
  f.is_zero_grad = has(name, "zero_grad");
  f.is_state = is_optimizer && (has(name, "_init_group") || has(name, "init_state"));
  f.is_optimizer = is_optimizer && !f.is_zero_grad;
  f.is_empty_cache = name == "empty_cache";
  f.moves =
      (is_module_file && (name == "_apply" || name.ends_with("._apply") || name == "__init__" ||
                          name.ends_with(".__init__") || has(name, "load_state_dict"))) ||
      has(name, "from_pretrained") || has(name, "reset_parameters");
  f.module = modules.id(module_of(name, file, frame.line));
  f.is_forward = f.module != 0 || has(name, "_call_impl");
  return f;
}

HolderCategory recorded_category(std::string_view name) {
  if (name == "parameter") return HolderCategory::parameters;
  if (name == "gradient") return HolderCategory::gradients;
  if (name == "optimizer_state") return HolderCategory::optimizer_state;
  if (name == "activation") return HolderCategory::activations;
  if (name == "input") return HolderCategory::inputs;
  if (name == "temporary" || name == "autograd_detail") return HolderCategory::temporary;
  return HolderCategory::unknown;
}

std::string stack_label(const MemorySnapshot& s, uint32_t stack) {
  std::string label;
  size_t shown = 0;
  const std::span<const uint32_t> frames = s.stack(stack);
  for (size_t i = frames.size(); i-- > 0;) {
    const SnapshotFrame& frame = s.frame(frames[i]);
    if (is_plumbing(name_of(s, frame), file_of(s, frame))) continue;
    if (++shown > kLabelFrames) return label + ";...";
    label += (label.empty() ? "" : ";") + frame_label(s, frame);
  }
  return label.empty() ? "<non-python>" : label;
}

void sort_holders(std::vector<SnapshotHolder>& holders) {
  std::erase_if(holders, [](const SnapshotHolder& h) { return h.allocations == 0; });
  std::stable_sort(holders.begin(), holders.end(),
                   [](const SnapshotHolder& a, const SnapshotHolder& b) {
                     return a.bytes != b.bytes ? a.bytes > b.bytes : a.label < b.label;
                   });
}

class Replay {
 public:
  Replay(const MemorySnapshot& snapshot, DeviceMemoryReport& out)
      : s_(snapshot),
        out_(out),
        labels_(out.labels),
        modules_(out.modules),
        frame_facts_(snapshot.frame_count()),
        facts_(snapshot.stack_count()),
        has_facts_(snapshot.stack_count()) {}

  void run() {
    for (const SnapshotTrace& trace : s_.traces)
      if (trace.device == out_.device)
        for (const auto& [first, count] : trace.ranges)
          for (uint32_t i = 0; i < count; ++i) rows_.push_back(first + i);
    add_end_state();
    if (rows_.empty() && out_.segments == 0) return;
    out_.events = static_cast<int64_t>(rows_.size());
    pair_events();
    add_blocks_of_before();
    find_marks();
    find_steps();
    categorise();
    find_peak();
    sum_at_peak();
    find_leaks();
    draw();
  }

 private:
  const SnapshotEvent& event(size_t at) const { return s_.event(rows_[at]); }

  const FrameFacts& frame_facts(uint32_t frame) {
    FrameFacts& facts = frame_facts_[frame];
    if (!facts.is_known) facts = facts_of_frame(s_, s_.frame(frame), modules_);
    return facts;
  }

  const StackFacts& facts(uint32_t stack) {
    if (!has_facts_[stack]) {
      facts_[stack] = facts_of_stack(s_.stack(stack));
      has_facts_[stack] = true;
    }
    return facts_[stack];
  }

  StackFacts facts_of_stack(std::span<const uint32_t> frames) {
    StackFacts facts;
    FrameFacts all;
    uint32_t own = 0, python = 0, any = 0;  // the innermost of each; frame 0 is none
    std::string path;                       // of modules, the outermost first
    size_t modules = 0;
    for (const uint32_t id : frames) {
      const FrameFacts& f = frame_facts(id);
      if (own == 0 && f.is_own) own = id;
      if (python == 0 && f.is_python) python = id;
      if (any == 0 && f.is_shown) any = id;
      all.is_workspace |= f.is_workspace;
      all.accumulates |= f.accumulates;
      all.is_backward |= f.is_backward;
      all.is_state |= f.is_state;
      all.is_optimizer |= f.is_optimizer;
      all.moves |= f.moves;
      all.is_forward |= f.is_forward;
      facts.is_zero_grad |= f.is_zero_grad;
      facts.is_empty_cache |= f.is_empty_cache;
      if (f.module != 0 && ++modules <= kLabelFrames)
        path.insert(0, out_.modules[f.module] + (path.empty() ? "" : " > "));
    }
    facts.phase = all.is_workspace   ? Phase::workspace
                  : all.accumulates  ? Phase::accumulate
                  : all.is_backward  ? Phase::backward
                  : all.is_state     ? Phase::optimizer_state
                  : all.is_optimizer ? Phase::optimizer
                  : all.moves        ? Phase::parameters
                  : all.is_forward   ? Phase::forward
                                     : Phase::none;
    const uint32_t shown = own != 0 ? own : python != 0 ? python : any;
    if (shown != 0) facts.label = labels_.id(frame_label(s_, s_.frame(shown)));
    facts.module = modules_.id(path);
    return facts;
  }

  void add_end_state() {
    std::map<uint16_t, SnapshotPool> pools;
    std::map<uint32_t, SnapshotHolder> by_stack;
    for (const SnapshotSegment& segment : s_.segments) {
      if (segment.device != out_.device) continue;
      ++out_.segments;
      out_.reserved_bytes += segment.bytes;
      int64_t active = 0, inactive = 0;
      for (uint32_t b = 0; b < segment.blocks; ++b) {
        const SnapshotBlock& block = s_.blocks[segment.first_block + b];
        if (block.state == BlockState::inactive) {
          inactive += block.bytes;
          ++out_.free_blocks;
          out_.largest_free_bytes = std::max(out_.largest_free_bytes, block.bytes);
          continue;
        }
        active += block.bytes;
        if (block.state == BlockState::pending_free) {
          out_.pending_bytes += block.bytes;
          continue;
        }
        out_.allocated_bytes += block.bytes;
        out_.requested_bytes += block.requested_bytes;
        SnapshotHolder& holder = by_stack[block.stack];
        holder.bytes += block.requested_bytes;
        ++holder.allocations;
      }
      out_.active_bytes += active;
      if (active > 0) out_.inactive_split_bytes += inactive;
      SnapshotPool& pool = pools[segment.pool];
      std::tie(pool.first, pool.second) = s_.pools[segment.pool];
      const bool is_private = pool.first != 0 || pool.second != 0;
      if (active == 0 && !is_private) out_.releasable_bytes += inactive;
      ++pool.segments;
      pool.reserved_bytes += segment.bytes;
      pool.active_bytes += active;
    }
    for (const auto& [id, pool] : pools) out_.pools.push_back(pool);
    std::vector<std::pair<uint32_t, SnapshotHolder>> stacks(by_stack.begin(), by_stack.end());
    out_.at_end_by_stack = labelled(std::move(stacks), kMaxEndStacks);
  }

  // The largest by their stacks' labels; stacks of one label are one.
  std::vector<SnapshotHolder> labelled(std::vector<std::pair<uint32_t, SnapshotHolder>> stacks,
                                       size_t most) const {
    std::stable_sort(stacks.begin(), stacks.end(),
                     [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    if (stacks.size() > most) stacks.resize(most);
    std::map<std::string, SnapshotHolder> by_label;
    for (const auto& [stack, holder] : stacks) {
      SnapshotHolder& sum = by_label[stack_label(s_, stack)];
      sum.bytes += holder.bytes;
      sum.allocations += holder.allocations;
    }
    std::vector<SnapshotHolder> list;
    for (auto& [label, holder] : by_label) {
      holder.label = label;
      list.push_back(holder);
    }
    sort_holders(list);
    return list;
  }

  // Pairs allocations with frees by address. Frees of what was allocated before the history make an
  // allocation that began before it, without frames: the free's frames say nothing of who
  // allocated.
  void pair_events() {
    bool completes = false;
    for (size_t i = 0; i < rows_.size() && !completes; ++i)
      completes = event(i).action == SnapshotAction::free_completed;
    const SnapshotAction ends =
        completes ? SnapshotAction::free_completed : SnapshotAction::free_requested;
    std::unordered_map<uint64_t, uint32_t> segment_at;
    std::set<uint64_t> given_back;
    bool was_empty_cache = false;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SnapshotEvent& e = event(i);
      const auto place = static_cast<uint32_t>(i) + 1;
      if (e.time_us != 0) {
        if (!out_.has_times) out_.first_us = e.time_us;
        out_.has_times = true;
        out_.span_us = std::max(out_.span_us, e.time_us - out_.first_us);
      }
      if (e.stack != 0) out_.has_frames = true;
      const bool is_empty_cache = e.stack != 0 && facts(e.stack).is_empty_cache;
      switch (e.action) {
        case SnapshotAction::alloc: {
          const auto id = static_cast<uint32_t>(out_.allocations.size());
          out_.allocations.push_back({.address = e.address,
                                      .bytes = e.bytes,
                                      .stack = e.stack,
                                      .begin = place,
                                      .metadata = e.metadata});
          if (e.category != 0)
            out_.allocations.back().category = recorded_category(s_.categories[e.category]);
          has_recorded_category_ = has_recorded_category_ || e.category != 0;
          // The free of what was there before was not recorded: it is over now.
          const auto [there, is_new] = open_.try_emplace(e.address, id);
          if (!is_new) out_.allocations[std::exchange(there->second, id)].end = place;
          break;
        }
        case SnapshotAction::free_requested:
          if (const auto found = open_.find(e.address);
              found != open_.end() && e.stack != 0 && facts(e.stack).is_zero_grad)
            freed_by_zero_grad_.insert(found->second);
          break;
        case SnapshotAction::segment_alloc:
        case SnapshotAction::segment_map:
          if (given_back.contains(static_cast<uint64_t>(e.bytes))) out_.retaken_bytes += e.bytes;
          segment_at[e.address] = static_cast<uint32_t>(out_.segment_lives.size());
          out_.segment_lives.push_back({e.address, e.bytes, place, kAlive});
          break;
        case SnapshotAction::segment_free:
        case SnapshotAction::segment_unmap:
          if (is_empty_cache) given_back.insert(static_cast<uint64_t>(e.bytes));
          if (is_empty_cache && !was_empty_cache) ++out_.empty_cache_calls;
          if (const auto found = segment_at.find(e.address);
              found != segment_at.end() && out_.segment_lives[found->second].bytes == e.bytes) {
            out_.segment_lives[found->second].end = place;
            segment_at.erase(found);
          } else {
            out_.segment_lives.push_back({e.address, e.bytes, 0, place});
          }
          break;
        default: break;
      }
      was_empty_cache = is_empty_cache;
      if (e.action != ends) continue;
      const auto found = open_.find(e.address);
      if (found != open_.end()) {
        out_.allocations[found->second].end = place;
        open_.erase(found);
      } else {
        ++out_.unmatched_frees;
        out_.allocations.push_back({.address = e.address, .bytes = e.bytes, .end = place});
      }
    }
  }

  // Blocks in use at the end that no event allocated.
  void add_blocks_of_before() {
    std::set<uint64_t> known_segments;
    for (const SnapshotSegmentLife& life : out_.segment_lives)
      if (life.end == kAlive) known_segments.insert(life.address);
    for (const SnapshotSegment& segment : s_.segments) {
      if (segment.device != out_.device) continue;
      if (!known_segments.contains(segment.address))
        out_.segment_lives.push_back({segment.address, segment.bytes, 0, kAlive});
      for (uint32_t b = 0; b < segment.blocks; ++b) {
        const SnapshotBlock& block = s_.blocks[segment.first_block + b];
        if (block.state == BlockState::inactive) continue;
        if (const auto found = open_.find(block.address); found != open_.end()) continue;
        out_.allocations.push_back(
            {.address = block.address, .bytes = block.requested_bytes, .stack = block.stack});
        out_.has_frames = out_.has_frames || block.stack != 0;
      }
    }
    for (SnapshotAllocation& a : out_.allocations)
      if (a.begin == SnapshotAllocation::kBefore) out_.before_bytes += a.bytes;
  }

  // Where backward and the optimizer were at work.
  void find_marks() {
    bool was_optimizer = false;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SnapshotEvent& e = event(i);
      if (e.stack == 0 || e.action != SnapshotAction::alloc) continue;
      const auto place = static_cast<uint32_t>(i) + 1;
      const Phase phase = facts(e.stack).phase;
      const bool is_optimizer = phase == Phase::optimizer || phase == Phase::optimizer_state;
      if (phase == Phase::backward || phase == Phase::accumulate) backward_at_.push_back(place);
      if (phase == Phase::forward) forward_at_.push_back(place);
      if (is_optimizer) optimizer_at_.push_back(place);
      if (was_optimizer && !is_optimizer) optimizer_ends_.push_back(place);
      was_optimizer = is_optimizer;
    }
  }

  void find_steps() {
    const auto last = static_cast<uint32_t>(rows_.size()) + 1;
    std::vector<std::pair<uint32_t, std::string>> begins;
    if (out_.has_times)
      for (const SnapshotAnnotation& a : s_.annotations) {
        if (!a.is_start || a.device != out_.device || !s_.text(a.name).starts_with("ProfilerStep#"))
          continue;
        const auto at = std::partition_point(rows_.begin(), rows_.end(), [&](uint32_t row) {
          return s_.event(row).time_us != 0 && s_.event(row).time_us < a.time_us;
        });
        begins.emplace_back(static_cast<uint32_t>(at - rows_.begin()) + 1,
                            std::string(s_.text(a.name)));
      }
    std::sort(begins.begin(), begins.end());
    if (begins.size() >= 2) {
      out_.steps_by = "ProfilerStep";
    } else if (optimizer_ends_.size() >= 2) {
      out_.steps_by = "optimizer steps";
      begins = {{1, "step 0"}};
      for (const uint32_t end : optimizer_ends_)
        begins.emplace_back(end, fmt::format("step {}", begins.size()));
    } else if (rows_.size() >= 8 * kHistoryParts) {
      out_.steps_by = "eighths of the history";
      begins.clear();
      for (size_t i = 0; i < kHistoryParts; ++i)
        begins.emplace_back(static_cast<uint32_t>(rows_.size() * i / kHistoryParts) + 1,
                            fmt::format("part {}", i + 1));
    }
    if (begins.size() > kMaxSteps) begins.resize(kMaxSteps);
    for (const auto& [at, name] : begins) {
      step_begins_.push_back(at);
      out_.steps.push_back({.name = name});
    }
    if (!step_begins_.empty()) step_begins_.push_back(last);
  }

  static bool any_between(const std::vector<uint32_t>& marks, uint32_t begin, uint32_t end) {
    const auto at = std::upper_bound(marks.begin(), marks.end(), begin);
    return at != marks.end() && *at < end;
  }

  void categorise() {
    for (size_t i = 0; i < out_.allocations.size(); ++i) {
      SnapshotAllocation& a = out_.allocations[i];
      const StackFacts& f = facts(a.stack);
      a.label = f.label;
      a.module = f.module;
      if (has_recorded_category_) continue;
      const bool outlives_optimizer = a.end == kAlive || any_between(optimizer_at_, a.begin, a.end);
      switch (f.phase) {
        case Phase::workspace: a.category = HolderCategory::workspaces; break;
        case Phase::accumulate: a.category = HolderCategory::gradients; break;
        case Phase::backward:
          a.category = outlives_optimizer || freed_by_zero_grad_.contains(static_cast<uint32_t>(i))
                           ? HolderCategory::gradients
                           : HolderCategory::temporary;
          break;
        case Phase::optimizer_state: a.category = HolderCategory::optimizer_state; break;
        case Phase::optimizer:
          a.category =
              a.end == kAlive ? HolderCategory::optimizer_state : HolderCategory::temporary;
          break;
        case Phase::parameters: a.category = HolderCategory::parameters; break;
        case Phase::forward:
          // Backward needs what still lives when it begins; the rest of forward is gone by then.
          a.category = a.end == kAlive || any_between(backward_at_, a.begin, a.end)
                           ? HolderCategory::activations
                           : HolderCategory::temporary;
          break;
        case Phase::none: a.category = HolderCategory::unknown; break;
      }
    }
  }

  // Calls visit(place, allocated, reserved) behind each place of the history, from 0: its
  // beginning.
  template <class Visit>
  void over_time(const Visit& visit) {
    const size_t places = rows_.size() + 1;
    std::vector<int64_t> allocated(places), reserved(places);
    for (const SnapshotAllocation& a : out_.allocations) {
      allocated[a.begin] += a.bytes;
      if (a.end != kAlive) allocated[a.end] -= a.bytes;
    }
    int64_t net = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SnapshotEvent& e = event(i);
      const bool grows =
          e.action == SnapshotAction::segment_alloc || e.action == SnapshotAction::segment_map;
      const bool shrinks =
          e.action == SnapshotAction::segment_free || e.action == SnapshotAction::segment_unmap;
      if (grows) reserved[i + 1] = e.bytes;
      if (shrinks) reserved[i + 1] = -e.bytes;
      net += reserved[i + 1];
    }
    reserved[0] = std::max<int64_t>(0, out_.reserved_bytes - net);
    int64_t held = 0, taken = 0;
    for (size_t i = 0; i < places; ++i)
      visit(static_cast<uint32_t>(i), held += allocated[i], taken += reserved[i]);
  }

  int64_t time_at(uint32_t place) const {
    if (!out_.has_times) return place;
    return place == 0 ? 0 : std::max<int64_t>(0, event(place - 1).time_us - out_.first_us);
  }

  void find_peak() {
    out_.peak_bytes = -1;
    size_t step = 0;
    over_time([&](uint32_t place, int64_t allocated, int64_t reserved) {
      if (allocated > out_.peak_bytes) {
        out_.peak_bytes = allocated;
        out_.peak_at = place;
      }
      out_.peak_reserved_bytes = std::max(out_.peak_reserved_bytes, reserved);
      while (step < out_.steps.size() && place >= step_begins_[step + 1]) ++step;
      if (step < out_.steps.size() && place >= step_begins_[step]) {
        out_.steps[step].peak_bytes = std::max(out_.steps[step].peak_bytes, allocated);
        out_.steps[step].end_bytes = allocated;
      }
      if (place > 0 && event(place - 1).action == SnapshotAction::oom)
        add_oom(event(place - 1), allocated, reserved);
    });
    out_.peak_us = time_at(out_.peak_at);
  }

  void add_oom(const SnapshotEvent& e, int64_t allocated, int64_t reserved) {
    const StackFacts f = facts(e.stack);
    out_.ooms.push_back({.time_us = out_.has_times ? e.time_us - out_.first_us : 0,
                         .asked_bytes = e.bytes,
                         .device_free_bytes = static_cast<int64_t>(e.address),
                         .allocated_bytes = allocated,
                         .reserved_bytes = reserved,
                         .label = out_.labels[f.label],
                         .module = out_.modules[f.module]});
  }

  void sum_at_peak() {
    const auto add = [](std::vector<SnapshotHolder>& list, size_t id, const SnapshotAllocation& a) {
      if (list.size() <= id) list.resize(id + 1);
      list[id].bytes += a.bytes;
      ++list[id].allocations;
    };
    std::map<uint32_t, SnapshotHolder> stacks;
    std::vector<SnapshotHolder> metadata;
    std::map<uint32_t, size_t> metadata_ids;
    out_.by_category.resize(kHolderCategories);
    for (const SnapshotAllocation& a : out_.allocations) {
      if (a.begin > out_.peak_at || a.end <= out_.peak_at) continue;
      ++out_.alive_at_peak;
      add(out_.by_frame, a.label, a);
      add(out_.by_module, a.module, a);
      add(out_.by_category, static_cast<size_t>(a.category), a);
      SnapshotHolder& stack = stacks[a.stack];
      stack.bytes += a.bytes;
      ++stack.allocations;
      if (a.category == HolderCategory::gradients &&
          any_between(forward_at_, a.begin, out_.peak_at))
        out_.kept_gradient_bytes += a.bytes;
      if (a.metadata != 0) {
        const size_t id = metadata_ids.try_emplace(a.metadata, metadata_ids.size()).first->second;
        add(metadata, id, a);
        metadata[id].label = s_.text(a.metadata);
      }
    }
    for (size_t i = 0; i < out_.by_frame.size(); ++i)
      out_.by_frame[i].label = i == 0 ? "(no frames)" : out_.labels[i];
    for (size_t i = 0; i < out_.by_module.size(); ++i)
      out_.by_module[i].label = i == 0 ? "(no module in the frames)" : out_.modules[i];
    for (size_t i = 0; i < kHolderCategories; ++i)
      out_.by_category[i].label = kHolderCategoryNames[i];
    if (!out_.by_frame.empty()) out_.no_frame_bytes = out_.by_frame[0].bytes;
    if (!out_.by_module.empty()) out_.no_module_bytes = out_.by_module[0].bytes;
    out_.by_stack = labelled({stacks.begin(), stacks.end()}, kMaxPeakStacks);
    if (metadata.size() > 1 || (metadata.size() == 1 && metadata[0].label != "N/A"))
      out_.by_metadata = std::move(metadata);
    for (auto* list : {&out_.by_frame, &out_.by_module, &out_.by_category, &out_.by_metadata})
      sort_holders(*list);
  }

  // A frame leaks if what it holds at the ends of steps grows and never falls, behind the first
  // step, in which states and caches are made.
  void find_leaks() {
    using namespace snapshot_thresholds;
    const size_t steps = out_.steps.size();
    if (steps < static_cast<size_t>(kLeakSteps) + 1) return;
    const auto step_of = [&](uint32_t place) {
      return static_cast<size_t>(std::upper_bound(step_begins_.begin(), step_begins_.end(), place) -
                                 step_begins_.begin());
    };
    std::map<std::pair<uint32_t, size_t>, int64_t>
        deltas;  // by label and step; step 0 is what came before
    for (const SnapshotAllocation& a : out_.allocations) {
      if (a.label == 0) continue;
      const size_t begin = a.begin == SnapshotAllocation::kBefore ? 0 : step_of(a.begin);
      const size_t end = a.end == kAlive ? steps + 1 : step_of(a.end);
      if (begin == end) continue;
      deltas[{a.label, begin}] += a.bytes;
      if (end <= steps) deltas[{a.label, end}] -= a.bytes;
    }
    for (auto at = deltas.begin(); at != deltas.end();) {
      const uint32_t label = at->first.first;
      int64_t growth = 0, grown = 0;
      bool falls = false;
      for (; at != deltas.end() && at->first.first == label; ++at) {
        if (at->first.second < 2 || at->first.second > steps)
          continue;  // the first step, and before
        growth += at->second;
        grown += at->second > 0 ? 1 : 0;
        falls = falls || at->second < 0;
      }
      // The last step may be cut short: one without growth is allowed.
      if (falls || grown < kLeakSteps || grown + 2 < static_cast<int64_t>(steps) ||
          static_cast<double>(growth) < kLeakBytes)
        continue;
      out_.leaks.push_back({out_.labels[label], growth, grown,
                            static_cast<double>(growth) / static_cast<double>(grown)});
    }
    std::stable_sort(out_.leaks.begin(), out_.leaks.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }

  // The curve has one point for each bucket of places: the largest value in it.
  void draw() {
    const size_t places = rows_.size() + 1;
    const size_t buckets = std::min(places, kCurvePoints);
    const auto bucket_of = [&](uint32_t place) {
      return static_cast<size_t>(uint64_t{place} * buckets / places);
    };
    out_.curve.resize(buckets);
    over_time([&](uint32_t place, int64_t allocated, int64_t reserved) {
      SnapshotPoint& point = out_.curve[bucket_of(place)];
      if (allocated >= point.allocated_bytes)
        point = {time_at(place), allocated, std::max(reserved, point.reserved_bytes), {}};
      point.reserved_bytes = std::max(point.reserved_bytes, reserved);
    });
    std::vector<std::array<int64_t, kHolderCategories>> deltas(buckets + 1);
    for (const SnapshotAllocation& a : out_.allocations) {
      const auto category = static_cast<size_t>(a.category);
      deltas[bucket_of(a.begin)][category] += a.bytes;
      if (a.end != kAlive) deltas[bucket_of(a.end)][category] -= a.bytes;
    }
    std::array<int64_t, kHolderCategories> sums{};
    for (size_t i = 0; i < buckets; ++i) {
      for (size_t c = 0; c < kHolderCategories; ++c) sums[c] += deltas[i][c];
      out_.curve[i].categories = sums;
    }
  }

  const MemorySnapshot& s_;
  DeviceMemoryReport& out_;
  Labels labels_;
  Labels modules_;
  std::vector<FrameFacts> frame_facts_;
  std::vector<StackFacts> facts_;
  std::vector<bool> has_facts_;
  std::vector<uint32_t> rows_;
  std::unordered_map<uint64_t, uint32_t> open_;
  std::set<uint32_t> freed_by_zero_grad_;
  bool has_recorded_category_ = false;
  std::vector<uint32_t> backward_at_, forward_at_, optimizer_at_, optimizer_ends_;
  std::vector<uint32_t> step_begins_;
};

}  // namespace

std::string frame_label(const MemorySnapshot& snapshot, const SnapshotFrame& frame) {
  std::string_view file = file_of(snapshot, frame);
  file = file.substr(file.rfind('/') + 1);
  return fmt::format("{}:{}:{}", file, frame.line, name_of(snapshot, frame));
}

MemoryReport memory_report(const MemorySnapshot& snapshot) {
  MemoryReport report{.path = snapshot.path,
                      .file_bytes = snapshot.file_bytes,
                      .frames = snapshot.frame_count() - 1,
                      .stacks = snapshot.stack_count() - 1,
                      .settings = snapshot.settings};
  for (const auto& [key, value] : snapshot.settings)
    report.expandable = report.expandable || (key == "expandable_segments" && value == "True");
  std::set<int32_t> devices;
  for (const SnapshotTrace& trace : snapshot.traces) devices.insert(trace.device);
  for (const SnapshotSegment& segment : snapshot.segments) devices.insert(segment.device);
  for (const int32_t device : devices) {
    report.devices.push_back({.device = device});
    Replay(snapshot, report.devices.back()).run();
  }
  for (DeviceMemoryReport& device : report.devices) find_memory_findings(snapshot, report, device);
  if (snapshot.traces.empty())
    report.notes.push_back(
        "The snapshot has no history: torch.cuda.memory._record_memory_history() must be called "
        "before the run. The end state takes the place of the peak.");
  if (snapshot.skipped_entries > 0)
    report.notes.push_back(
        fmt::format("{} of lists are neither events, segments nor blocks, and were left out.",
                    counted(snapshot.skipped_entries, "entry", "entries")));
  return report;
}

std::vector<DeviceMemoryDiff> memory_diff(const MemorySnapshot& before,
                                          const MemoryReport& before_report,
                                          const MemorySnapshot& after,
                                          const MemoryReport& after_report) {
  static const DeviceMemoryReport kNothing{};
  const auto find = [](const MemoryReport& report, int32_t device) -> const DeviceMemoryReport& {
    for (const DeviceMemoryReport& d : report.devices)
      if (d.device == device) return d;
    return kNothing;
  };
  const auto changes = [](const std::vector<SnapshotHolder>& a,
                          const std::vector<SnapshotHolder>& b) {
    std::map<std::string, MemoryChange> sums;
    for (const SnapshotHolder& h : a) sums[h.label].before += h.bytes;
    for (const SnapshotHolder& h : b) sums[h.label].after += h.bytes;
    std::vector<MemoryChange> list;
    for (auto& [label, change] : sums) {
      change.label = label;
      if (change.before != change.after) list.push_back(change);
    }
    std::stable_sort(list.begin(), list.end(), [](const MemoryChange& x, const MemoryChange& y) {
      return std::abs(x.after - x.before) > std::abs(y.after - y.before);
    });
    return list;
  };
  std::set<int32_t> devices;
  for (const MemoryReport* report : {&before_report, &after_report})
    for (const DeviceMemoryReport& d : report->devices) devices.insert(d.device);
  std::vector<DeviceMemoryDiff> diffs;
  for (const int32_t device : devices) {
    const DeviceMemoryReport& a = find(before_report, device);
    const DeviceMemoryReport& b = find(after_report, device);
    DeviceMemoryDiff diff{.device = device};
    diff.totals = {{"peak allocated", a.peak_bytes, b.peak_bytes},
                   {"peak reserved", a.peak_reserved_bytes, b.peak_reserved_bytes},
                   {"reserved at the end", a.reserved_bytes, b.reserved_bytes},
                   {"allocated at the end", a.allocated_bytes, b.allocated_bytes},
                   {"free within segments in use", a.inactive_split_bytes, b.inactive_split_bytes},
                   {"segments without use", a.releasable_bytes, b.releasable_bytes},
                   {"largest free block", a.largest_free_bytes, b.largest_free_bytes}};
    diff.by_category = changes(a.by_category, b.by_category);
    diff.by_frame = changes(a.by_frame, b.by_frame);
    diff.by_frame_end = changes(a.at_end_by_stack, b.at_end_by_stack);
    std::set<std::pair<uint64_t, int64_t>> in_a, in_b;
    for (const SnapshotSegment& s : before.segments)
      if (s.device == device) in_a.emplace(s.address, s.bytes);
    for (const SnapshotSegment& s : after.segments)
      if (s.device == device) in_b.emplace(s.address, s.bytes);
    for (const auto& s : in_a) diff.segments_only_before += in_b.contains(s) ? 0 : 1;
    for (const auto& s : in_b) diff.segments_only_after += in_a.contains(s) ? 0 : 1;
    diffs.push_back(std::move(diff));
  }
  return diffs;
}

}  // namespace epilogue::trace
