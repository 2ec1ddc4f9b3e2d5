// SPDX-License-Identifier: Apache-2.0
// epilogue advise: what can be done for a PyTorch model. The work is the Python package's
// (epilogue.torch); this finds a Python that has it.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

struct AdviseFlags {
  std::string script;
  std::string python;
  std::string out;
  Format format = Format::text;
  int rounds = 9;
  double seconds = 0.1;
  double tolerance = 0;
  bool no_compile = false;
};

// The command's own environment first: pip puts both into one folder.
std::string find_python() {
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  if (const auto beside = self.parent_path() / "python3"; !self.empty() && exists(beside, none))
    return beside.string();
  return "python3";
}

// Says what is missing, and where, instead of a traceback.
constexpr const char* kProgram = R"(import sys
try:
    from epilogue.torch.advise_script import main
except ImportError as error:
    reason = str(error).splitlines()[0]
    print(f"epilogue advise: expected a Python with epilogue, epilogue-torch and torch (--python names one), "
          f"got {sys.executable}: {reason}", file=sys.stderr)
    sys.exit(2)
sys.exit(main()))";

int run_advise_command(const AdviseFlags& o) {
  std::vector<std::string> words = {o.python.empty() ? find_python() : o.python, "-c", kProgram,
                                    o.script};
  const auto add = [&](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  add("--format", o.format == Format::json       ? "json"
                  : o.format == Format::markdown ? "markdown"
                                                 : "text");
  add("--rounds", std::to_string(o.rounds));
  add("--seconds", fmt::format("{}", o.seconds));
  if (o.tolerance > 0) add("--tolerance", fmt::format("{}", o.tolerance));
  if (o.no_compile) words.emplace_back("--no-compile");
  if (!o.out.empty()) add("--out", o.out);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "epilogue advise: cannot run {}: {}\n", words[0], std::strerror(errno));
  return kExitMisuse;
}

}  // namespace

void add_advise_command(CLI::App& app, Body& run) {
  CLI::App* advise = app.add_subcommand(
      "advise", "Tries what can be done for the PyTorch model of a script, and measures it");
  auto options = std::make_shared<AdviseFlags>();
  advise
      ->add_option("SCRIPT.py", options->script,
                   "defines `model` and `inputs`; for a training step also `optimizer`, and `loss` "
                   "unless the model's result has a .loss")
      ->required()
      ->check(CLI::ExistingFile);
  add_format(*advise, options->format);
  advise
      ->add_option("-o,--out", options->out,
                   "also write the advice as an HTML page; its folder is made if missing")
      ->check(path_name())
      ->option_text("FILE");
  advise
      ->add_option("--python", options->python,
                   "the Python that has torch, epilogue and epilogue-torch (default: python3)")
      ->type_name("PROGRAM");
  advise->add_option("--rounds", options->rounds, "of each measurement")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  advise->add_option("--seconds", options->seconds, "of each setting in a round")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  advise
      ->add_option("--tolerance", options->tolerance,
                   "relative L2 difference of results that is accepted (default by dtype)")
      ->check(CLI::PositiveNumber);
  advise->add_flag("--no-compile", options->no_compile,
                   "leave torch.compile out, which takes Inductor's minutes");
  advise->footer("Example: epilogue advise bert.py -o advice.html");
  advise->callback([options, &run] { run = [options] { return run_advise_command(*options); }; });
}

}  // namespace epilogue::tool
