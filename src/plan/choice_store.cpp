// SPDX-License-Identifier: Apache-2.0
#include "plan/choice_store.h"

#include <fmt/format.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json_file.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "epilogue/runtime.h"

namespace epilogue::plan {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 1;
constexpr const char* kPlans = "plans";
// Beyond these the file begins anew: a process that meets ever new shapes must not fill the disk.
constexpr size_t kMostChoices = 4096;

std::mutex file_mutex;

std::string plans_file() {
  const std::string folder = cache_folder();
  return folder.empty() ? folder : folder + "/plans.json";
}

// The file's choices, an object; empty where it cannot be used.
json choices_of(const std::string& path) {
  json plans = read_versioned(path, kSchemaVersion, kPlans);
  return plans.is_object() ? plans : json::object();
}

}  // namespace

std::string choice_key(const std::string& graph) {
  return fmt::format("{}; {}; {}; {} threads; {:016x}", version(), cpu_identity(),
                     active_isa_name(), num_threads(), fnv1a(graph));
}

std::optional<Choice> find_choice(const std::string& key) {
  const std::string path = plans_file();
  if (path.empty()) return {};
  const std::lock_guard<std::mutex> lock(file_mutex);
  const json choices = choices_of(path);
  const auto at = choices.find(key);
  if (at == choices.end() || !at->is_object()) return {};
  const auto name = at->find("choice");
  if (name == at->end() || !name->is_string()) return {};
  Choice choice{name->get<std::string>(), {}};
  if (const auto times = at->find("median_us"); times != at->end() && times->is_object())
    for (const auto& [candidate, us] : times->items())
      if (us.is_number()) choice.median_us.emplace_back(candidate, us.get<double>());
  return choice;
}

void keep_choice(const std::string& key, const Choice& choice) {
  const std::string path = plans_file();
  if (path.empty()) return;
  const std::lock_guard<std::mutex> lock(file_mutex);
  json choices = choices_of(path);
  if (choices.size() >= kMostChoices) choices = json::object();
  json times = json::object();
  for (const auto& [candidate, us] : choice.median_us) times[candidate] = us;
  choices[key] = {{"choice", choice.name}, {"median_us", std::move(times)}};
  static_cast<void>(write_versioned(path, kSchemaVersion, kPlans, std::move(choices)));
}

}  // namespace epilogue::plan
