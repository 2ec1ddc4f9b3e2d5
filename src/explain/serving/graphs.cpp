// SPDX-License-Identifier: Apache-2.0
// Kernels of replayed graphs: who captured them.
//
// A replay is one call of the host and hundreds of kernels that name no op. Three things tell where
// a kernel comes from: an annotation that PyTorch kept with the graph's node; the order of kernels
// of a run that launched the same kernels one by one; and, for want of better, the kernel's name.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "epilogue/trace/kernel_name.h"
#include "epilogue/trace/serving.h"
#include "explain/index/op_tree.h"
#include "trace/python_shapes.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFewestKernels = 8;  // a shorter order says nothing
constexpr double kSureMatch = 0.95;   // of a replay's kernels that match
constexpr double kLeastMatch = 0.7;
constexpr size_t kGram = 3;             // kernels that a place is looked for by
constexpr size_t kPlacesOfGram = 4096;  // a gram that stands more often says little
constexpr int64_t kMostEdits = 4096;    // bounds the memory of an alignment: 64 MiB

// Who launched a kernel. Empty texts are not known.
struct Origin {
  std::string op;
  std::string module;
  std::string frame;

  bool is_known() const { return !op.empty() || !module.empty() || !frame.empty(); }
  auto operator<=>(const Origin&) const = default;
};

// Distinct origins, once each. Number 0 is the unknown one.
class Origins {
 public:
  uint32_t number(Origin origin) {
    const auto [place, is_new] =
        numbers_.try_emplace(std::move(origin), static_cast<uint32_t>(list_.size()));
    if (is_new) list_.push_back(&place->first);
    return place->second;
  }
  const Origin& operator[](uint32_t number) const { return *list_[number]; }

  Origins() { number({}); }
  Origins(Origins&&) = default;
  Origins& operator=(Origins&&) = default;

 private:
  std::map<Origin, uint32_t> numbers_;
  std::vector<const Origin*> list_;
};

// Members of an annotation, by what they mean. mark_kernels("text") gives "name".
Origin origin_of_annotation(std::string_view other_args) {
  const auto json = parse_json(other_args);
  Origin origin;
  if (!json.is_object()) return origin;
  const auto text = [&](std::initializer_list<const char*> keys) -> std::string {
    for (const char* key : keys)
      if (const auto at = json.find(key); at != json.end() && at->is_string())
        return at->get<std::string>();
    return "";
  };
  origin.op = text({"name", "op", "Collective name"});
  origin.module = text({"module_fqn", "module", "fqn"});
  origin.frame = text({"stack", "frame", "file"});
  return origin;
}

// Is the frame the model's own code: neither a builtin nor PyTorch's.
bool is_users_frame(std::string_view name) {
  return name.find(".py(") != std::string_view::npos && !name.starts_with("torch/") &&
         name.find("/torch/") == std::string_view::npos && !name.starts_with("<");
}

// The innermost op, module and frame around a call of the host.
class Surroundings {
 public:
  Surroundings(const Trace& trace, const Links& links) : trace_(trace), links_(links) {
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category != Category::python_function) continue;
      const std::string_view name = trace.name(e);
      if (name.starts_with(kModulePrefix))
        modules_.push_back(i);
      else if (is_users_frame(name))
        frames_.push_back(i);
    }
    for (uint32_t i = 0; i < trace.frames.size(); ++i) {
      const std::string_view name = trace.strings[trace.frames[i].name];
      if (name.starts_with(kModulePrefix))
        modules_beside_.push_back(i);
      else if (is_users_frame(name))
        frames_beside_.push_back(i);
    }
  }

  std::vector<Origin> of(const std::vector<uint32_t>& calls) const {
    std::vector<Moment> moments;
    moments.reserve(calls.size());
    for (const uint32_t i : calls)
      moments.push_back(
          i == kNone ? Moment{-1, -1, -1}
                     : Moment{trace_.events[i].pid, trace_.events[i].tid, trace_.events[i].ts_ns});
    std::vector<Origin> origins(calls.size());
    for (size_t i = 0; i < calls.size(); ++i)
      if (calls[i] != kNone && links_.op[calls[i]] != kNone)
        origins[i].op = trace_.name(trace_.events[links_.op[calls[i]]]);
    const auto put = [&](const std::vector<uint32_t>& found, auto name,
                         std::string Origin::*field) {
      for (size_t i = 0; i < calls.size(); ++i)
        if (calls[i] != kNone && found[i] != kNone) origins[i].*field = name(found[i]);
    };
    const auto event = [&](uint32_t i) { return std::string(trace_.name(trace_.events[i])); };
    const auto beside = [&](uint32_t i) {
      return std::string(trace_.strings[trace_.frames[i].name]);
    };
    if (!modules_.empty()) put(innermost_at(trace_, modules_, moments), event, &Origin::module);
    if (!frames_.empty()) put(innermost_at(trace_, frames_, moments), event, &Origin::frame);
    if (!modules_beside_.empty())
      put(innermost_at(trace_.frames, modules_beside_, moments), beside, &Origin::module);
    if (!frames_beside_.empty())
      put(innermost_at(trace_.frames, frames_beside_, moments), beside, &Origin::frame);
    for (Origin& origin : origins)
      if (origin.module.starts_with(kModulePrefix)) origin.module.erase(0, kModulePrefix.size());
    return origins;
  }

 private:
  const Trace& trace_;
  const Links& links_;
  std::vector<uint32_t> modules_, frames_;                // events
  std::vector<uint32_t> modules_beside_, frames_beside_;  // Trace::frames
};

bool is_copy_or_fill_call(std::string_view name) {
  return name.find("Memcpy") != std::string_view::npos ||
         name.find("Memset") != std::string_view::npos;
}

// The name by which work is compared: copies and fills differ in words between a capture and a
// replay.
std::string_view compared_name(const Trace& trace, const Event& work) {
  if (work.category == Category::gpu_memcpy) return "copy";
  if (work.category == Category::gpu_memset) return "fill";
  return trace.name(work);
}

struct ReferenceWork {
  std::string_view name;  // "" is not known; of the trace's strings
  uint32_t origin = 0;
  uint32_t capture = 0;  // which capture the call stands in, from 1; 0: none
  uint32_t op = kNone;   // event of the op that launched it
};

std::vector<uint32_t> by_start(const Trace& trace, std::vector<uint32_t> events) {
  std::stable_sort(events.begin(), events.end(), [&](uint32_t a, uint32_t b) {
    return trace.events[a].ts_ns < trace.events[b].ts_ns;
  });
  return events;
}

// All that one thread after the other launched: work outside graphs by its launch, calls of a
// capture (they start no work) by themselves, and annotated work of graphs.
std::vector<ReferenceWork> reference_order(const Trace& trace, const Links& links,
                                           bool with_captures, Origins& origins) {
  struct Item {
    int64_t ts_ns;
    uint32_t call;
    std::string_view name;
    uint32_t origin = 0;
    uint32_t capture = 0;
  };
  std::vector<Item> items;
  std::vector<bool> has_work(trace.events.size());
  std::unordered_map<StringId, uint32_t> annotated;
  for (const uint32_t i : links.device_work) {
    const Event& work = trace.events[i];
    const uint32_t call = links.launch[i];
    if (call != kNone) has_work[call] = true;
    const KernelArgs* args = trace.kernel_args(work);
    if (args != nullptr && args->graph_node_id > 0 && args->other_args != 0) {
      auto [place, is_new] = annotated.try_emplace(args->other_args, 0);
      if (is_new)
        place->second = origins.number(origin_of_annotation(trace.strings[args->other_args]));
      if (with_captures && place->second != 0)
        items.push_back({work.ts_ns, kNone, compared_name(trace, work), place->second});
      continue;
    }
    if (call == kNone || is_graph_launch_name(trace.name(trace.events[call]))) continue;
    items.push_back({trace.events[call].ts_ns, call, compared_name(trace, work)});
  }
  if (with_captures) {
    std::vector<uint32_t> calls;
    for (uint32_t i = 0; i < trace.events.size(); ++i)
      if (is_launch_category(trace.events[i].category)) calls.push_back(i);
    uint32_t captures = 0;
    std::unordered_map<int64_t, uint32_t> open;  // by thread
    for (const uint32_t i : by_start(trace, std::move(calls))) {
      const Event& e = trace.events[i];
      const std::string_view name = trace.name(e);
      if (name.find("StreamBeginCapture") != std::string_view::npos) {
        open[e.tid] = ++captures;
      } else if (name.find("StreamEndCapture") != std::string_view::npos) {
        open.erase(e.tid);
      } else if (!has_work[i] && !is_graph_launch_name(name) &&
                 (is_kernel_launch_name(name) || is_copy_or_fill_call(name))) {
        const auto at = open.find(e.tid);
        const bool has_args = e.args != kNone && e.args < trace.runtime_calls.size();
        std::string_view kernel =
            has_args ? trace.strings[trace.runtime_calls[e.args].kernel_name] : std::string_view();
        if (is_copy_or_fill_call(name))
          kernel = name.find("Memset") != std::string_view::npos ? "fill" : "copy";
        if (at != open.end() || !kernel.empty())
          items.push_back({e.ts_ns, i, kernel, 0, at == open.end() ? 0 : at->second});
      }
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.ts_ns < b.ts_ns; });
  std::vector<uint32_t> calls;
  calls.reserve(items.size());
  for (const Item& item : items) calls.push_back(item.call);
  std::vector<Origin> around = Surroundings(trace, links).of(calls);
  std::vector<ReferenceWork> order;
  order.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i)
    order.push_back({items[i].name,
                     items[i].origin != 0 ? items[i].origin : origins.number(std::move(around[i])),
                     items[i].capture, items[i].call != kNone ? links.op[items[i].call] : kNone});
  return order;
}

}  // namespace

struct GraphReference::Contents {
  Origins origins;
  StringPool names;
  std::vector<StringId> order;    // name of each, 0: not known
  std::vector<uint32_t> origin;   // in origins
  std::vector<uint32_t> capture;  // from 1; 0: none
  std::vector<uint32_t> op;       // in ops; kNone: not known, or named by an annotation
  // Calls of ops that launched work, and of those around them. Texts are in `names`.
  struct Op {
    StringId name = 0;
    StringId shapes = 0;
    uint32_t parent = kNone;
  };
  std::vector<Op> ops;
};

namespace {

// The position in Contents::ops of an op of the trace, with those around it.
class ReferenceOps {
 public:
  ReferenceOps(const Trace& trace, const Links& links, GraphReference::Contents& contents)
      : trace_(trace), links_(links), contents_(contents) {}

  uint32_t position(uint32_t event) {
    if (event == kNone) return kNone;
    std::vector<uint32_t> unknown;  // from the innermost
    uint32_t around = kNone;
    for (uint32_t i = event; i != kNone; i = links_.parent[i]) {
      if (const auto found = position_.find(i); found != position_.end()) {
        around = found->second;
        break;
      }
      unknown.push_back(i);
    }
    for (const uint32_t i : std::views::reverse(unknown)) {
      contents_.ops.push_back({contents_.names.intern(trace_.name(trace_.events[i])),
                               contents_.names.intern(shapes(trace_.events[i])), around});
      around = static_cast<uint32_t>(contents_.ops.size() - 1);
      position_.emplace(i, around);
    }
    return around;
  }

 private:
  std::string shapes(const Event& e) const {
    const OpArgs* args = trace_.op_args(e);
    return args == nullptr || args->inputs >= trace_.inputs.size()
               ? ""
               : python_shapes(trace_.inputs[args->inputs]);
  }

  const Trace& trace_;
  const Links& links_;
  GraphReference::Contents& contents_;
  std::unordered_map<uint32_t, uint32_t> position_;  // by event
};

GraphReference::Contents contents_of(const Trace& trace, const Links& links, bool with_captures) {
  GraphReference::Contents c;
  ReferenceOps ops(trace, links, c);
  for (const ReferenceWork& work : reference_order(trace, links, with_captures, c.origins)) {
    c.order.push_back(c.names.intern(work.name));
    c.origin.push_back(work.origin);
    c.capture.push_back(work.capture);
    c.op.push_back(ops.position(work.op));
  }
  return c;
}

// Pairs (of a, of b) of a longest common subsequence: the greedy algorithm of E. Myers, "An O(ND)
// difference algorithm and its variations", 1986. Empty if more than kMostEdits edits part them.
std::vector<std::pair<int64_t, int64_t>> common(std::span<const StringId> a,
                                                std::span<const StringId> b) {
  const auto n = static_cast<int64_t>(a.size());
  const auto m = static_cast<int64_t>(b.size());
  const int64_t most = std::min(n + m, kMostEdits);
  std::vector<std::vector<int32_t>> rounds;  // furthest x on diagonal k, at [k + d]
  std::vector<int32_t> far(static_cast<size_t>(2 * most + 3));
  const auto at = [&](int64_t k) -> int32_t& { return far[static_cast<size_t>(k + most + 1)]; };
  int64_t edits = -1;
  for (int64_t d = 0; d <= most && edits < 0; ++d) {
    for (int64_t k = -d; k <= d; k += 2) {
      int64_t x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      while (x < n && x - k < m && a[static_cast<size_t>(x)] == b[static_cast<size_t>(x - k)] &&
             a[static_cast<size_t>(x)] != 0)
        ++x;
      at(k) = static_cast<int32_t>(x);
      if (x >= n && x - k >= m) {
        edits = d;
        break;
      }
    }
    std::vector<int32_t> round(static_cast<size_t>(2 * d + 1));
    for (int64_t k = -d; k <= d; ++k) round[static_cast<size_t>(k + d)] = at(k);
    rounds.push_back(std::move(round));
  }
  std::vector<std::pair<int64_t, int64_t>> pairs;
  if (edits < 0) return pairs;
  int64_t x = n;
  int64_t y = m;
  for (int64_t d = edits; d >= 0; --d) {
    const int64_t k = x - y;
    int64_t from_x = 0;
    int64_t from_y = 0;
    if (d > 0) {
      const std::vector<int32_t>& before = rounds[static_cast<size_t>(d - 1)];
      const auto reached = [&](int64_t kk) {
        return kk < -(d - 1) || kk > d - 1 ? -1 : before[static_cast<size_t>(kk + d - 1)];
      };
      const int64_t before_k =
          k == -d || (k != d && reached(k - 1) < reached(k + 1)) ? k + 1 : k - 1;
      from_x = reached(before_k);
      from_y = from_x - before_k;
    }
    while (x > from_x && y > from_y) pairs.emplace_back(--x, --y);
    if (d == 0) break;
    x = from_x;
    y = from_y;
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

struct Alignment {
  std::vector<uint32_t> place;  // in the reference; kNone: not matched
  double share = 0;             // of the replay's kernels whose names match
  bool is_by_count = false;     // of launches without names

  std::optional<Confidence> confidence() const {
    if (is_by_count) return Confidence::medium;
    if (share >= kSureMatch) return Confidence::high;
    if (share >= kLeastMatch) return Confidence::medium;
    return std::nullopt;
  }
};

class Aligner {
 public:
  explicit Aligner(const GraphReference::Contents& reference) : reference_(reference) {
    const std::vector<StringId>& order = reference.order;
    for (size_t i = 0; i + kGram <= order.size(); ++i)
      if (std::ranges::all_of(std::span(order).subspan(i, kGram),
                              [](StringId name) { return name != 0; }))
        places_[gram(order, i)].push_back(static_cast<uint32_t>(i));
  }

  Alignment align(const std::vector<std::string_view>& names) const {
    std::vector<StringId> replay;
    for (const std::string_view name : names) {
      const std::optional<StringId> id = reference_.names.find(name);
      replay.push_back(id && *id != 0 ? *id : kNone);
    }
    Alignment result{.place = std::vector<uint32_t>(replay.size(), kNone)};
    if (replay.size() < kFewestKernels) return result;
    if (const std::optional<int64_t> offset = best_offset(replay)) {
      const int64_t slack = static_cast<int64_t>(replay.size()) / 8 + 16;
      const int64_t size = static_cast<int64_t>(reference_.order.size());
      const int64_t first = std::clamp<int64_t>(*offset - slack, 0, size);
      const int64_t last =
          std::clamp<int64_t>(*offset + static_cast<int64_t>(replay.size()) + slack, first, size);
      const std::span<const StringId> window =
          std::span(reference_.order)
              .subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
      const auto pairs = common(replay, window);
      for (const auto& [mine, its] : pairs)
        result.place[static_cast<size_t>(mine)] = static_cast<uint32_t>(first + its);
      result.share = static_cast<double>(pairs.size()) / static_cast<double>(replay.size());
      fill_gaps(result.place);
    }
    if (result.confidence()) return result;
    return by_count(replay.size());
  }

 private:
  static uint64_t gram(const std::vector<StringId>& order, size_t i) {
    uint64_t hash = 0;
    for (size_t j = 0; j < kGram; ++j) hash = (hash ^ order[i + j]) * 0x9E3779B97F4A7C15ULL;
    return hash;
  }

  // Where most grams of the replay stand, allowing for some kernels more or fewer in between.
  std::optional<int64_t> best_offset(const std::vector<StringId>& replay) const {
    const int64_t width = std::max<int64_t>(static_cast<int64_t>(replay.size()) / 16, 8);
    std::map<int64_t, int64_t> votes;
    for (size_t i = 0; i + kGram <= replay.size(); ++i) {
      const auto found = places_.find(gram(replay, i));
      if (found == places_.end() || found->second.size() > kPlacesOfGram) continue;
      for (const uint32_t place : found->second) {
        const int64_t offset = static_cast<int64_t>(place) - static_cast<int64_t>(i);
        ++votes[(offset >= 0 ? offset : offset - width + 1) / width];
      }
    }
    int64_t best = 0;
    std::optional<int64_t> bucket;
    for (const auto& [at, count] : votes) {
      const auto next = votes.find(at + 1);
      const int64_t both = count + (next == votes.end() ? 0 : next->second);
      if (both > best) {
        best = both;
        bucket = at;
      }
    }
    if (!bucket) return std::nullopt;
    return (*bucket + 1) * width;
  }

  // A run of names that differ between two matches (another tile, another batch) takes the places
  // of a run of the same length.
  void fill_gaps(std::vector<uint32_t>& place) const {
    for (size_t i = 0; i < place.size();) {
      if (place[i] != kNone) {
        ++i;
        continue;
      }
      size_t end = i;
      while (end < place.size() && place[end] == kNone) ++end;
      if (i > 0 && end < place.size() && place[end] - place[i - 1] == end - i + 1)
        for (size_t j = i; j < end; ++j) place[j] = place[i - 1] + static_cast<uint32_t>(j - i + 1);
      i = end;
    }
  }

  // The captures with as many launches as the replay has work; all must tell the same origins.
  Alignment by_count(size_t count) const {
    Alignment result{.place = std::vector<uint32_t>(count, kNone)};
    std::map<uint32_t, std::vector<uint32_t>> captures;
    for (uint32_t i = 0; i < reference_.capture.size(); ++i)
      if (reference_.capture[i] != 0) captures[reference_.capture[i]].push_back(i);
    const std::vector<uint32_t>* found = nullptr;
    for (const auto& [number, places] : captures) {
      const bool has_names =
          std::ranges::all_of(places, [&](uint32_t i) { return reference_.order[i] != 0; });
      if (places.size() != count || has_names) continue;
      if (found != nullptr)
        for (size_t i = 0; i < count; ++i)
          if (reference_.origin[(*found)[i]] != reference_.origin[places[i]]) return result;
      found = &places;
    }
    if (found == nullptr) return result;
    result.place = *found;
    result.is_by_count = true;
    return result;
  }

  const GraphReference::Contents& reference_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> places_;
};

// What one piece of a replay's work is named by.
struct Named {
  Origin origin = {};
  GraphSource source = GraphSource::none;
  std::optional<Confidence> confidence;
  uint32_t op = kNone;  // in CapturedOps::ops
};

Named named_by_kernel(std::string_view name, Category category) {
  Named named{.source = GraphSource::kernel_name, .confidence = Confidence::low};
  if (category == Category::gpu_memcpy) {
    named.origin.op = "copy";
    return named;
  }
  if (category == Category::gpu_memset) {
    named.origin.op = "fill";
    return named;
  }
  const KernelName decoded = decode_kernel_name(name);
  if (!decoded.ops.empty()) {
    for (const std::string& op : decoded.ops)
      named.origin.op += (named.origin.op.empty() ? "" : " + ") + op;
    named.confidence = Confidence::medium;
  } else if (decoded.kind != KernelKind::unknown && decoded.kind != KernelKind::other &&
             decoded.kind != KernelKind::triton) {
    named.origin.op = kernel_kind_name(decoded.kind);
  } else {
    named.source = GraphSource::none;
    named.confidence.reset();
  }
  return named;
}

class Reporter {
 public:
  Reporter(const Trace& trace, const Links& links, const GraphReference* capture)
      : trace_(trace), links_(links) {
    report_.has_capture = capture != nullptr;
    if (capture != nullptr) references_.push_back({&capture->contents(), GraphSource::capture});
  }

  GraphReport make() {
    captured_.op.assign(trace_.events.size(), kNone);
    collect();
    if (replays_.empty()) return std::move(report_);
    own_ = contents_of(trace_, links_, false);
    references_.push_back({&own_, GraphSource::same_trace});
    for (Reference& r : references_) r.aligner = std::make_unique<Aligner>(*r.contents);
    for (auto& [call, work] : replays_) add_replay(work);
    report_.launches = static_cast<int64_t>(replays_.size());
    report_.sequences = static_cast<int64_t>(sequences_.size());
    for (auto& [key, owner] : owners_) report_.owners.push_back(std::move(owner.owner));
    std::stable_sort(
        report_.owners.begin(), report_.owners.end(),
        [](const GraphOwner& a, const GraphOwner& b) { return a.device_ns > b.device_ns; });
    return std::move(report_);
  }

  // After make().
  CapturedOps take_ops() { return std::move(captured_); }

 private:
  struct Reference {
    const GraphReference::Contents* contents;
    GraphSource source;
    std::unique_ptr<Aligner> aligner = {};
    std::unordered_map<uint32_t, uint32_t> op_here = {};  // its ops in CapturedOps::ops
  };

  // The op of a reference, with those around it, among the captured ones.
  uint32_t captured_op(Reference& reference, uint32_t op) {
    if (op == kNone) return kNone;
    if (const auto found = reference.op_here.find(op); found != reference.op_here.end())
      return found->second;
    const GraphReference::Contents& c = *reference.contents;
    const uint32_t around = captured_op(reference, c.ops[op].parent);
    captured_.ops.push_back(
        {std::string(c.names[c.ops[op].name]), std::string(c.names[c.ops[op].shapes]), around});
    return reference.op_here[op] = static_cast<uint32_t>(captured_.ops.size() - 1);
  }
  // An op that is known by its name alone.
  uint32_t captured_op(const std::string& name) {
    if (name.empty()) return kNone;
    const auto [place, is_new] =
        op_of_name_.try_emplace(name, static_cast<uint32_t>(captured_.ops.size()));
    if (is_new) captured_.ops.push_back({.name = name});
    return place->second;
  }

  void collect() {
    for (const uint32_t i : links_.device_work) {
      const Event& work = trace_.events[i];
      report_.all_device_ns += work.dur_ns;
      const uint32_t call = links_.launch[i];
      const KernelArgs* args = trace_.kernel_args(work);
      if (call != kNone && is_graph_launch_name(trace_.name(trace_.events[call]))) {
        replays_[call].push_back(i);
      } else if (call == kNone && args != nullptr && args->graph_node_id > 0) {
        // The call is lost, but a node's id says that it was one of a graph.
        replays_[kNone - 1 - static_cast<uint32_t>(work.correlation % 0x7FFFFFFF)].push_back(i);
      } else if (links_.op[i] != kNone) {
        report_.named_ns += work.dur_ns;
      }
    }
  }

  // The order in which nodes were captured, where the trace has it; else by start.
  void sort_replay(std::vector<uint32_t>& work) const {
    const auto node = [&](uint32_t i) {
      const KernelArgs* args = trace_.kernel_args(trace_.events[i]);
      return args == nullptr ? 0 : args->graph_node_id;
    };
    const bool has_nodes = std::ranges::all_of(work, [&](uint32_t i) { return node(i) > 0; });
    std::stable_sort(work.begin(), work.end(), [&](uint32_t a, uint32_t b) {
      return has_nodes ? node(a) < node(b) : trace_.events[a].ts_ns < trace_.events[b].ts_ns;
    });
  }

  void add_replay(std::vector<uint32_t>& work) {
    sort_replay(work);
    std::vector<StringId> key;
    key.reserve(work.size());
    for (const uint32_t i : work) key.push_back(trace_.events[i].name);
    const auto [place, is_new] = sequences_.try_emplace(std::move(key));
    if (is_new) place->second = name_sequence(work);
    for (size_t i = 0; i < work.size(); ++i) {
      const Named annotated = annotation(work[i]);
      add(work[i], annotated.source == GraphSource::annotation ? annotated : place->second[i]);
      const uint32_t op = annotated.op != kNone ? annotated.op : place->second[i].op;
      captured_.op[work[i]] = op;
      captured_.graph_ns += trace_.events[work[i]].dur_ns;
      if (op != kNone) captured_.named_ns += trace_.events[work[i]].dur_ns;
    }
  }

  Named annotation(uint32_t i) {
    const KernelArgs* args = trace_.kernel_args(trace_.events[i]);
    if (args == nullptr || args->other_args == 0) return {};
    const auto [place, is_new] = annotations_.try_emplace(args->other_args);
    if (is_new) {
      Named& named = place->second;
      named.origin = origin_of_annotation(trace_.strings[args->other_args]);
      if (named.origin.is_known()) {
        named.source = GraphSource::annotation;
        named.confidence = Confidence::high;
        named.op = captured_op(named.origin.op);
      }
    }
    return place->second;
  }

  std::vector<Named> name_sequence(const std::vector<uint32_t>& work) {
    std::vector<Named> named(work.size());
    std::vector<std::string_view> names;
    names.reserve(work.size());
    for (const uint32_t i : work) names.push_back(compared_name(trace_, trace_.events[i]));
    for (Reference& reference : references_) {
      const Alignment alignment = reference.aligner->align(names);
      const std::optional<Confidence> confidence = alignment.confidence();
      if (!confidence) continue;
      for (size_t i = 0; i < work.size(); ++i) {
        if (alignment.place[i] == kNone || named[i].source != GraphSource::none) continue;
        const uint32_t place = alignment.place[i];
        const Origin& origin = reference.contents->origins[reference.contents->origin[place]];
        if (!origin.is_known()) continue;
        const uint32_t op = reference.contents->op[place];
        named[i] = {origin, reference.source, confidence,
                    op != kNone ? captured_op(reference, op) : captured_op(origin.op)};
      }
    }
    for (size_t i = 0; i < work.size(); ++i)
      if (named[i].source == GraphSource::none)
        named[i] = named_by_kernel_once(names[i], trace_.events[work[i]].category);
    return named;
  }

  // Layers replay the same kernels again and again.
  const Named& named_by_kernel_once(std::string_view name, Category category) {
    const auto [place, is_new] = by_kernel_.try_emplace({name, category});
    if (is_new) place->second = named_by_kernel(name, category);
    return place->second;
  }

  void add(uint32_t i, const Named& named) {
    const Event& e = trace_.events[i];
    ++report_.kernels;
    report_.device_ns += e.dur_ns;
    report_.source_ns[static_cast<size_t>(named.source)] += e.dur_ns;
    if (named.source < GraphSource::kernel_name) report_.named_ns += e.dur_ns;
    const auto key =
        std::tuple(named.origin, named.source, named.confidence.value_or(Confidence::low),
                   named.source == GraphSource::none ? e.name : StringId{0});
    Sum& sum = owners_[key];
    GraphOwner& owner = sum.owner;
    if (owner.kernels == 0) {
      owner.op = named.origin.op;
      owner.module = named.origin.module;
      owner.frame = named.origin.frame;
      owner.source = named.source;
      owner.confidence = named.confidence;
    }
    ++owner.kernels;
    owner.device_ns += e.dur_ns;
    int64_t& of_name = sum.names[e.name];
    of_name += e.dur_ns;
    if (of_name >= sum.most_ns) {
      sum.most_ns = of_name;
      owner.kernel = trace_.name(e);
    }
  }

  struct Sum {
    GraphOwner owner;
    std::unordered_map<StringId, int64_t> names;
    int64_t most_ns = -1;
  };

  const Trace& trace_;
  const Links& links_;
  GraphReport report_;
  CapturedOps captured_;
  std::unordered_map<std::string, uint32_t> op_of_name_;
  GraphReference::Contents own_;
  std::vector<Reference> references_;
  std::map<uint32_t, std::vector<uint32_t>> replays_;  // by launch call
  std::map<std::vector<StringId>, std::vector<Named>> sequences_;
  std::unordered_map<StringId, Named> annotations_;
  std::map<std::pair<std::string_view, Category>, Named> by_kernel_;
  std::map<std::tuple<Origin, GraphSource, Confidence, StringId>, Sum> owners_;
};

}  // namespace

std::string_view graph_source_name(GraphSource source) {
  constexpr std::string_view kNames[] = {"annotation", "capture", "same trace", "kernel name",
                                         "none"};
  return kNames[static_cast<size_t>(source)];
}

GraphReference::GraphReference(const Trace& trace, const Links& links)
    : contents_(std::make_unique<Contents>(contents_of(trace, links, true))) {}
GraphReference::~GraphReference() = default;
GraphReference::GraphReference(GraphReference&&) noexcept = default;

GraphReport graph_report(const Trace& trace, const Links& links, const GraphReference* capture) {
  return Reporter(trace, links, capture).make();
}

CapturedOps captured_ops(const Trace& trace, const Links& links, const GraphReference* capture) {
  Reporter reporter(trace, links, capture);
  reporter.make();
  return reporter.take_ops();
}

}  // namespace epilogue::trace
