// SPDX-License-Identifier: Apache-2.0
#include "golden/golden_file.h"
#include "support/test.h"

namespace epilogue::test {
namespace golden_file {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A section ends before the empty line that stands before the next one.
std::map<std::string, std::string> sections_of(const std::string& path) {
  std::map<std::string, std::string> sections;
  std::string* section = nullptr;
  for (const std::string& line : lines_of(read(path))) {
    if (line.starts_with("== ")) {
      section = &sections[line.substr(3)];
    } else if (section != nullptr) {
      *section += line + "\n";
    }
  }
  for (auto& [name, text] : sections)
    if (text.ends_with("\n\n")) text.pop_back();
  return sections;
}

// common[i][j]: the most lines that the ends of both, from i and j on, have in common.
std::vector<std::vector<size_t>> common_lines(const std::vector<std::string>& a,
                                              const std::vector<std::string>& b) {
  std::vector<std::vector<size_t>> common(a.size() + 1, std::vector<size_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] =
          a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  return common;
}

}  // namespace golden_file

std::string line_diff(std::string_view expected, std::string_view got) {
  const std::vector<std::string> a = golden_file::lines_of(expected);
  const std::vector<std::string> b = golden_file::lines_of(got);
  const std::vector<std::vector<size_t>> common = golden_file::common_lines(a, b);
  std::string text;
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      text += "  " + a[i++] + "\n";
      ++j;
    } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
      text += "- " + a[i++] + "\n";
    } else {
      text += "+ " + b[j++] + "\n";
    }
  }
  return text;
}

bool updates_goldens() {
  const char* const value = std::getenv("EPILOGUE_UPDATE_GOLDENS");
  return value != nullptr && std::string_view(value) == "1";
}

std::string GoldenFile::written(const std::map<std::string, std::string>& sections) const {
  std::string text = "# scripts/update_goldens.sh rewrites this file. " + about_ + "\n";
  for (const std::string& name : names_)
    if (const auto found = sections.find(name); found != sections.end())
      text += "\n== " + name + "\n" + found->second;
  return text;
}

void GoldenFile::write(const std::map<std::string, std::string>& sections) const {
  std::ofstream(path_, std::ios::binary) << written(sections);
}

void GoldenFile::expect(const std::string& name, const std::string& text) const {
  std::map<std::string, std::string> sections = golden_file::sections_of(path_);
  if (updates_goldens()) {
    sections[name] = text;
    return write(sections);
  }
  const auto found = sections.find(name);
  if (found == sections.end()) {
    ADD_FAILURE() << path_ << " has no section '" << name
                  << "'; scripts/update_goldens.sh adds it. Got:\n"
                  << text;
  } else if (found->second != text) {
    ADD_FAILURE() << path_ << ", section '" << name << "': - expected, + got\n"
                  << line_diff(found->second, text)
                  << "If that is right, scripts/update_goldens.sh rewrites the file.";
  }
}

void GoldenFile::expect_no_other_sections() const {
  const std::map<std::string, std::string> sections = golden_file::sections_of(path_);
  if (updates_goldens()) return write(sections);
  const std::string expected = written(sections);
  const std::string got = golden_file::read(path_);
  if (got == expected && sections.size() == names_.size()) return;
  ADD_FAILURE() << path_ << " is not what its cases give: - expected, + got\n"
                << line_diff(expected, got) << "scripts/update_goldens.sh rewrites it.";
}

}  // namespace epilogue::test
