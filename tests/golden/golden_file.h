// SPDX-License-Identifier: Apache-2.0
// Goldens: text files of named sections that results are compared with.
//
//   # comments
//   == first
//   its text
//
//   == second
//   ...
//
// scripts/update_goldens.sh, or a test that runs with EPILOGUE_UPDATE_GOLDENS=1, rewrites them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace epilogue::test {

// The lines of both, in order: "  " before those that both have, "- " and "+ " before those that
// only `expected` or only `got` has.
std::string line_diff(std::string_view expected, std::string_view got);

// Whether this process rewrites goldens instead of comparing them.
bool updates_goldens();

class GoldenFile {
 public:
  // `names` are the sections that the file must have, in this order; `about` is a line of comment.
  GoldenFile(std::string path, std::string about, std::vector<std::string> names)
      : path_(std::move(path)), about_(std::move(about)), names_(std::move(names)) {}

  // Fails with a line diff where the section has another text; writes it where goldens are updated.
  void expect(const std::string& name, const std::string& text) const;
  // Fails where the file is not `names` alone, in their order; writes it where goldens are updated.
  void expect_no_other_sections() const;

 private:
  std::string written(const std::map<std::string, std::string>& sections) const;
  void write(const std::map<std::string, std::string>& sections) const;

  std::string path_;
  std::string about_;
  std::vector<std::string> names_;
};

}  // namespace epilogue::test
