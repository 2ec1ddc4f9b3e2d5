// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "tools/epilogue/help/command_tree.h"

namespace epilogue::tool {
namespace {

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
    text += fmt::format("Its commands: {}.\n", fmt::join(command_names(c), ", "));
  for (const OptionHelp& o : c.positionals) text += option_entry(o);
  for (const OptionHelp& o : c.options) text += option_entry(o);
  if (!c.footer.empty()) text += ".PP\n" + roff_lines(c.footer);
  return text;
}

}  // namespace

// Without a date, so that one source gives one page.
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

}  // namespace epilogue::tool
