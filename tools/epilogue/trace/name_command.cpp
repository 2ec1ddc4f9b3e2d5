// SPDX-License-Identifier: Apache-2.0
// epilogue name: what a kernel's name says.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "epilogue/trace/answer.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

struct NameFlags {
  std::vector<std::string> names;
  Format format = Format::text;
};

// One name per line; they contain spaces.
std::vector<std::string> read_names(std::istream& in) {
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

int run_name_command(const NameFlags& o) {
  const std::vector<std::string> names = o.names.empty() ? read_names(std::cin) : o.names;
  if (names.empty()) {
    fmt::print(stderr, "epilogue name: expected kernel names as arguments or lines of stdin\n");
    return kExitMisuse;
  }
  print(trace::names_answer(names), o.format);
  return kExitFine;
}

}  // namespace

void add_name_command(CLI::App& app, Body& run) {
  CLI::App* name = app.add_subcommand("name", "Decodes kernel names, field by field");
  auto options = std::make_shared<NameFlags>();
  name->add_option("KERNEL_NAME", options->names, "names; none: one per line of stdin")
      ->option_text("...");
  add_format(*name, options->format);
  name->footer("Example: epilogue name nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT");
  name->callback([options, &run] { run = [options] { return run_name_command(*options); }; });
}

}  // namespace epilogue::tool
