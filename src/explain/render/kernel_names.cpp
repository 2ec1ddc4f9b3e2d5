// SPDX-License-Identifier: Apache-2.0
// What kernels' names say, as a document.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "explain/render/documents.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

constexpr int kSchemaVersion = 1;

// Names are any bytes: control characters must not reach a terminal, nor a '|' a table's cell.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < ' ' || c == 0x7F ? '?' : c;
  return out;
}
std::string printed_cell(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string heading(const KernelName& name) {
  if (!name.is_known()) return name.summary;
  return fmt::format("{} ({}): {}", name.family, kernel_kind_name(name.kind),
                     printable(name.summary));
}

std::string names_text(std::span<const KernelName> names) {
  std::string out;
  bool has_inferred = false;
  for (const KernelName& name : names) {
    if (!out.empty()) out += "\n";
    out += fmt::format("{}\n  {}\n", printable(name.name), heading(name));
    size_t key_width = 0;
    size_t value_width = 0;
    for (const KernelField& field : name.fields) {
      key_width = std::max(key_width, field.key.size());
      if (!field.note.empty()) value_width = std::max(value_width, field.value.size());
    }
    for (const KernelField& field : name.fields) {
      has_inferred = has_inferred || field.is_inferred;
      const std::string note = field.note.empty() ? "" : fmt::format("  {}", field.note);
      out += fmt::format("  {} {:<{}}  {:<{}}{}\n", field.is_inferred ? '~' : ' ', field.key,
                         key_width, printable(field.value), note.empty() ? 0 : value_width, note);
    }
  }
  if (has_inferred) out += "\n~ inferred\n";
  return out;
}

std::string names_json(std::span<const KernelName> names) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KernelName& name : names) {
    nlohmann::ordered_json fields = nlohmann::ordered_json::object();
    nlohmann::ordered_json notes = nlohmann::ordered_json::object();
    nlohmann::ordered_json inferred = nlohmann::ordered_json::array();
    for (const KernelField& field : name.fields) {
      fields[field.key] = field.value;
      if (field.is_inferred) inferred.push_back(field.key);
      if (!field.note.empty()) notes[field.key] = field.note;
    }
    list.push_back({{"schema_version", kSchemaVersion},
                    {"name", name.name},
                    {"family", name.family},
                    {"kind", kernel_kind_name(name.kind)},
                    {"fields", std::move(fields)},
                    {"inferred", std::move(inferred)},
                    {"notes", std::move(notes)},
                    {"ops", name.ops},
                    {"summary", name.summary}});
  }
  return dump_json(list);
}

std::string names_markdown(std::span<const KernelName> names) {
  std::string out;
  for (const KernelName& name : names) {
    if (!out.empty()) out += "\n";
    out += fmt::format("`{}`\n\n{}\n", printable(name.name), heading(name));
    if (name.fields.empty()) continue;
    out += "\n| field | value | known | note |\n|---|---|---|---|\n";
    for (const KernelField& field : name.fields)
      out += fmt::format("| {} | {} | {} | {} |\n", field.key, printed_cell(field.value),
                         field.is_inferred ? "inferred" : "yes", printed_cell(field.note));
  }
  return out;
}

}  // namespace

Document kernel_names_document(std::span<const KernelName> names) {
  Document document = {Preformatted{names_text(names), names_markdown(names)}};
  document.json = [names] { return names_json(names); };
  return document;
}

}  // namespace epilogue::trace
