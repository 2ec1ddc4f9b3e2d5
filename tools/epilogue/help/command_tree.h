// SPDX-License-Identifier: Apache-2.0
// The command's own description, as --help prints it, for pages and completions made from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace epilogue::tool {

// Kinds of words that a shell can offer as a value, besides `choices`.
enum class ValueKind { none, text, file, folder };

struct OptionHelp {
  std::vector<std::string> names;  // "-o", "--out"; of a positional one name without dashes
  std::string meta;                // "DIR [traces]"; empty for flags and most positionals
  std::string doc;
  std::vector<std::string> choices;
  ValueKind value = ValueKind::none;  // none: a flag
};

struct CommandHelp {
  std::string path;  // "epilogue profile mlp"
  std::string name;  // "mlp"
  std::string summary;
  std::string footer;
  std::vector<OptionHelp> options;
  std::vector<OptionHelp> positionals;
  std::vector<CommandHelp> commands;
};

// The tree below `app`, hidden subcommands left out.
CommandHelp command_tree(CLI::App& app);

// `root` and all commands below it, each before its own.
std::vector<const CommandHelp*> all_commands(const CommandHelp& root);

std::vector<std::string> command_names(const CommandHelp& command);

// --help's page for man(1), in man(7). `version` is "epilogue 0.1.0".
std::string man_page(const CommandHelp& root, const std::string& version);

std::string bash_completion(const CommandHelp& root);
std::string zsh_completion(const CommandHelp& root);
std::string fish_completion(const CommandHelp& root);

}  // namespace epilogue::tool
