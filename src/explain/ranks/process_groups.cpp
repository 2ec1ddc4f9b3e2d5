// SPDX-License-Identifier: Apache-2.0
// Process groups by name, what their collectives take, and the stages of a pipeline.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "explain/index/trace_metadata.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

std::vector<int64_t> ranks_of_group(std::string_view text) {
  const auto json = parse_json(text);
  std::vector<int64_t> ranks;
  if (!json.is_array()) return ranks;
  for (const auto& rank : json) {
    if (!rank.is_number_integer()) return {};
    ranks.push_back(rank.get<int64_t>());
  }
  return ranks;
}

namespace {

std::string list_of_ranks(const nlohmann::json& ranks) {
  std::string text;
  for (const auto& rank : ranks)
    if (rank.is_number_integer())
      text += (text.empty() ? "" : ", ") + std::to_string(rank.get<int64_t>());
  return "[" + text + "]";
}

struct Parallelism {
  std::string_view word;  // of a description
  std::string_view name;
};
// The first that fits: "expert_tensor_parallel" divides experts, "dp_shard_cp" data.
constexpr std::array<Parallelism, 17> kParallelisms = {{{"expert", "expert"},
                                                        {"ep", "expert"},
                                                        {"moe", "expert"},
                                                        {"pipeline", "pipeline"},
                                                        {"pp", "pipeline"},
                                                        {"tensor", "tensor"},
                                                        {"tp", "tensor"},
                                                        {"data", "data"},
                                                        {"dp", "data"},
                                                        {"ddp", "data"},
                                                        {"fsdp", "data"},
                                                        {"replicate", "data"},
                                                        {"shard", "data"},
                                                        {"context", "context"},
                                                        {"cp", "context"},
                                                        {"sequence", "context"},
                                                        {"sp", "context"}}};

// "mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP", "tp:0" -> "tensor".
std::string_view parallelism_of(std::string_view description) {
  std::set<std::string> words;
  std::string word;
  for (const char c : description) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  words.insert(word);
  for (const Parallelism& p : kParallelisms)
    if (words.contains(std::string(p.word))) return p.name;
  return "";
}

// The kernels of one rank in the groups of one name.
struct RankSum {
  int64_t total_ns = 0;
  int64_t exposed_ns = 0;
};

struct GroupSum {
  std::string parallelism;
  std::set<std::string> members;
  int64_t size = 0;
  int64_t count = 0;
  std::map<std::string, int64_t> by_collective;
  std::map<size_t, RankSum> by_rank;
  std::set<std::string> group_names;
  std::map<size_t, int64_t> waits;
};

class GroupTimes {
 public:
  GroupTimes(const RankDigests& digests, Collectives& result)
      : digests_(digests), result_(result) {}

  void add_all() {
    for (size_t r = 0; r < digests_.ranks.size(); ++r)
      for (const auto& [key, runs] : digests_.ranks[r].runs) add(r, key, runs);
    add_waits();
    for (const auto& [name, sum] : sums_) result_.groups.push_back(time_of(name, sum));
    std::stable_sort(
        result_.groups.begin(), result_.groups.end(),
        [](const GroupTime& a, const GroupTime& b) { return a.total_ns > b.total_ns; });
    add_pipeline();
  }

 private:
  // Null: distributedInfo does not name the group.
  const ProcessGroup* group_of(size_t r, const std::string& name) const {
    const auto found = digests_.ranks[r].groups.find(name);
    return found == digests_.ranks[r].groups.end() ? nullptr : &found->second;
  }
  std::string_view description_of(const ProcessGroup* group) const {
    if (group == nullptr) return "";
    const std::string_view text = digests_.names[group->description];
    return text == "undefined" ? std::string_view() : text;
  }

  // "" for a collective that names no group.
  std::string name_of(size_t r, const CollectiveKey& key, const CollectiveRuns& runs) const {
    if (key.group_name.empty() && key.group.empty()) return "";
    const ProcessGroup* const group = group_of(r, key.group_name);
    if (const std::string_view text = description_of(group); !text.empty())
      return std::string(text);
    const int64_t size = group != nullptr ? group->size : runs.group_ranks.value_or(0);
    return size > 0 ? fmt::format("groups of {} ranks", size) : "groups without a name";
  }

  void add(size_t r, const CollectiveKey& key, const CollectiveRuns& runs) {
    const std::string name = name_of(r, key, runs);
    if (name.empty()) return;
    const ProcessGroup* const group = group_of(r, key.group_name);
    GroupSum& sum = sums_[name];
    sum.parallelism = parallelism_of(description_of(group));
    sum.members.insert(group != nullptr ? std::string(digests_.names[group->ranks]) : key.group);
    sum.size = std::max(sum.size, group != nullptr ? group->size : runs.group_ranks.value_or(0));
    sum.count += std::ssize(runs.runs);
    RankSum& of_rank = sum.by_rank[r];
    for (const CollectiveRun& run : runs.runs) {
      of_rank.total_ns += run.dur_ns;
      of_rank.exposed_ns += run.exposed_ns;
      sum.by_collective[key.name] += run.dur_ns;
    }
  }

  void add_waits() {
    for (const CollectiveWaits& waits : result_.waits) {
      if (waits.group_name.empty() && waits.group.empty()) continue;
      for (size_t r = 0; r < waits.wait_ns.size(); ++r) {
        if (!waits.wait_ns[r]) continue;
        const auto runs = std::find_if(
            digests_.ranks[r].runs.begin(), digests_.ranks[r].runs.end(), [&](const auto& entry) {
              return entry.first.name == waits.name && entry.first.group_name == waits.group_name;
            });
        if (runs == digests_.ranks[r].runs.end()) continue;
        const auto sum = sums_.find(name_of(r, runs->first, runs->second));
        if (sum != sums_.end()) sum->second.waits[r] += *waits.wait_ns[r];
      }
    }
  }

  static GroupTime time_of(const std::string& name, const GroupSum& sum) {
    GroupTime time = {.name = name, .parallelism = sum.parallelism};
    time.members.assign(sum.members.begin(), sum.members.end());
    time.size = sum.size;
    time.count = sum.count;
    std::vector<std::pair<int64_t, std::string>> by_time;
    by_time.reserve(sum.by_collective.size());
    for (const auto& [collective, ns] : sum.by_collective) by_time.emplace_back(-ns, collective);
    std::sort(by_time.begin(), by_time.end());
    for (const auto& [ns, collective] : by_time) time.collectives.push_back(collective);
    for (const auto& [rank, of_rank] : sum.by_rank) {
      time.total_ns += of_rank.total_ns;
      time.exposed_ns += of_rank.exposed_ns;
    }
    time.total_ns /= std::ssize(sum.by_rank);
    time.exposed_ns /= std::ssize(sum.by_rank);
    if (!sum.waits.empty()) {
      int64_t wait_ns = 0;
      for (const auto& [rank, ns] : sum.waits) wait_ns += ns;
      time.wait_ns = wait_ns / std::ssize(sum.waits);
    }
    return time;
  }

  // The rank's place in the group of its pipeline, and that group's name.
  std::optional<std::pair<int64_t, std::string>> stage_of(size_t r) const {
    for (const auto& [name, group] : digests_.ranks[r].groups) {
      if (group.size < 2 || parallelism_of(description_of(&group)) != "pipeline") continue;
      const std::vector<int64_t> ranks = ranks_of_group(digests_.names[group.ranks]);
      const auto at = std::find(ranks.begin(), ranks.end(), result_.ranks[r].rank);
      if (at != ranks.end()) return std::pair(at - ranks.begin(), name);
    }
    return std::nullopt;
  }

  void add_pipeline() {
    std::map<int64_t, PipelineStage> stages;
    int64_t bubbles_ns = 0;
    int64_t spans_ns = 0;
    for (size_t r = 0; r < digests_.ranks.size(); ++r) {
      const RankDigest& digest = digests_.ranks[r];
      const auto place = stage_of(r);
      if (!place || digest.is_truncated || !digest.time) continue;
      PipelineStage& stage = stages[place->first];
      stage.stage = place->first;
      stage.ranks.push_back(result_.ranks[r].rank);
      stage.span_ns += digest.collectives.span_ns;
      stage.work_ns += digest.time->compute_ns + digest.time->memory_ns;
      stage.idle_ns += digest.time->idle_ns;
      int64_t send_recv_ns = 0;
      for (const auto& [key, runs] : digest.runs)
        if (key.name == "send_recv" && key.group_name == place->second)
          for (const CollectiveRun& run : runs.runs) send_recv_ns += run.exposed_ns;
      stage.send_recv_ns += send_recv_ns;
      bubbles_ns += send_recv_ns + digest.time->idle_ns;
      spans_ns += digest.collectives.span_ns;
    }
    if (stages.size() < 2 || spans_ns == 0) return;
    Pipeline& pipeline = result_.pipeline.emplace();
    pipeline.bubble_pct = 100.0 * static_cast<double>(bubbles_ns) / static_cast<double>(spans_ns);
    for (auto& [number, stage] : stages) {
      const auto ranks = std::ssize(stage.ranks);
      for (int64_t* ns : {&stage.span_ns, &stage.work_ns, &stage.send_recv_ns, &stage.idle_ns})
        *ns /= ranks;
      pipeline.stages.push_back(std::move(stage));
    }
  }

  const RankDigests& digests_;
  Collectives& result_;
  std::map<std::string, GroupSum> sums_;  // by name
};

}  // namespace

void add_process_groups(const Trace& trace, StringPool& names, RankDigest& digest) {
  const auto text = find_metadata(trace, "distributedInfo");
  if (!text) return;
  const auto json = parse_json(*text);
  if (!json.is_object() || !json.contains("pg_config")) return;
  for (const auto& group : json["pg_config"]) {
    if (!group.is_object()) continue;
    const auto name = group.find("pg_name");
    if (name == group.end() || !name->is_string()) continue;
    const auto description = group.find("pg_desc");
    const auto ranks = group.find("ranks");
    const bool has_ranks = ranks != group.end() && ranks->is_array();
    ProcessGroup& g = digest.groups[name->get<std::string>()];
    if (description != group.end() && description->is_string())
      g.description = names.intern(description->get_ref<const std::string&>());
    g.ranks = names.intern(has_ranks ? list_of_ranks(*ranks) : "[]");
    g.size = has_ranks ? std::ssize(*ranks) : 0;
  }
}

void add_group_times(const RankDigests& digests, Collectives& result) {
  GroupTimes(digests, result).add_all();
}

}  // namespace epilogue::trace
