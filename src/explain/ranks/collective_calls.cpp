// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/collective_calls.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "explain/index/aten_ops.h"
#include "explain/index/op_tree.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

std::optional<int64_t> times(std::optional<int64_t> bytes, std::optional<int64_t> ranks) {
  int64_t product = 0;
  if (!bytes || !ranks || __builtin_mul_overflow(*bytes, *ranks, &product)) return std::nullopt;
  return product;
}

// `all` is what `part` is a rank's share of.
std::optional<int64_t> whole_of(std::optional<int64_t> all, std::optional<int64_t> part,
                                std::optional<int64_t> ranks) {
  const std::optional<int64_t> sum = times(part, ranks);
  if (all && sum && *all != *sum) return std::nullopt;
  return all ? all : sum;
}

}  // namespace

std::optional<int64_t> message_bytes(std::string_view name, const CollectiveSizes& sizes) {
  if (name == "all_gather" || name == "gather")
    return whole_of(sizes.out_bytes, sizes.in_bytes, sizes.ranks);
  if (name == "reduce_scatter") return whole_of(sizes.in_bytes, sizes.out_bytes, sizes.ranks);
  if (name == "barrier" || name == "other") return std::nullopt;
  return sizes.in_bytes;
}

std::optional<double> bus_factor(std::string_view name, int64_t ranks) {
  if (ranks < 1) return std::nullopt;
  const auto n = static_cast<double>(ranks);
  if (name == "all_reduce") return 2 * (n - 1) / n;
  if (name == "all_gather" || name == "reduce_scatter" || name == "all_to_all" || name == "gather")
    return (n - 1) / n;
  if (name == "broadcast" || name == "reduce" || name == "send_recv") return 1;
  return std::nullopt;
}

void CollectiveRateSum::add(std::optional<int64_t> bytes, std::optional<double> factor,
                            int64_t dur_ns) {
  if (!bytes || *bytes <= 0 || dur_ns <= 0) return;
  const auto size = static_cast<double>(*bytes);
  ++count_;
  ns_ += dur_ns;
  bytes_ += size;
  bus_bytes_ += size * factor.value_or(0);
  has_factors_ = has_factors_ && factor.has_value();
}

std::optional<CollectiveRates> CollectiveRateSum::rates() const {
  if (count_ == 0) return std::nullopt;
  const auto ns = static_cast<double>(ns_);  // bytes per ns are GB/s
  CollectiveRates rates = {count_, bytes_ / ns, std::nullopt};
  if (has_factors_) rates.busbw_gb_s = bus_bytes_ / ns;
  return rates;
}

namespace {

struct Alias {
  std::string_view mark;  // lower case, without underscores
  std::string_view name;
};
// The longer ones first: "reduce" is part of others.
constexpr std::array<Alias, 12> kNames = {
    {{"allreduce", "all_reduce"},
     {"allgather", "all_gather"},
     {"reducescatter", "reduce_scatter"},
     {"alltoall", "all_to_all"},
     {"sendrecv", "send_recv"},
     {"collectivepermute", "send_recv"},  // of HLO
     {"broadcast", "broadcast"},
     {"barrier", "barrier"},
     {"reduce", "reduce"},
     {"gather", "gather"},
     {"recv", "send_recv"},  // one rank's send is the other's recv
     {"send", "send_recv"}}};

struct ScalarSize {
  std::string_view type;
  int64_t bytes;
};
// c10::ScalarType's names, which collectives write; ops write C++'s.
constexpr std::array<ScalarSize, 14> kScalarSizes = {{{"Float", 4},
                                                      {"BFloat16", 2},
                                                      {"Half", 2},
                                                      {"Double", 8},
                                                      {"Long", 8},
                                                      {"Int", 4},
                                                      {"Byte", 1},
                                                      {"Char", 1},
                                                      {"Bool", 1},
                                                      {"Short", 2},
                                                      {"Float8_e4m3fn", 1},
                                                      {"Float8_e4m3fnuz", 1},
                                                      {"Float8_e5m2", 1},
                                                      {"Float8_e5m2fnuz", 1}}};

std::optional<int64_t> scalar_bytes(std::string_view type) {
  for (const ScalarSize& e : kScalarSizes)
    if (e.type == type) return e.bytes;
  return std::nullopt;
}

// Facts that the kernel's event states: "Collective name", "In msg nelems", "dtype".
struct Facts {
  std::string name;
  CollectiveSizes sizes;
  std::string group_name;
  std::string group;
};

std::optional<int64_t> recorded_integer(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return std::nullopt;
  return it->get<int64_t>();
}
std::string recorded_text(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::optional<int64_t> recorded_bytes(const nlohmann::json& object, const char* count_key) {
  const std::optional<int64_t> count = recorded_integer(object, count_key);
  const std::optional<int64_t> size = scalar_bytes(recorded_text(object, "dtype"));
  int64_t bytes = 0;
  if (!count || !size || __builtin_mul_overflow(*count, *size, &bytes)) return std::nullopt;
  return bytes;
}

Facts facts_from_json(std::string_view text) {
  Facts facts;
  const auto json = parse_json(text);
  if (!json.is_object()) return facts;
  facts.name = recorded_text(json, "Collective name");
  facts.sizes.in_bytes = recorded_bytes(json, "In msg nelems");
  facts.sizes.out_bytes = recorded_bytes(json, "Out msg nelems");
  if (const auto ranks = recorded_integer(json, "Group size"); ranks > 0) facts.sizes.ranks = ranks;
  facts.group_name = recorded_text(json, "Process Group Name");
  facts.group = recorded_text(json, "Process Group Ranks");
  return facts;
}

std::string_view other_args(const Trace& trace, const Event& e) {
  if (const KernelArgs* args = trace.kernel_args(e)) return trace.strings[args->other_args];
  if (const OpArgs* args = trace.op_args(e)) return trace.strings[args->other_args];
  return {};
}

// Facts of the annotation around the launch ("nccl:all_reduce"), whose inputs are sent.
Facts facts_from_annotation(const Trace& trace, const Event& annotation) {
  Facts facts;
  facts.name = trace.name(annotation);
  const OpArgs* args = trace.op_args(annotation);
  if (args == nullptr || args->inputs == kNone) return facts;
  for (const TensorShape& tensor : tensor_inputs(trace.inputs[args->inputs])) {
    const std::optional<int64_t> bytes = tensor.bytes();
    if (!bytes) {
      facts.sizes.in_bytes.reset();
      return facts;
    }
    facts.sizes.in_bytes = facts.sizes.in_bytes.value_or(0) + *bytes;
  }
  return facts;
}

void set_facts(CollectiveCall& call, Facts&& facts, std::string_view kernel_name) {
  call.name = collective_name(facts.name.empty() ? kernel_name : facts.name);
  call.bytes = facts.sizes.in_bytes;
  call.message_bytes = message_bytes(call.name, facts.sizes);
  call.group_ranks = facts.sizes.ranks;
  call.group_name = std::move(facts.group_name);
  call.group = std::move(facts.group);
}

// Sizes of an op or annotation that launched several kernels are of all of them: not of each.
void drop_shared_sizes(const std::vector<uint32_t>& sources, std::vector<CollectiveCall>& calls) {
  std::map<uint32_t, int> kernels;
  for (const uint32_t source : sources) ++kernels[source];
  for (size_t i = 0; i < calls.size(); ++i)
    if (sources[i] != kNone && kernels[sources[i]] > 1) calls[i].message_bytes.reset();
}

}  // namespace

std::string collective_name(std::string_view text) {
  std::string plain;
  for (const char c : text)
    if (c != '_' && c != '-')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Alias& alias : kNames)
    if (plain.find(alias.mark) != std::string::npos) return std::string(alias.name);
  return "other";
}

namespace {

// Threads of their own carry out the collectives of CPUs; the profiler has a range for each, from
// when it is posted to its end.
std::vector<CollectiveCall> host_collective_calls(const Trace& trace) {
  std::vector<CollectiveCall> calls;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::user_annotation && e.category != Category::cpu_op) continue;
    if (!is_cpu_collective(trace.name(e))) continue;
    calls.emplace_back().event = i;
    set_facts(calls.back(), facts_from_annotation(trace, e), trace.name(e));
  }
  return calls;
}

}  // namespace

std::vector<CollectiveCall> collective_calls(const Trace& trace, const Links& links) {
  if (links.device_work.empty() && links.launches.empty()) return host_collective_calls(trace);
  std::vector<uint32_t> annotations;
  for (uint32_t i = 0; i < trace.events.size(); ++i)
    if (trace.events[i].category == Category::user_annotation &&
        trace.name(trace.events[i]).starts_with("nccl:"))
      annotations.push_back(i);
  WorkKinds kinds(trace);
  std::vector<CollectiveCall> calls;
  std::vector<Moment> launches;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel || kinds.of(e) != WorkKind::communication) continue;
    calls.emplace_back().event = i;
    launches.emplace_back();
    if (links.launch[i] == kNone) continue;
    const Event& call = trace.events[links.launch[i]];
    launches.back() = {call.pid, call.tid, call.ts_ns};
  }
  const std::vector<uint32_t> around = innermost_at(trace, annotations, launches);
  std::vector<uint32_t> sources(calls.size(), kNone);  // what says the facts, if not the kernel
  for (size_t i = 0; i < calls.size(); ++i) {
    const uint32_t event = calls[i].event;
    Facts facts = facts_from_json(other_args(trace, trace.events[event]));
    const uint32_t op = links.op[event];
    if (facts.name.empty() && op != kNone) {
      facts = facts_from_json(other_args(trace, trace.events[op]));
      sources[i] = op;
    }
    if (facts.name.empty() && links.launch[event] != kNone && around[i] != kNone) {
      facts = facts_from_annotation(trace, trace.events[around[i]]);
      sources[i] = around[i];
    }
    set_facts(calls[i], std::move(facts), trace.name(trace.events[event]));
  }
  drop_shared_sizes(sources, calls);
  return calls;
}

}  // namespace epilogue::trace
