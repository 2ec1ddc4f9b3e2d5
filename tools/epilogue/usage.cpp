// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "base/printable.h"
#include "base/text/nearest.h"
#include "epilogue/base/error.h"

namespace epilogue::tool {
namespace {

// The last subcommand that was named.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : chosen(*named.back());
}

// Those that --help lists.
std::vector<const CLI::App*> all_subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* s) { return !s->get_group().empty(); });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : all_subcommands(app)) names.push_back(sub->get_name());
  return names;
}

// "--batch" for "--btach" and "btach". The dashes, which all have, count for nothing.
std::vector<std::string> nearest_option(const CLI::App& app, std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  std::vector<std::string> near = nearest(word, names);
  for (std::string& name : near) name.insert(0, "--");
  return near;
}

std::string unknown_command(const CLI::App& root, const CLI::App& app, const std::string& word) {
  std::string text = "unknown command '" + printable(word) + "'";
  const std::vector<std::string> names = command_names(app);
  if (const auto near = nearest(word, names); !near.empty()) return text + did_you_mean(near);
  // A workload without its command, or one that the command does not have.
  std::vector<std::string> parents;
  for (const CLI::App* sub : all_subcommands(root))
    if (const auto names_there = command_names(*sub);
        std::find(names_there.begin(), names_there.end(), word) != names_there.end())
      parents.push_back(fmt::format("epilogue {} {}", sub->get_name(), word));
  if (!parents.empty()) return text + did_you_mean(parents);
  if (const auto near = nearest_option(app, word); !near.empty()) return text + did_you_mean(near);
  return text + (&app == &root ? "" : "; expected " + one_of_text(names));
}

// The message for leftovers: an option that does not exist, a command, one argument too many.
std::string unexpected(const CLI::App& root, const CLI::App& app,
                       const std::vector<std::string>& left) {
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& s) {
    return s.size() > 1 && s.starts_with('-');
  });
  if (option != left.end()) {
    const std::string name = option->substr(0, option->find('='));
    if (app.get_option_no_throw(name) != nullptr)
      return name + ": expected behind '" + command_path(root) + "', got before it";
    return "unknown option " + printable(name) + did_you_mean(nearest_option(app, name));
  }
  if (!command_names(app).empty()) return unknown_command(root, app, left.front());
  return "unexpected argument '" + printable(left.front()) + "'";
}

std::string missing(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0)
      return "expected " + option->get_name() + ", got none";
  const std::vector<std::string> names = command_names(app);
  if (names.empty()) return error.what();
  return (app.get_parent() == nullptr ? "expected a command" : "expected " + one_of_text(names)) +
         ", got none";
}

// The option that CLI11's text begins with, after `lead` and up to `end`; null: none.
const CLI::Option* option_of(const CLI::App& app, std::string_view text, std::string_view lead,
                             std::string_view end) {
  if (!text.starts_with(lead)) return nullptr;
  text.remove_prefix(lead.size());
  const size_t length = text.find(end);
  if (length == std::string_view::npos) return nullptr;
  return app.get_option_no_throw(std::string(text.substr(0, length)));
}

std::string wrong_number_of_values(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::Option* option = option_of(app, error.what(), "", ":");
  if (option == nullptr) return error.what();
  const size_t count = option->count();
  return option->get_name() + (count == 0 ? ": expected a value, got none"
                                          : fmt::format(": expected one value, got {}", count));
}

// Values of options are checked before they are converted; what is left are flags with a value.
std::string not_converted(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::Option* option = option_of(app, error.what(), "Could not convert: ", " =");
  if (option == nullptr) return error.what();
  const bool is_flag = option->get_items_expected_max() == 0 || option->get_type_size_max() == 0;
  return fmt::format("{}: expected {}, got '{}'", option->get_name(),
                     is_flag ? "no value" : "another value",
                     printable(CLI::detail::join(option->results())));
}

std::string excluded(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* option : app.get_options())
    for (const CLI::Option* other : option->get_excludes())
      if (option->count() > 0 && other->count() > 0)
        return fmt::format("expected {} or {}, got both", option->get_name(), other->get_name());
  return error.what();
}

std::string in_our_words(const CLI::App& root, const CLI::App& app, const CLI::ParseError& error) {
  const bool is_required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (is_required || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    if (const auto left = root.remaining(true); !left.empty()) return unexpected(root, app, left);
  if (is_required) return missing(app, error);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return wrong_number_of_values(app, error);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    return not_converted(app, error);
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return excluded(app, error);
  return error.what();
}

int misuse(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  return kExitMisuse;
}

// Results that did not arrive are no results: a full disk must not pass for success.
int flushed(const std::string& command, int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return misuse(command + ": stdout: cannot write" +
                (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

int run_body(const CLI::App& app, const Body& body) {
  const std::string command = command_path(app);
  try {
    return flushed(command, body());
  } catch (const Error& e) {
    return misuse(error_line(app, e.what()));
  } catch (const std::bad_alloc&) {
    return misuse(command + ": out of memory");
  } catch (const std::exception& e) {
    return misuse(command + ": unexpected error: " + e.what());
  }
}

}  // namespace

std::string command_path(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return app.get_name() + (named.empty() ? "" : " " + command_path(*named.back()));
}

std::string usage_line(const CLI::App& app, const CLI::ParseError& error) {
  const std::string command = command_path(app);
  return fmt::format("{}: {} (see {} --help)", command, in_our_words(app, chosen(app), error),
                     command);
}

std::string error_line(const CLI::App& app, const std::string& message) {
  const std::string command = command_path(app);
  const size_t close = message.find("] ");
  if (!message.starts_with('[') || close == std::string::npos) return command + ": " + message;
  const std::string what = message.substr(1, close - 1);
  const std::string said = message.substr(close + 2);
  const bool is_known = (" " + command + " ").find(" " + what + " ") != std::string::npos;
  if (is_known) return command + ": " + said;
  const bool is_flag = chosen(app).get_option_no_throw("--" + what) != nullptr;
  return command + (is_flag ? ": --" : ": ") + what + ": " + said;
}

int parse_and_run(CLI::App& app, const Body& body, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return flushed(app.get_name(), app.exit(e));  // --help, --version
    return misuse(usage_line(app, e));
  }
  return run_body(app, body);
}

}  // namespace epilogue::tool
