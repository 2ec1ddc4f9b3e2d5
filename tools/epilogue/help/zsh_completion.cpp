// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/epilogue/help/command_tree.h"

namespace epilogue::tool {
namespace {

// Within single quotes; what _arguments reads itself has a backslash.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_function(const CommandHelp& c) {
  std::string name = "_" + c.path;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string zsh_value(const OptionHelp& o) {
  const std::string words = fmt::format("{}", fmt::join(o.choices, " "));
  switch (o.value) {
    case ValueKind::file:
      return words.empty()
                 ? "_files"
                 : fmt::format("_alternative \"words:word:({})\" \"files:file:_files\"", words);
    case ValueKind::folder: return "_files -/";
    default: return words.empty() ? " " : "(" + words + ")";
  }
}

std::string zsh_option(const OptionHelp& o) {
  std::string lines;
  for (const std::string& name : o.names) {
    const bool takes_value = o.value != ValueKind::none;
    lines += fmt::format(" \\\n    '*{}{}[{}]{}'", name,
                         !takes_value             ? ""
                         : name.starts_with("--") ? "="
                                                  : "+",
                         zsh_text(o.doc),
                         takes_value ? fmt::format(":{}:{}", zsh_text(o.meta), zsh_value(o)) : "");
  }
  return lines;
}

std::string zsh_command(const CommandHelp& c) {
  std::string text = zsh_function(c) + "() {\n";
  std::string options;
  for (const OptionHelp& o : c.options) options += zsh_option(o);
  if (c.commands.empty()) {
    for (const OptionHelp& o : c.positionals)
      options += fmt::format(" \\\n    '{}:{}:{}'", o.meta == "..." ? "*" : "",
                             zsh_text(o.names.front()), zsh_value(o));
    return text + "  _arguments" + options + "\n}\n\n";
  }
  text += "  local state line curcontext=$curcontext\n  _arguments -C" + options +
          " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n"
          "      local -a commands=(\n";
  for (const CommandHelp& sub : c.commands)
    text += fmt::format("        '{}:{}'\n", sub.name, zsh_text(sub.summary));
  text += "      )\n      _describe command commands ;;\n    rest)\n      case $line[1] in\n";
  for (const CommandHelp& sub : c.commands)
    text += fmt::format("        {}) {} ;;\n", sub.name, zsh_function(sub));
  return text + "      esac ;;\n  esac\n}\n\n";
}

}  // namespace

std::string zsh_completion(const CommandHelp& root) {
  std::string text =
      "#compdef epilogue\n"
      "# Made from the command's own description; do not edit.\n\n";
  const std::vector<const CommandHelp*> commands = all_commands(root);
  // The file is the body of _epilogue: its own function, of the same name, comes last.
  for (auto c = commands.rbegin(); c != commands.rend(); ++c) text += zsh_command(**c);
  return text +
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _epilogue \"$@\"\n"
         "else\n  compdef _epilogue epilogue\nfi\n";
}

}  // namespace epilogue::tool
