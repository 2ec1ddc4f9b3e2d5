// SPDX-License-Identifier: Apache-2.0
#include "explain/render/trace_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "epilogue/base/error.h"

namespace epilogue::trace {
namespace fs = std::filesystem;

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {{
    // Not a Content-Encoding: Perfetto unpacks it itself.
    {".json.gz", "application/gzip"},
    {".pftrace.gz", "application/gzip"},
    {".pftrace", "application/octet-stream"},
    {".json", "application/json"},
    {".html", "text/html; charset=utf-8"},
}};

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_below(const fs::path& path, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

}  // namespace

TraceFolder::TraceFolder(const std::string& path) {
  std::error_code error;
  root_ = fs::canonical(path, error);
  if (error || !fs::is_directory(root_, error))
    throw Error(fmt::format("{}: expected a folder", path));
}

std::vector<std::string> TraceFolder::files() const {
  std::vector<std::string> list;
  std::error_code error;
  auto at =
      fs::recursive_directory_iterator(root_, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::string relative = at->path().lexically_relative(root_).string();
    if (find(relative)) list.push_back(std::move(relative));
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::optional<fs::path> TraceFolder::find(std::string_view relative) const {
  if (relative.empty() || has_control_characters(relative) || !content_type(relative))
    return std::nullopt;
  const fs::path named(relative);
  const bool climbs =
      std::any_of(named.begin(), named.end(), [](const fs::path& part) { return part == ".."; });
  if (named.is_absolute() || climbs) return std::nullopt;
  std::error_code error;
  fs::path path = fs::canonical(root_ / named, error);
  if (error || !is_below(path, root_) || !fs::is_regular_file(path, error)) return std::nullopt;
  return path;
}

std::optional<std::string_view> content_type(std::string_view file_name) {
  for (const auto& [suffix, type] : kTypes)
    if (file_name.ends_with(suffix)) return type;
  return std::nullopt;
}

std::string percent_encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter || std::string_view("-_.~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace epilogue::trace
