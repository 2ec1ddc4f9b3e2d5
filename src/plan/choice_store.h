// SPDX-License-Identifier: Apache-2.0
// Which candidate was fastest, kept for later processes: plans.json in this user's cache folder.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace epilogue::plan {

// What was measured of one captured call.
struct Choice {
  std::string name;
  std::vector<std::pair<std::string, double>> median_us;  // by candidate
};

// What a choice holds for: this version, CPU, level, threads, and `graph`, a captured graph's text
// with its sizes.
std::string choice_key(const std::string& graph);

// Nothing where none was kept, or the file cannot be read.
std::optional<Choice> find_choice(const std::string& key);
// Where it cannot be written the next process measures again.
void keep_choice(const std::string& key, const Choice& choice);

}  // namespace epilogue::plan
