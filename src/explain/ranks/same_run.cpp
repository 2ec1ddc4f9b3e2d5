// SPDX-License-Identifier: Apache-2.0
// Which rank of which run a trace is of.
#include "explain/ranks/rank_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "explain/index/trace_metadata.h"

namespace epilogue::trace {
namespace {

std::optional<int64_t> integer(const nlohmann::json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// "run_rank-3.json.gz", "Rank12_trace.json", "rank 0.json": the number after the last "rank".
std::optional<int64_t> rank_in_name(const std::string& path) {
  constexpr std::string_view kRank = "rank";
  constexpr std::string_view kBetween = "-_ .=";
  std::string name = path.substr(path.find_last_of('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  size_t at = name.rfind(kRank);
  if (at == std::string::npos) return std::nullopt;
  at += kRank.size();
  if (at < name.size() && kBetween.find(name[at]) != std::string_view::npos) ++at;
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), rank);
  return error == std::errc() && rank >= 0 ? std::optional(rank) : std::nullopt;
}

}  // namespace

RankInfo rank_info(const Trace& trace) {
  if (const auto text = find_metadata(trace, "distributedInfo")) {
    const auto json = parse_json(*text);
    const auto rank = json.is_object() ? integer(json, "rank") : std::nullopt;
    if (rank) return {rank, integer(json, "world_size")};
  }
  return {rank_in_name(trace.import.path), std::nullopt};
}

// Whether traces are the ranks of one run.

namespace {

std::vector<StringId> op_names(const Trace& trace, StringPool& names) {
  std::vector<bool> is_known(trace.strings.size());
  std::vector<StringId> ids;
  for (const Event& e : trace.events) {
    if (e.category != Category::cpu_op || is_known[e.name]) continue;
    is_known[e.name] = true;
    ids.push_back(names.intern(trace.name(e)));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// When the trace's events ran, on the clock that all traces share.
Interval window_of(const Trace& trace) {
  Interval w = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (const Event& e : trace.events) {
    w.begin_ns = std::min(w.begin_ns, trace.base_time_ns + e.ts_ns);
    w.end_ns = std::max(w.end_ns, trace.base_time_ns + e.end_ns());
  }
  return w;
}

// For traces that do not say which rank they are.
std::string why_different_programs(std::span<const RankIdentity> ranks) {
  const RankIdentity& first = ranks.front();
  for (const RankIdentity& other : ranks.subspan(1)) {
    const auto both = [&](const char* what) {
      return fmt::format("{} and {} {}", first.path, other.path, what);
    };
    if (other.ops != first.ops) return both("have different ops");
    if (other.window.begin_ns > first.window.end_ns || first.window.begin_ns > other.window.end_ns)
      return both("ran at different times");
  }
  return "";
}

}  // namespace

RankIdentity rank_identity(const Trace& trace, StringPool& names) {
  const RankInfo info = rank_info(trace);
  RankIdentity identity = {trace.import.path, info.rank, info.world_size, {}, {}};
  if (info.rank) return identity;
  identity.ops = op_names(trace, names);
  identity.window = window_of(trace);
  return identity;
}

std::string why_not_ranks(std::span<const RankIdentity> ranks) {
  std::map<int64_t, const RankIdentity*> by_rank;
  std::optional<int64_t> world_size;
  for (const RankIdentity& r : ranks) {
    if (!r.rank) continue;
    const auto [same, is_new] = by_rank.emplace(*r.rank, &r);
    if (!is_new)
      return fmt::format("{} and {} are both of rank {}", same->second->path, r.path, *r.rank);
    if (r.world_size && *r.rank >= *r.world_size)
      return fmt::format("{} says rank {} of {} ranks", r.path, *r.rank, *r.world_size);
    if (world_size && r.world_size && *world_size != *r.world_size)
      return fmt::format("{} says that the run has {} ranks, another trace says {}", r.path,
                         *r.world_size, *world_size);
    if (r.world_size) world_size = r.world_size;
  }
  if (ranks.size() < 2 || by_rank.size() == ranks.size()) return "";
  if (by_rank.empty()) return why_different_programs(ranks);
  const auto unnamed =
      std::find_if(ranks.begin(), ranks.end(), [](const RankIdentity& r) { return !r.rank; });
  return unnamed->path + " does not say which rank it is of, but others do";
}

std::string why_not_ranks(const RankDigests& digests) {
  std::vector<RankIdentity> identities;
  identities.reserve(digests.ranks.size());
  for (const RankDigest& digest : digests.ranks) identities.push_back(digest.identity);
  return why_not_ranks(identities);
}

std::string why_not_ranks(std::span<const RankTrace> traces) {
  StringPool names;
  std::vector<RankIdentity> identities;
  for (const RankTrace& t : traces) identities.push_back(rank_identity(t.trace, names));
  return why_not_ranks(identities);
}

}  // namespace epilogue::trace
