// SPDX-License-Identifier: Apache-2.0
// Metadata keys that look like credentials, e.g. of environment variables that a program noted.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/report.h"

namespace epilogue::trace {
namespace {

using AnyJson = nlohmann::json;

// Parts of a key, in capitals and without '_' and '-'.
constexpr std::array<std::string_view, 9> kMarks = {"TOKEN",     "SECRET",     "PASSWORD",
                                                    "PASSWD",    "PASSPHRASE", "APIKEY",
                                                    "ACCESSKEY", "PRIVATEKEY", "CREDENTIAL"};
constexpr int kDeepest = 16;

// "TOKENIZERS_PARALLELISM" speaks of no token.
bool has_mark(std::string_view plain, std::string_view mark) {
  constexpr std::string_view kTokenise = "IZ";
  for (size_t at = plain.find(mark); at != std::string_view::npos; at = plain.find(mark, at + 1))
    if (!plain.substr(at + mark.size()).starts_with(kTokenise)) return true;
  return false;
}

bool looks_like_credential(std::string_view key) {
  std::string plain;
  for (const char c : key)
    if (c != '_' && c != '-') plain += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [&](std::string_view mark) { return has_mark(plain, mark); });
}

// Numbers ("max_tokens": 512) are no credentials.
void add_keys(const std::string& path, std::string_view key, const AnyJson& value, int depth,
              std::vector<std::string>& keys) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty() &&
      looks_like_credential(key))
    keys.push_back(path);
  if (!value.is_object() || depth == kDeepest) return;
  const std::string prefix = path + ".";
  for (const auto& [name, member] : value.items())
    add_keys(prefix + name, name, member, depth + 1, keys);
}

}  // namespace

std::vector<std::string> credential_keys(const Trace& trace) {
  std::vector<std::string> keys;
  for (const auto& [key, json] : trace.metadata) add_keys(key, key, parse_json(json), 0, keys);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace epilogue::trace
