// SPDX-License-Identifier: Apache-2.0
#include "analysis/ranks/collective_calls.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "analysis/aten_ops.h"
#include "analysis/enclosing.h"
#include "analysis/time/work_kind.h"

namespace epilogue::trace {
namespace {

struct Alias {
  std::string_view mark;  // lower case, without underscores
  std::string_view name;
};
// The longer ones first: "reduce" is part of others.
constexpr std::array<Alias, 9> kNames = {{{"allreduce", "all_reduce"},
                                          {"allgather", "all_gather"},
                                          {"reducescatter", "reduce_scatter"},
                                          {"alltoall", "all_to_all"},
                                          {"sendrecv", "send_recv"},
                                          {"broadcast", "broadcast"},
                                          {"barrier", "barrier"},
                                          {"reduce", "reduce"},
                                          {"gather", "gather"}}};

struct ScalarSize {
  std::string_view type;
  int64_t bytes;
};
// c10::ScalarType's names, which collectives write; ops write C++'s.
constexpr std::array<ScalarSize, 9> kScalarSizes = {{{"Float", 4},
                                                     {"BFloat16", 2},
                                                     {"Half", 2},
                                                     {"Double", 8},
                                                     {"Long", 8},
                                                     {"Int", 4},
                                                     {"Byte", 1},
                                                     {"Char", 1},
                                                     {"Bool", 1}}};

std::optional<int64_t> scalar_bytes(std::string_view type) {
  for (const ScalarSize& e : kScalarSizes)
    if (e.type == type) return e.bytes;
  return std::nullopt;
}

// What the collective itself says: "Collective name", "In msg nelems", "dtype".
struct Facts {
  std::string name;
  std::optional<int64_t> bytes;
};
Facts facts_from_json(std::string_view text) {
  Facts facts;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return facts;
  if (const auto it = json.find("Collective name"); it != json.end() && it->is_string())
    facts.name = it->get<std::string>();
  const auto count = json.find("In msg nelems");
  const auto type = json.find("dtype");
  if (count == json.end() || type == json.end()) return facts;
  if (!count->is_number_integer() || !type->is_string()) return facts;
  const auto size = scalar_bytes(type->get<std::string>());
  int64_t bytes = 0;
  if (size && !__builtin_mul_overflow(count->get<int64_t>(), *size, &bytes)) facts.bytes = bytes;
  return facts;
}

std::string_view other_args(const Trace& trace, const Event& e) {
  if (const KernelArgs* args = trace.kernel_args(e)) return trace.strings[args->other_args];
  if (const OpArgs* args = trace.op_args(e)) return trace.strings[args->other_args];
  return {};
}

// Of the annotation around the launch ("nccl:all_reduce"), whose inputs are what is sent.
Facts facts_from_annotation(const Trace& trace, const Event& annotation) {
  Facts facts{std::string(trace.name(annotation)), std::nullopt};
  const OpArgs* args = trace.op_args(annotation);
  if (args == nullptr || args->inputs == kNone) return facts;
  for (const TensorShape& tensor : tensor_inputs(trace.inputs[args->inputs])) {
    const std::optional<int64_t> bytes = tensor.bytes();
    if (!bytes) return {facts.name, std::nullopt};
    facts.bytes = facts.bytes.value_or(0) + *bytes;
  }
  return facts;
}

}  // namespace

std::string collective_name(std::string_view text) {
  std::string plain;
  for (const char c : text)
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Alias& alias : kNames)
    if (plain.find(alias.mark) != std::string::npos) return std::string(alias.name);
  return "other";
}

std::vector<CollectiveCall> collective_calls(const Trace& trace, const Links& links) {
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
    calls.push_back({i, {}, {}});
    launches.emplace_back();
    if (links.launch[i] == kNone) continue;
    const Event& call = trace.events[links.launch[i]];
    launches.back() = {call.pid, call.tid, call.ts_ns};
  }
  const std::vector<uint32_t> around = innermost_at(trace, annotations, launches);
  for (size_t i = 0; i < calls.size(); ++i) {
    CollectiveCall& call = calls[i];
    const Event& kernel = trace.events[call.event];
    Facts facts = facts_from_json(other_args(trace, kernel));
    const uint32_t op = links.op[call.event];
    if (facts.name.empty() && op != kNone)
      facts = facts_from_json(other_args(trace, trace.events[op]));
    if (facts.name.empty() && links.launch[call.event] != kNone && around[i] != kNone)
      facts = facts_from_annotation(trace, trace.events[around[i]]);
    call.name = collective_name(facts.name.empty() ? trace.name(kernel) : facts.name);
    call.bytes = facts.bytes;
  }
  return calls;
}

}  // namespace epilogue::trace
