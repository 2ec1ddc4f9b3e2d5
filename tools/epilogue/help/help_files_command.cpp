// SPDX-License-Identifier: Apache-2.0
// epilogue help-files KIND: the man page and the completions, for the build. Hidden from --help.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "epilogue/base/error.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {

namespace {

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

// The tree below `app`, hidden subcommands left out.
CommandHelp command_tree(CLI::App& app) { return described(app, ""); }

// `root` and all commands below it, each before its own.
std::vector<const CommandHelp*> all_commands(const CommandHelp& root) {
  std::vector<const CommandHelp*> all = {&root};
  for (const CommandHelp& sub : root.commands) {
    const std::vector<const CommandHelp*> below = all_commands(sub);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::vector<std::string> subcommand_names(const CommandHelp& command) {
  std::vector<std::string> names;
  names.reserve(command.commands.size());
  for (const CommandHelp& sub : command.commands) names.push_back(sub.name);
  return names;
}

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
                                 fmt::join(subcommand_names(c), " "), fmt::join(options, " "));
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

constexpr const char* kEnvironment[][2] = {
    {"EPILOGUE_ISA",
     "the highest instruction set to use: baseline, avx2, avx512, avx512_bf16, amx"},
    {"EPILOGUE_CACHE_DIR", "folder of the machine's figures and measured plans; off keeps none"},
    {"EPILOGUE_PYTHON", "a Python that has PyTorch, for bench"},
    {"NO_COLOR", "if it is not empty, nothing is bold"}};

// Text that troff prints as it is, hyphens as the minus that one can paste.
std::string roff(const std::string& text) {
  std::string out;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
    begins_line = c == '\n';
  }
  return out;
}

// Lines as they are; an empty one is a paragraph's end.
std::string roff_lines(const std::string& text) {
  std::string out = ".nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    out += line.empty() ? ".sp\n" : roff(line) + "\n";
  return out + ".fi\n";
}

std::string option_entry(const OptionHelp& o) {
  std::vector<std::string> names;
  names.reserve(o.names.size());
  for (const std::string& name : o.names) names.push_back("\\fB" + roff(name) + "\\fR");
  return fmt::format(".TP\n{}{}{}\n{}", fmt::join(names, ", "), o.meta.empty() ? "" : " ",
                     roff(o.meta), o.doc.empty() ? "" : roff(o.doc) + "\n");
}

std::string command_section(const CommandHelp& c) {
  std::string text = fmt::format(".SS {}\n{}.\n", roff(c.path), roff(c.summary));
  if (!c.commands.empty())
    text += fmt::format("Its commands: {}.\n", fmt::join(subcommand_names(c), ", "));
  for (const OptionHelp& o : c.positionals) text += option_entry(o);
  for (const OptionHelp& o : c.options) text += option_entry(o);
  if (!c.footer.empty()) text += ".PP\n" + roff_lines(c.footer);
  return text;
}

// Without a date, so that one source gives one page.
// --help's page for man(1), in man(7). `version` is "epilogue 0.1.0".
std::string man_page(const CommandHelp& root, const std::string& version) {
  std::string text = fmt::format(
      ".\\\" Made from the command's own description; do not edit.\n"
      ".TH EPILOGUE 1 \"\" \"{}\" \"User Commands\"\n"
      ".SH NAME\nepilogue \\- explains profiler traces; profiles and fuses MLPs\n"
      ".SH SYNOPSIS\n.B epilogue\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
      ".SH DESCRIPTION\n{}\n.SH OPTIONS\n",
      version, roff(root.summary));
  for (const OptionHelp& o : root.options) text += option_entry(o);
  text += ".PP\n" + roff_lines(root.footer) + ".SH COMMANDS\n";
  for (const CommandHelp* c : all_commands(root))
    if (c != &root) text += command_section(*c);
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, doc] : kEnvironment)
    text += fmt::format(".TP\n.B {}\n{}\n", name, roff(doc));
  return text;
}

std::string help_file(const std::string& kind, const CommandHelp& root,
                      const std::string& version) {
  if (kind == "man") return man_page(root, version);
  if (kind == "bash") return bash_completion(root);
  if (kind == "zsh") return zsh_completion(root);
  if (kind == "fish") return fish_completion(root);
  throw Error("[KIND] expected man, bash, zsh or fish, got '" + kind + "'");
}

}  // namespace

void add_help_files_command(CLI::App& app, const std::string& version, Body& run) {
  CLI::App* files = app.add_subcommand("help-files", "Prints the man page or a shell's completion");
  files->group("");
  auto kind = std::make_shared<std::string>();
  files->add_option("KIND", *kind, "man, bash, zsh or fish")
      ->required()
      ->check(choices({"man", "bash", "zsh", "fish"}))
      ->option_text(" ");
  files->footer("Example: source <(epilogue help-files bash)");
  files->callback([kind, version, &app, &run] {
    run = [kind, version, &app] {
      print(help_file(*kind, command_tree(app), version));
      return kExitFine;
    };
  });
}

}  // namespace epilogue::tool
