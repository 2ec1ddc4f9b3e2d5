// SPDX-License-Identifier: Apache-2.0
// epilogue help-files KIND: the man page and the completions, for the build. Hidden from --help.
#include <CLI/CLI.hpp>
#include <memory>

#include "epilogue/base/error.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/help/command_tree.h"

namespace epilogue::tool {
namespace {

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
