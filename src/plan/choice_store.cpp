// SPDX-License-Identifier: Apache-2.0
#include "plan/choice_store.h"

#include <fmt/format.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "epilogue/runtime.h"

namespace epilogue::plan {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 1;
// Beyond these the file begins anew: a process that meets ever new shapes must not fill the disk.
constexpr size_t kMostChoices = 4096;

std::mutex file_mutex;

std::string plans_file() {
  const std::string folder = cache_folder();
  return folder.empty() ? folder : folder + "/plans.json";
}

// FNV-1a, of 64 bits.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The file's choices, an object; empty where it cannot be used.
json choices_of(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text) return json::object();
  const json j = json::parse(text.value(), nullptr, /*allow_exceptions=*/false);
  if (!j.is_object() || j.value("schema_version", json()) != kSchemaVersion) return json::object();
  const auto plans = j.find("plans");
  return plans != j.end() && plans->is_object() ? *plans : json::object();
}

}  // namespace

std::string choice_key(const std::string& graph) {
  return fmt::format("{}; {}; {}; {} threads; {:016x}", version(), cpu_identity(),
                     isa_name(active_isa()), num_threads(), hash_of(graph));
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
  const json j = {{"schema_version", kSchemaVersion}, {"plans", std::move(choices)}};
  static_cast<void>(write_file(path, j.dump(2) + "\n"));
}

}  // namespace epilogue::plan
