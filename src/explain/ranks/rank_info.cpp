// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_info.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

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
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    const auto rank = json.is_object() ? integer(json, "rank") : std::nullopt;
    if (rank) return {rank, integer(json, "world_size")};
  }
  return {rank_in_name(trace.import.path), std::nullopt};
}

}  // namespace epilogue::trace
