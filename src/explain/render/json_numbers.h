// SPDX-License-Identifier: Apache-2.0
// What all JSON outputs share.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/ranks.h"
#include "explain/sections/section.h"

namespace epilogue::trace {

inline constexpr int kJsonSchemaVersion = 1;

// Names come from files: bytes that are not UTF-8 must not make this throw.
template <class Json = nlohmann::ordered_json>
std::string dump_json(const Json& json) {
  return json_text_of_names(json, 2) + "\n";
}

struct ExplanationJson {
  nlohmann::ordered_json json;  // what explain_json() prints
  // How many rows were cut, by the list's path: {"dispatch_chains": 5, "host.ops": 7}. Lists that
  // are whole are not in it.
  nlohmann::ordered_json left_out;
};
// The lists that grow with the trace have at most `max_rows` rows, their first.
ExplanationJson explanation_json(const Explanation& explanation, size_t max_rows);

// What ranks_json() prints, with the first `max_kernels` kernels.
nlohmann::ordered_json ranks_explanation_json(const RanksExplanation& ranks, size_t max_kernels);

}  // namespace epilogue::trace
