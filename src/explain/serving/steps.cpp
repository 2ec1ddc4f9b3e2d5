// SPDX-License-Identifier: Apache-2.0
// The steps of a server: what annotations say of them, their work by part, and by phase.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/units.h"
#include "epilogue/trace/kernel_name.h"
#include "epilogue/trace/serving.h"
#include "explain/index/intervals.h"
#include "explain/serving/experts.h"

namespace epilogue::trace {
namespace {

// --- Annotations --------------------------------------------------------------------------------

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// The requests of one kind: their number and, in brackets, their new tokens and context.
struct Group {
  int64_t requests = 0;
  std::optional<int64_t> tokens = {};
  std::optional<int64_t> context = {};
};

// "2(512)", "1(888_788544)" (tokens, the sum of their squares), "32(sq32sk55086sqsq32sqsk55086)"
// (sums over the requests of new tokens, of keys, of products).
std::optional<Group> take_group(std::string_view& text) {
  const std::optional<int64_t> requests = take_number(text);
  if (!requests) return std::nullopt;
  Group group{.requests = *requests};
  if (!take(text, "(")) return group;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view inside = text.substr(0, end);
  text.remove_prefix(end + 1);
  if (take(inside, "sq")) {
    group.tokens = take_number(inside);
    if (take(inside, "sk")) group.context = take_number(inside);
  } else {
    group.tokens = take_number(inside);
  }
  return group;
}

ServingPhase phase_of(int64_t prefills, int64_t decodes) {
  if (prefills > 0) return decodes > 0 ? ServingPhase::mixed : ServingPhase::prefill;
  return decodes > 0 ? ServingPhase::decode : ServingPhase::other;
}

std::optional<StepLabel> vllm_label(std::string_view name) {
  if (!take(name, "execute_")) return std::nullopt;
  StepLabel label{.server = "vLLM"};
  if (take(name, "new_")) {  // until 2025-09
    const std::optional<int64_t> fresh = take_number(name);
    if (!fresh || !take(name, "_cached_")) return std::nullopt;
    const std::optional<int64_t> cached = take_number(name);
    if (!cached) return std::nullopt;
    label.phase = phase_of(*fresh, *cached);
    label.requests = *fresh + *cached;
    return label;
  }
  if (!name.starts_with("context_")) {  // a count of all before the two kinds
    if (!take_number(name) || !take(name, "_")) return std::nullopt;
  }
  if (!take(name, "context_")) return std::nullopt;
  const std::optional<Group> context = take_group(name);
  if (!context || !take(name, "_generation_")) return std::nullopt;
  const std::optional<Group> generation = take_group(name);
  if (!generation) return std::nullopt;
  label.phase = phase_of(context->requests, generation->requests);
  label.requests = context->requests + generation->requests;
  label.prefill_tokens = context->tokens;
  label.decode_tokens = generation->tokens;
  if (context->context || generation->context)
    label.context_tokens = context->context.value_or(0) + generation->context.value_or(0);
  return label;
}

std::optional<StepLabel> sglang_label(std::string_view name) {
  if (!take(name, "step[") || !name.ends_with("]")) return std::nullopt;
  name.remove_suffix(1);
  const size_t mode_end = std::min(name.find(' '), name.size());
  std::string mode(name.substr(0, mode_end));
  std::ranges::transform(mode, mode.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  name.remove_prefix(mode_end);
  StepLabel label{.server = "SGLang"};
  if (mode == "decode" || mode == "target_verify" || mode == "target-verify")
    label.phase = ServingPhase::decode;
  else if (mode == "prefill" || mode == "extend")
    label.phase = ServingPhase::prefill;
  else if (mode == "mixed")
    label.phase = ServingPhase::mixed;
  std::optional<int64_t> tokens;
  while (take(name, " ")) {
    const size_t equals = name.find('=');
    if (equals == std::string_view::npos) break;
    const std::string_view key = name.substr(0, equals);
    name.remove_prefix(equals + 1);
    const std::optional<int64_t> value = take_number(name);
    if (!value) break;
    if (key == "bs") label.requests = value;
    if (key == "toks") tokens = value;
    if (key == "ext") label.prefill_tokens = value;
    if (key == "dec") label.decode_tokens = value;
  }
  if (tokens && label.phase == ServingPhase::prefill) label.prefill_tokens = tokens;
  if (tokens && label.phase == ServingPhase::decode) label.decode_tokens = tokens;
  if (mode == "decode" && !label.decode_tokens) label.decode_tokens = label.requests;
  return label;
}

// --- Parts --------------------------------------------------------------------------------------

bool names_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// What a name says of experts, collectives, attention and sampling; empty: nothing.
std::optional<ServingPart> part_of_words(std::string_view name) {
  if (names_any(name, {"nccl", "rccl", "all_reduce", "allreduce", "AllReduce", "all_gather",
                       "cross_device_reduce", "reduce_scatter", "all_to_all"}))
    return ServingPart::collectives;
  if (names_any(name, {"moe", "MoE", "Moe", "expert", "matmul_ogs", "routing", "_topk_forward",
                       "bitmatrix", "_finalize_matmul_scatter", "grouped_gemm", "GroupedGemm",
                       "group_gemm", "GroupProblemShape", "deep_gemm::grouped"}))
    return ServingPart::experts;
  if (names_any(name, {"sampl", "Sampl", "argmax", "ArgMax", "multinomial", "top_k_top_p",
                       "apply_penalties"}) &&
      !names_any(name, {"upsampl", "Upsampl", "UpSampl", "grid_sampl"}))
    return ServingPart::sampling;
  if (names_any(name, {"fmha", "flash_fwd", "FlashAttn", "flash_attn", "attention", "Attention",
                       "attn_fwd", "paged", "Paged", "BatchDecode", "BatchPrefill", "mla_",
                       "reduce_segments", "splitkv", "FlashMLA"}))
    return ServingPart::attention;
  return std::nullopt;
}

bool writes_cache(std::string_view name) {
  return names_any(name, {"reshape_and_cache", "concat_and_cache", "set_kv_buffer", "store_kvcache",
                          "store_kv_cache"});
}

// Reads or writes a paged cache of keys and values: the mark of a server.
bool is_cache_kernel(std::string_view name) {
  return writes_cache(name) ||
         names_any(name, {"PagedKv", "paged_attention", "unified_attention", "BatchDecode",
                          "BatchPrefillWithPaged", "PagedKVCache", "decode_attention"});
}

class Parts {
 public:
  Parts(const Trace& trace, const Links& links) : trace_(trace), links_(links) {
    by_name_.resize(trace.strings.size());
    // Sampling has kernels of any name: the annotation around their launch says so.
    std::vector<Interval> spans;
    for (const Event& e : trace.events)
      if (e.category == Category::user_annotation && names_any(trace.name(e), {"sampl", "Sampl"}))
        spans.push_back({e.ts_ns, e.end_ns()});
    sampling_ = united(std::move(spans));
    coverage_.emplace(sampling_);
  }

  ServingPart of(uint32_t work) {
    const Event& e = trace_.events[work];
    if (e.category != Category::kernel) return ServingPart::other;
    const std::optional<ServingPart> named = of_name(e.name);
    if (named && *named != ServingPart::products) return *named;
    for (uint32_t op = links_.op[work]; op != kNone; op = links_.parent[op]) {
      const std::optional<ServingPart> part = of_op(trace_.events[op].name);
      if (part == ServingPart::experts || part == ServingPart::sampling) return *part;
    }
    const uint32_t call = links_.launch[work];
    if (call != kNone && coverage_->contains(trace_.events[call].ts_ns))
      return ServingPart::sampling;
    return named.value_or(ServingPart::other);
  }

 private:
  std::optional<ServingPart> of_name(StringId id) {
    std::optional<std::optional<ServingPart>>& known = by_name_[id];
    if (!known) known = decode(trace_.strings[id]);
    return *known;
  }
  std::optional<ServingPart> of_op(StringId id) {
    const auto [place, is_new] = by_op_.try_emplace(id);
    if (is_new) place->second = part_of_words(trace_.strings[id]);
    return place->second;
  }
  static std::optional<ServingPart> decode(std::string_view name) {
    if (writes_cache(name)) return ServingPart::other;
    if (const std::optional<ServingPart> part = part_of_words(name)) return part;
    switch (decode_kernel_name(name).kind) {
      case KernelKind::gemm:
      case KernelKind::gemv:
      case KernelKind::split_k_reduce:
      case KernelKind::conv: return ServingPart::products;
      case KernelKind::attention: return ServingPart::attention;
      case KernelKind::collective: return ServingPart::collectives;
      default: return std::nullopt;
    }
  }

  const Trace& trace_;
  const Links& links_;
  std::vector<std::optional<std::optional<ServingPart>>> by_name_;
  std::unordered_map<StringId, std::optional<ServingPart>> by_op_;
  IntervalSet sampling_;
  std::optional<Coverage> coverage_;  // of sampling_
};

// --- Steps --------------------------------------------------------------------------------------

std::vector<ServingStep> annotated_steps(const Trace& trace) {
  std::vector<ServingStep> steps;
  for (const Event& e : trace.events) {
    if (e.category != Category::user_annotation) continue;
    const std::optional<StepLabel> label = parse_step_label(trace.name(e));
    if (!label) continue;
    steps.push_back({.name = std::string(trace.name(e)),
                     .label = *label,
                     .start_ns = e.ts_ns,
                     .host_ns = e.dur_ns});
  }
  std::ranges::stable_sort(steps, {}, &ServingStep::start_ns);
  // One inside the other (a draft's step, a step of a batch of two) belongs to the outer one.
  int64_t end_ns = INT64_MIN;
  std::erase_if(steps, [&](const ServingStep& s) {
    const bool is_inner = s.start_ns < end_ns;
    if (!is_inner) end_ns = s.start_ns + s.host_ns;
    return is_inner;
  });
  return steps;
}

constexpr int64_t kFewestRhythmSteps = 3;
constexpr int64_t kMostTokenBytes = 1 << 20;  // of a copy that brings tokens to the host

// Work of the device by its launch call, in the order of the calls.
struct Launch {
  int64_t ts_ns;
  uint32_t call;
  uint32_t work;
};

std::vector<Launch> launches_of(const Trace& trace, const Links& links) {
  std::vector<Launch> launches;
  for (const uint32_t i : links.device_work)
    if (links.launch[i] != kNone)
      launches.push_back({trace.events[links.launch[i]].ts_ns, links.launch[i], i});
  std::ranges::stable_sort(launches, {}, &Launch::ts_ns);
  return launches;
}

// A step ends with the copy that brings its tokens to the host. It decodes if its attention ran in
// a replayed graph (graphs are captured for decoding; in pieces, attention stands between them, so
// that the phase is not told), else it is a prefill if no graph was replayed.
std::vector<ServingStep> rhythm_steps(const Trace& trace, const std::vector<Launch>& launches) {
  std::vector<ServingStep> steps;
  std::unordered_map<StringId, bool> cache_names;
  const auto is_cache = [&](StringId id) {
    const auto [place, is_new] = cache_names.try_emplace(id);
    if (is_new) place->second = is_cache_kernel(trace.strings[id]);
    return place->second;
  };
  bool has_begun = false;
  int64_t first_ns = 0;
  bool has_cache = false;
  bool has_cache_in_graph = false;
  bool has_graph = false;
  for (const Launch& launch : launches) {
    const Event& work = trace.events[launch.work];
    const Event& call = trace.events[launch.call];
    const bool is_graph = is_graph_launch_name(trace.name(call));
    if (!has_begun) first_ns = call.ts_ns;
    has_begun = true;
    has_graph |= is_graph;
    if (work.category == Category::kernel && is_cache(work.name)) {
      has_cache = true;
      has_cache_in_graph |= is_graph;
    }
    const KernelArgs* args = trace.kernel_args(work);
    const bool ends = work.category == Category::gpu_memcpy && !is_graph && has_cache &&
                      trace.name(work).find("DtoH") != std::string_view::npos &&
                      (args == nullptr || args->bytes <= kMostTokenBytes);
    if (!ends) continue;
    ServingStep step{.start_ns = first_ns, .host_ns = call.end_ns() - first_ns};
    step.label.phase = has_cache_in_graph ? ServingPhase::decode
                       : has_graph        ? ServingPhase::other
                                          : ServingPhase::prefill;
    steps.push_back(std::move(step));
    has_begun = false;
    has_cache = has_cache_in_graph = has_graph = false;
  }
  if (static_cast<int64_t>(steps.size()) < kFewestRhythmSteps) steps.clear();
  return steps;
}

void add_work(const Trace& trace, const Links& links, const std::vector<Launch>& launches,
              std::vector<ServingStep>& steps) {
  Parts parts(trace, links);
  std::vector<std::vector<Interval>> busy(steps.size());
  std::vector<int64_t> ends(steps.size(), INT64_MIN);
  size_t at = 0;
  uint32_t last_graph = kNone;
  for (const Launch& launch : launches) {
    while (at + 1 < steps.size() && steps[at + 1].start_ns <= launch.ts_ns) ++at;
    if (launch.ts_ns < steps[at].start_ns) continue;
    ServingStep& step = steps[at];
    const Event& e = trace.events[launch.work];
    if (launch.call != last_graph && is_graph_launch_name(trace.name(trace.events[launch.call]))) {
      ++step.graph_launches;
      last_graph = launch.call;
    }
    if (busy[at].empty() || e.ts_ns < step.device_start_ns) step.device_start_ns = e.ts_ns;
    ends[at] = std::max(ends[at], e.end_ns());
    busy[at].push_back({e.ts_ns, e.end_ns()});
    if (e.category == Category::kernel) ++step.kernels;
    step.part_ns[static_cast<size_t>(parts.of(launch.work))] += e.dur_ns;
  }
  int64_t end_before = INT64_MIN;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (busy[i].empty()) continue;
    steps[i].busy_ns = total_ns(united(std::move(busy[i])));
    steps[i].device_ns = ends[i] - steps[i].device_start_ns;
    if (end_before != INT64_MIN)
      steps[i].gap_ns = std::max<int64_t>(steps[i].device_start_ns - end_before, 0);
    end_before = std::max(end_before, ends[i]);
  }
}

// --- Phases -------------------------------------------------------------------------------------

// The value below which at least `share` of them lie: the nearest rank.
template <class T>
T rank_of(std::vector<T> values, double share) {
  std::ranges::sort(values);
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

template <class Get>
std::optional<double> median_over(const std::vector<const ServingStep*>& steps, Get get) {
  std::vector<double> values;
  for (const ServingStep* s : steps)
    if (const std::optional<int64_t> value = get(*s)) values.push_back(static_cast<double>(*value));
  if (values.empty()) return std::nullopt;
  return rank_of(std::move(values), 0.5);
}

constexpr double kHostBusyPct = 60;        // a device that works less waits for launches
constexpr double kCollectiveShare = 0.35;  // of the parts' time
constexpr size_t kFewestForChange = 6;
constexpr double kLeastChange = 0.1;

void set_limit(ServingPhaseTime& phase) {
  const auto part = [&](ServingPart p) { return phase.part_ns[static_cast<size_t>(p)]; };
  int64_t all = 0;
  for (const int64_t ns : phase.part_ns) all += ns;
  if (all == 0) return;
  const auto pct = [&](int64_t ns) {
    return 100.0 * static_cast<double>(ns) / static_cast<double>(all);
  };
  if (phase.busy_pct < kHostBusyPct) {
    phase.limit = "host";
    phase.reason = fmt::format(
        "the device works {:.0f} % of its steps: kernels come slower than they run; replayed "
        "graphs launch them at once",
        phase.busy_pct);
    return;
  }
  if (static_cast<double>(part(ServingPart::collectives)) >
      kCollectiveShare * static_cast<double>(all)) {
    phase.limit = "collectives";
    phase.reason = fmt::format("collectives take {:.0f} % of the device's work",
                               pct(part(ServingPart::collectives)));
    return;
  }
  size_t most = 0;
  for (size_t i = 1; i + 1 < kServingParts; ++i)
    if (phase.part_ns[i] > phase.part_ns[most]) most = i;
  if (phase.part_ns[most] < part(ServingPart::other)) most = kServingParts - 1;
  const auto which = static_cast<ServingPart>(most);
  phase.limit = serving_part_name(which);
  std::string why;
  if (which == ServingPart::attention)
    why = phase.phase == ServingPhase::decode
              ? "; decoding reads the keys and values of every token so far: memory bandwidth"
              : "; its work grows with the square of the prompt";
  if (which == ServingPart::products || which == ServingPart::experts)
    why = phase.phase == ServingPhase::decode
              ? "; with few tokens a step reads all weights that it uses: memory bandwidth"
              : "; with many tokens they compute";
  if (which == ServingPart::other)
    why = "; norms, copies, casts and caches, each too small to fill the device";
  phase.reason =
      fmt::format("{} take{} {:.0f} % of the device's work{}", phase.limit,
                  which == ServingPart::products || which == ServingPart::experts ? "" : "s",
                  pct(phase.part_ns[most]), why);
}

void set_change(ServingPhaseTime& phase, const std::vector<const ServingStep*>& steps) {
  if (steps.size() < kFewestForChange) return;
  const size_t third = steps.size() / 3;
  const std::vector<const ServingStep*> first(steps.begin(),
                                              steps.begin() + static_cast<ptrdiff_t>(third));
  const std::vector<const ServingStep*> last(steps.end() - static_cast<ptrdiff_t>(third),
                                             steps.end());
  const auto time = [](const ServingStep& s) { return std::optional(s.device_ns); };
  const double before = *median_over(first, time);
  const double after = *median_over(last, time);
  if (before <= 0 || std::abs(after - before) < kLeastChange * before) return;
  size_t most = 0;
  double most_by = 0;
  for (size_t i = 0; i < kServingParts; ++i) {
    const auto of_part = [i](const ServingStep& s) { return std::optional(s.part_ns[i]); };
    const double by = *median_over(last, of_part) - *median_over(first, of_part);
    if ((after > before) == (by > 0) && std::abs(by) > std::abs(most_by)) {
      most_by = by;
      most = i;
    }
  }
  phase.change = fmt::format("the median went from {} in the first third to {} in the last",
                             format_duration_ns(before), format_duration_ns(after));
  if (most_by != 0)
    phase.change += fmt::format(", {} by {}", serving_part_name(static_cast<ServingPart>(most)),
                                format_duration_ns(std::abs(most_by)));
  const auto requests = [](const ServingStep& s) { return s.label.requests; };
  const auto context = [](const ServingStep& s) { return s.label.context_tokens; };
  const auto add = [&](std::string_view what, auto get) {
    const std::optional<double> was = median_over(first, get);
    const std::optional<double> is = median_over(last, get);
    if (was && is && *was != *is)
      phase.change += fmt::format("; {} from {:.0f} to {:.0f}", what, *was, *is);
  };
  add("requests", requests);
  add("tokens in context", context);
}

std::vector<ServingPhaseTime> phase_times(const std::vector<ServingStep>& steps) {
  std::vector<ServingPhaseTime> phases;
  for (size_t p = 0; p < kServingPhases; ++p) {
    std::vector<const ServingStep*> mine;
    for (const ServingStep& s : steps)
      if (s.has_device() && s.label.phase == static_cast<ServingPhase>(p)) mine.push_back(&s);
    if (mine.empty()) continue;
    ServingPhaseTime phase{.phase = static_cast<ServingPhase>(p),
                           .count = static_cast<int64_t>(mine.size())};
    std::vector<int64_t> times;
    int64_t busy_ns = 0;
    for (const ServingStep* s : mine) {
      times.push_back(s->device_ns);
      phase.total_ns += s->device_ns;
      busy_ns += s->busy_ns;
      phase.gaps_ns += s->gap_ns.value_or(0);
      for (size_t i = 0; i < kServingParts; ++i) phase.part_ns[i] += s->part_ns[i];
    }
    phase.median_ns = rank_of(times, 0.5);
    phase.p99_ns = rank_of(std::move(times), 0.99);
    if (phase.total_ns > 0)
      phase.busy_pct = 100.0 * static_cast<double>(busy_ns) / static_cast<double>(phase.total_ns);
    phase.requests = median_over(mine, [](const ServingStep& s) { return s.label.requests; });
    phase.tokens = median_over(mine, [](const ServingStep& s) -> std::optional<int64_t> {
      if (!s.label.prefill_tokens && !s.label.decode_tokens) return std::nullopt;
      return s.label.prefill_tokens.value_or(0) + s.label.decode_tokens.value_or(0);
    });
    phase.context_tokens =
        median_over(mine, [](const ServingStep& s) { return s.label.context_tokens; });
    if (const auto gap = median_over(mine, [](const ServingStep& s) { return s.gap_ns; }))
      phase.gap_ns = static_cast<int64_t>(*gap);
    set_limit(phase);
    set_change(phase, mine);
    phases.push_back(std::move(phase));
  }
  return phases;
}

// --- Experts ------------------------------------------------------------------------------------

// Ops that route tokens: one input is the router's logits [tokens, experts]. The chosen experts
// [tokens, k] are another input where the op writes them itself (topk_softmax).
std::vector<ExpertLoad> expert_loads(const Trace& trace) {
  // Tokens of each call, by op, experts, and k or 0.
  std::map<std::tuple<StringId, int64_t, int64_t>, std::vector<double>> calls;
  for (const Event& e : trace.events) {
    if (e.category != Category::cpu_op) continue;
    const std::string_view name = trace.name(e);
    if (!names_any(name, {"topk_softmax", "grouped_topk", "topk_gating", "moe_forward",
                          "fused_topk", "topk_sigmoid"}))
      continue;
    const OpArgs* args = trace.op_args(e);
    if (args == nullptr || args->inputs == kNone) continue;
    std::vector<std::vector<int64_t>> matrices;
    for (const OpInput& input : trace.inputs[args->inputs])
      if (input.dims.size() == 2 && input.dims[0] > 0 && input.dims[1] > 0)
        matrices.push_back(input.dims);
    if (matrices.size() < 2) continue;
    const int64_t tokens = matrices.front()[0];
    if (std::ranges::any_of(matrices, [&](const auto& m) { return m[0] != tokens; })) continue;
    int64_t experts = 0;
    int64_t per_token = 0;
    if (name.find("moe_forward") != std::string_view::npos) {
      experts = matrices[1][1];  // (hidden [T, H], logits [T, E])
    } else {
      for (const auto& m : matrices) experts = std::max(experts, m[1]);
      per_token = experts;
      for (const auto& m : matrices) per_token = std::min(per_token, m[1]);
      if (per_token == experts) per_token = 0;
    }
    calls[{e.name, experts, per_token}].push_back(static_cast<double>(tokens));
  }
  std::vector<ExpertLoad> loads;
  for (auto& [key, tokens] : calls) {
    const auto [op, experts, per_token] = key;
    ExpertLoad load{.op = std::string(trace.strings[op]),
                    .calls = static_cast<int64_t>(tokens.size()),
                    .experts = experts,
                    .tokens = rank_of(std::move(tokens), 0.5)};
    if (per_token > 0) {
      load.per_token = per_token;
      load.tokens_per_expert =
          load.tokens * static_cast<double>(per_token) / static_cast<double>(experts);
    }
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace

std::string_view serving_phase_name(ServingPhase phase) {
  constexpr std::string_view kNames[] = {"prefill", "decode", "mixed", "other"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view serving_part_name(ServingPart part) {
  constexpr std::string_view kNames[] = {"attention",   "products", "experts",
                                         "collectives", "sampling", "other"};
  return kNames[static_cast<size_t>(part)];
}

std::optional<StepLabel> parse_step_label(std::string_view name) {
  if (std::optional<StepLabel> label = vllm_label(name)) return label;
  return sglang_label(name);
}

ServingReport serving_report(const Trace& trace, const Links& links) {
  ServingReport report;
  report.steps = annotated_steps(trace);
  const bool has_names = !report.steps.empty();
  if (!has_names && (links.launches.empty() || !links.steps.empty())) return report;
  const std::vector<Launch> launches = launches_of(trace, links);
  if (has_names) {
    report.server = report.steps.front().label.server;
  } else {
    report.steps = rhythm_steps(trace, launches);
    if (report.steps.empty()) return report;
    report.is_inferred = true;
  }
  add_work(trace, links, launches, report.steps);
  report.phases = phase_times(report.steps);
  report.experts = expert_loads(trace);
  report.imbalance = expert_imbalance(trace, links, report.steps);
  return report;
}

}  // namespace epilogue::trace
