// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/epilogue/help/command_tree.h"

namespace epilogue::tool {
namespace {

// _epilogue_about PATH sets `commands`, `options` and what an argument may be;
// _epilogue_value PATH OPTION what a value may be: kind (empty: OPTION takes none) and words.
constexpr const char* kBashFunction = R"(
_epilogue() {
  local i at=epilogue commands options kind words
  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    _epilogue_about "$at"
    [[ " $commands " == *" ${COMP_WORDS[i]} "* ]] || break
    at+=" ${COMP_WORDS[i]}"
  done
  # --option=value arrives as three words.
  if [[ $current == '=' ]]; then
    current=
  elif [[ $before == '=' && COMP_CWORD -ge 2 ]]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  _epilogue_value "$at" "$before"
  if [[ -z $kind ]]; then
    _epilogue_about "$at"
    if [[ $current == -* ]]; then
      words=$options kind=text
    elif [[ -n $commands ]]; then
      words=$commands kind=text
    fi
  fi
  [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  case $kind in
    file | folder)
      compopt -o filenames 2>/dev/null
      local how=-f
      [[ $kind == folder ]] && how=-d
      local -a found
      mapfile -t found < <(compgen $how -- "$current")
      COMPREPLY+=("${found[@]}") ;;
  esac
}
complete -F _epilogue epilogue
)";

const char* bash_kind(const OptionHelp& o) {
  switch (o.value) {
    case ValueKind::none: return "";
    case ValueKind::text: return "text";
    case ValueKind::file: return "file";
    case ValueKind::folder: return "folder";
  }
  return "";
}

// A closed list of words is never a file.
std::string bash_value(const OptionHelp& o) {
  return fmt::format("kind={} words='{}'", bash_kind(o), fmt::join(o.choices, " "));
}

std::string bash_about(const CommandHelp& c) {
  std::vector<std::string> options;
  for (const OptionHelp& o : c.options)
    options.insert(options.end(), o.names.begin(), o.names.end());
  std::string text = fmt::format("    '{}')\n      commands='{}'\n      options='{}'\n", c.path,
                                 fmt::join(command_names(c), " "), fmt::join(options, " "));
  if (!c.positionals.empty()) text += "      " + bash_value(c.positionals.front()) + "\n";
  return text + "      ;;\n";
}

std::string bash_values(const CommandHelp& c) {
  std::string text;
  for (const OptionHelp& o : c.options) {
    if (o.value == ValueKind::none) continue;
    std::vector<std::string> patterns;
    patterns.reserve(o.names.size());
    for (const std::string& name : o.names)
      patterns.push_back(fmt::format("'{} {}'", c.path, name));
    text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), bash_value(o));
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandHelp& root) {
  std::string about;
  std::string values;
  for (const CommandHelp* c : all_commands(root)) {
    about += bash_about(*c);
    values += bash_values(*c);
  }
  return fmt::format(
      "# bash completion for epilogue. Made from the command's own description; do not edit.\n\n"
      "_epilogue_about() {{\n  commands= options= kind= words=\n  case $1 in\n{}  esac\n}}\n\n"
      "_epilogue_value() {{\n  kind= words=\n  case \"$1 $2\" in\n{}  esac\n}}\n{}",
      about, values, kBashFunction);
}

}  // namespace epilogue::tool
