// SPDX-License-Identifier: Apache-2.0
// The files of a folder that may be served: traces and pages, nothing outside it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace epilogue::trace {

class TraceFolder {
 public:
  // Throws Error where `path` is not a folder.
  explicit TraceFolder(const std::string& path);

  const std::filesystem::path& root() const { return root_; }
  // Paths relative to the folder, sorted; symbolic links to folders are not followed.
  std::vector<std::string> files() const;
  // The file that a path relative to the folder names, as decoded from a URL. Nothing where there
  // is no such regular file, where it is of another kind, or where ".." or a symbolic link leads
  // out of the folder.
  std::optional<std::filesystem::path> find(std::string_view relative) const;

 private:
  std::filesystem::path root_;  // without symbolic links
};

// "application/json", "application/gzip", "text/html; charset=utf-8"; nothing for other names.
std::optional<std::string_view> content_type(std::string_view file_name);

// For a path of a URL: all but unreserved characters and '/' as %XX.
std::string percent_encoded(std::string_view path);

}  // namespace epilogue::trace
