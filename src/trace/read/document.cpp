// SPDX-License-Identifier: Apache-2.0

#include "trace/read/document.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "epilogue/trace/event.h"
#include "trace/json_text.h"
#include "trace/read/json/json_string.h"
#include "trace/read/json/number_text.h"
#include "trace/read/white_space.h"

namespace epilogue::trace {

namespace {

using Json = nlohmann::json;

// The first of the keys that holds a whole number that fits; 0 without one.
template <class Int>
Int integer(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) continue;
    const ExactNumber number = parse_integer(found->dump());
    const bool fits = number.ok() && number.value >= std::numeric_limits<Int>::min() &&
                      number.value <= std::numeric_limits<Int>::max();
    return fits ? static_cast<Int>(number.value) : Int{0};
  }
  return 0;
}

DeviceProperties device(const Json& object) {
  DeviceProperties d;
  d.id = integer<int32_t>(object, {"id"});
  if (const auto name = object.find("name"); name != object.end() && name->is_string())
    d.name = name->get<std::string>();
  d.total_global_mem_bytes = integer<int64_t>(object, {"totalGlobalMem"});
  // computeProperties of 2021 have short names.
  d.compute_major = integer<int32_t>(object, {"computeMajor", "major"});
  d.compute_minor = integer<int32_t>(object, {"computeMinor", "minor"});
  d.max_threads_per_block = integer<int32_t>(object, {"maxThreadsPerBlock"});
  d.max_threads_per_multiprocessor = integer<int32_t>(object, {"maxThreadsPerMultiprocessor"});
  d.regs_per_block = integer<int32_t>(object, {"regsPerBlock"});
  d.warp_size = integer<int32_t>(object, {"warpSize"});
  d.shared_mem_per_block_bytes = integer<int64_t>(object, {"sharedMemPerBlock"});
  d.num_sms = integer<int32_t>(object, {"numSms", "multiProcessorCount"});
  d.regs_per_multiprocessor = integer<int32_t>(object, {"regsPerMultiprocessor"});
  d.shared_mem_per_block_optin_bytes = integer<int64_t>(object, {"sharedMemPerBlockOptin"});
  d.shared_mem_per_multiprocessor_bytes =
      integer<int64_t>(object, {"sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"});
  return d;
}

void apply_devices(Trace& trace, const std::string& json) {
  const Json list = parse_json(json);
  if (!list.is_array() || !trace.devices.empty()) return;
  for (const Json& entry : list)
    if (entry.is_object()) trace.devices.push_back(device(entry));
}

bool* flag(Recorded& recorded, std::string_view key) {
  if (key == "record_shapes") return &recorded.record_shapes;
  if (key == "profile_memory") return &recorded.profile_memory;
  if (key == "with_stack") return &recorded.with_stack;
  if (key == "with_flops") return &recorded.with_flops;
  if (key == "with_modules") return &recorded.with_modules;
  return nullptr;
}

// Puts one member where it belongs: devices, recording flags, base time, or else the metadata.
// Members that the writer adds by itself (schema version, display unit, name of the file) are left
// out.
void apply_member(Trace& trace, const std::string& key, const std::string& json) {
  if (key == "schemaVersion" || key == "displayTimeUnit" || key == "traceName") return;
  if (key == "deviceProperties" || key == "computeProperties") {
    apply_devices(trace, json);
  } else if (key == "baseTimeNanoseconds") {
    trace.base_time_ns = parse_integer(json).value;
  } else if (bool* const recorded = flag(trace.recorded, key)) {
    *recorded = json != "0" && json != "false" && json != "null";
  } else if (key != "traceEvents") {
    trace.metadata.emplace_back(key, json);
  }
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kEventList = "traceEvents";
constexpr size_t kNone64 = std::string_view::npos;

// Behind the closing quote of the string at `at`; npos: not closed.
size_t string_end(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return kNone64;
}

// Behind the value at `at`; npos: it does not end in `text`. Brackets are counted, not matched.
size_t value_end(std::string_view text, size_t at) {
  int64_t depth = 0;
  size_t i = at;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"') {
      i = string_end(text, i);
      if (i == kNone64 || depth == 0) return i;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++i;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      ++i;
      if (--depth == 0) return i;
    } else if (c == ',' && depth == 0) {
      return i;
    } else {
      ++i;
    }
  }
  return kNone64;
}

// Where a member that is broken could be over: in front of the next one, or of the event list.
size_t next_member(std::string_view text, size_t from) {
  for (size_t comma = text.find(',', from); comma != kNone64; comma = text.find(',', comma + 1)) {
    const size_t quote = skip_space(text, comma + 1);
    if (quote == text.size() || text[quote] != '"') continue;
    const size_t end = text.find('"', quote + 1);
    if (end == kNone64) return kNone64;
    const size_t colon = skip_space(text, end + 1);
    const bool is_line = text.substr(comma, quote - comma).find('\n') != kNone64;
    if (colon < text.size() && text[colon] == ':' && is_line) return comma;
  }
  return kNone64;
}

}  // namespace

DocumentScanner::Step DocumentScanner::scan(std::string_view text, int64_t offset, bool is_final,
                                            size_t& used) {
  offset_ = offset - static_cast<int64_t>(used);
  while (true) {
    used = skip_space(text, used);
    if (used == text.size()) return Step::need_more;
    const char c = text[used];
    if (in_object_) {
      if (c == ',' || c == '}') {
        in_object_ = c == ',';
        ++used;
        continue;
      }
      switch (take_member(text, is_final, used)) {
        case Found::member: continue;
        case Found::need_more: return Step::need_more;
        case Found::list: return Step::event_list;
        case Found::broken: break;
      }
      notes_.add(Note::bad_metadata, offset_ + static_cast<int64_t>(used));
      const size_t next = next_member(text, used);
      if (next == kNone64 && !is_final) return Step::need_more;
      used = std::min(next, text.size());
    } else if (c == '{' || c == '[') {
      if (documents_++ > 0) notes_.add(Note::second_document, offset_ + static_cast<int64_t>(used));
      ++used;
      if (c == '{') {
        in_object_ = true;
        continue;
      }
      is_bare_array_ = documents_ == 1;
      in_list_ = has_list_ = true;
      return Step::event_list;
    } else if (text.substr(used).starts_with(kByteOrderMark)) {
      notes_.add(Note::byte_order_mark, offset_ + static_cast<int64_t>(used));
      used += kByteOrderMark.size();
    } else if (documents_ == 0) {
      return Step::not_json;
    } else {  // whatever follows the last document: up to another one
      if (!notes_.has(Note::trailing_text))
        notes_.add(Note::trailing_text, offset_ + static_cast<int64_t>(used));
      used = std::min(text.find_first_of("{[", used), text.size());
    }
  }
}

DocumentScanner::Found DocumentScanner::take_member(std::string_view text, bool is_final,
                                                    size_t& used) {
  const auto incomplete = [&] { return is_final ? Found::broken : Found::need_more; };
  if (text[used] != '"') return Found::broken;
  const size_t key_end = string_end(text, used);
  if (key_end == kNone64) return incomplete();
  const size_t colon = skip_space(text, key_end);
  if (colon == text.size()) return incomplete();
  if (text[colon] != ':') return Found::broken;
  const size_t value = skip_space(text, colon + 1);
  if (value == text.size()) return incomplete();
  const std::string_view key = inside_quotes(text.substr(used, key_end - used));
  if (key == kEventList && text[value] == '[') {
    used = value + 1;
    in_list_ = has_list_ = true;
    return Found::list;
  }
  size_t end = value_end(text, value);
  const size_t behind = end == kNone64 ? text.size() : skip_space(text, end);
  if (behind == text.size() && !is_final) return Found::need_more;
  if (end == kNone64) {  // a word at the very end has no end of its own
    end = text.size();
  } else if (behind < text.size() && text[behind] != ',' && text[behind] != '}') {
    return Found::broken;
  }
  keep(key, text.substr(value, end - value), offset_ + static_cast<int64_t>(value));
  used = end;
  return Found::member;
}

void DocumentScanner::keep(std::string_view key, std::string_view value, int64_t offset) {
  while (!value.empty() && kSpace.find(value.back()) != kNone64) value.remove_suffix(1);
  std::string name;
  append_decoded(name, key);
  std::string json(value);
  // To nlohmann a NUL ends the text, wherever it stands.
  if (json.find('\0') != kNone64 || !is_json(json)) {
    notes_.add(Note::bad_metadata, offset);
    json.clear();
    append_json_string(json, value);
  }
  const bool is_known = std::any_of(members_.begin(), members_.end(),
                                    [&](const auto& member) { return member.first == name; });
  if (!is_known) members_.emplace_back(std::move(name), std::move(json));
}

void DocumentScanner::finish(Trace& trace) {
  for (auto& [key, json] : members_) apply_member(trace, key, json);
}

std::vector<std::string> DocumentScanner::keys() const {
  std::vector<std::string> keys;
  keys.reserve(members_.size());
  for (const auto& member : members_) keys.push_back(member.first);
  return keys;
}

}  // namespace epilogue::trace
