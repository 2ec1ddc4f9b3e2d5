// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/help/command_tree.h"

#include <CLI/CLI.hpp>
#include <iterator>
#include <sstream>

#include "tools/epilogue/arguments.h"

namespace epilogue::tool {
namespace {

std::vector<std::string> offered_choices(CLI::Option& option) {
  try {
    std::istringstream words(option.get_validator(kChoices)->get_description());
    return {std::istream_iterator<std::string>(words), {}};
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

bool names_one_of(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

// --help names what a value is: FILE.csv, DIR. Positionals without a word for it are files.
ValueKind value_kind(const std::string& what, bool is_positional) {
  if (names_one_of(what, {"FILE", "TRACE", "PYTHON"})) return ValueKind::file;
  if (names_one_of(what, {"DIR"})) return ValueKind::folder;
  const bool is_word = names_one_of(what, {"EXPR", "NAME"});
  return is_positional && !is_word ? ValueKind::file : ValueKind::text;
}

std::string without_edges(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first);
}

OptionHelp described(CLI::Option& option) {
  OptionHelp help;
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  const bool is_positional = help.names.empty();
  if (is_positional) help.names.push_back(option.get_name());
  help.meta = without_edges(option.get_option_text());
  help.doc = option.get_description();
  help.choices = offered_choices(option);
  const bool takes_value = option.get_items_expected_max() != 0 && option.get_type_size_max() != 0;
  if (takes_value)
    help.value = value_kind(is_positional ? help.names.front() : help.meta, is_positional);
  return help;
}

CommandHelp described(CLI::App& app, const std::string& parent) {
  CommandHelp help;
  help.name = app.get_name();
  help.path = parent.empty() ? help.name : parent + " " + help.name;
  help.summary = app.get_description();
  help.footer = app.get_footer();
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; }))
    (option->nonpositional() ? help.options : help.positionals).push_back(described(*option));
  // As in CLI11, no group means hidden.
  for (CLI::App* sub : app.get_subcommands([](CLI::App* s) { return !s->get_group().empty(); }))
    help.commands.push_back(described(*sub, help.path));
  return help;
}

}  // namespace

CommandHelp command_tree(CLI::App& app) { return described(app, ""); }

std::vector<const CommandHelp*> all_commands(const CommandHelp& root) {
  std::vector<const CommandHelp*> all = {&root};
  for (const CommandHelp& sub : root.commands) {
    const std::vector<const CommandHelp*> below = all_commands(sub);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::vector<std::string> command_names(const CommandHelp& command) {
  std::vector<std::string> names;
  names.reserve(command.commands.size());
  for (const CommandHelp& sub : command.commands) names.push_back(sub.name);
  return names;
}

}  // namespace epilogue::tool
