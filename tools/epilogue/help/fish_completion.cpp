// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/epilogue/help/command_tree.h"

namespace epilogue::tool {
namespace {

constexpr const char* kFishFunction = R"(
# __epilogue_at PATH: the words so far choose that command, and no command below it.
function __epilogue_at
    set -l at epilogue
    set -l words (commandline -opc)
    for word in $words[2..-1]
        contains -- "$at $word" $__epilogue_commands; or break
        set at "$at $word"
    end
    test "$at" = "$argv[1]"
end

)";

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// fish's words for the values of an option or argument.
std::string fish_value(const OptionHelp& o) {
  if (o.value == ValueKind::none) return "";
  const bool is_option = o.names.front().starts_with('-');
  std::string text = is_option ? " -r" : "";
  text += o.value == ValueKind::file ? " -F" : " -f";
  if (o.value == ValueKind::folder) text += " -a '(__fish_complete_directories)'";
  if (!o.choices.empty())
    text += " -a " + fish_quoted(fmt::format("{}", fmt::join(o.choices, " ")));
  return text;
}

std::string fish_command(const CommandHelp& c) {
  const std::string lead =
      fmt::format("complete -c epilogue -n {}", fish_quoted("__epilogue_at \"" + c.path + "\""));
  std::string text;
  if (c.positionals.empty()) text += lead + " -f\n";
  for (const OptionHelp& o : c.positionals) text += lead + fish_value(o) + "\n";
  for (const CommandHelp& sub : c.commands)
    text += fmt::format("{} -a {} -d {}\n", lead, sub.name, fish_quoted(sub.summary));
  for (const OptionHelp& o : c.options) {
    text += lead;
    for (const std::string& name : o.names)
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    text += fish_value(o) + " -d " + fish_quoted(o.doc) + "\n";
  }
  return text;
}

}  // namespace

std::string fish_completion(const CommandHelp& root) {
  std::string text =
      "# fish completion for epilogue. Made from the command's own description; do not edit.\n\n"
      "set -g __epilogue_commands";
  const std::vector<const CommandHelp*> commands = all_commands(root);
  for (const CommandHelp* c : commands)
    if (c != &root) text += " " + fish_quoted(c->path);
  text += kFishFunction;
  for (const CommandHelp* c : commands) text += fish_command(*c);
  return text;
}

}  // namespace epilogue::tool
