// SPDX-License-Identifier: Apache-2.0
// The line for what does not parse, over a command of two levels.
#include "tools/epilogue/usage.h"

#include "support/test.h"
#include "tools/epilogue/arguments.h"

namespace epilogue::tool::usage_test {

class Usage : public testing::Test {
 protected:
  Usage() {
    app_.name("epilogue");
    app_.require_subcommand(1);
    CLI::App* table = app_.add_subcommand("table", "");
    table->add_option("TRACE", path_)->required();
    table->add_option("--top", top_)->check(whole_number(1));
    CLI::Option* fast = table->add_flag("--fast", fast_);
    table->add_flag("--slow")->excludes(fast);
    CLI::App* profile = app_.add_subcommand("profile", "");
    profile->require_subcommand(1);
    profile->add_subcommand("mlp", "")->add_option("--batch", batch_)->check(whole_number(1));
  }

  // The line of arguments that do not parse; "" where they do.
  std::string line(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    try {
      app_.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
      return usage_line(app_, error);
    }
    return "";
  }

  CLI::App app_;
  std::string path_;
  int top_ = 0;
  bool fast_ = false;
  int batch_ = 0;
};

TEST_F(Usage, ArgumentsThatParseNeedNoLine) {
  EXPECT_EQ(line({"table", "t.json", "--top", "3"}), "");
  EXPECT_EQ(command_path(app_), "epilogue table");
  EXPECT_EQ(line({"profile", "mlp"}), "");
  EXPECT_EQ(command_path(app_), "epilogue profile mlp");
}

TEST_F(Usage, MissingArgumentsAreNamed) {
  EXPECT_EQ(line({}), "epilogue: expected a command, got none (see epilogue --help)");
  EXPECT_EQ(line({"table"}),
            "epilogue table: expected TRACE, got none (see epilogue table --help)");
  EXPECT_EQ(line({"profile"}),
            "epilogue profile: expected mlp, got none (see epilogue profile --help)");
}

TEST_F(Usage, UnknownNamesComeWithTheNearest) {
  EXPECT_EQ(line({"tabel"}),
            "epilogue: unknown command 'tabel'; did you mean table? (see epilogue --help)");
  EXPECT_EQ(line({"mlp"}),
            "epilogue: unknown command 'mlp'; did you mean epilogue profile mlp? (see epilogue "
            "--help)");
  EXPECT_EQ(line({"profile", "mlp", "--btach", "2"}),
            "epilogue profile mlp: unknown option --btach; did you mean --batch? (see epilogue "
            "profile mlp --help)");
  EXPECT_EQ(line({"table", "a", "b"}),
            "epilogue table: unexpected argument 'b' (see epilogue table --help)");
}

TEST_F(Usage, ValuesAreSaidInOneForm) {
  EXPECT_EQ(line({"table", "a", "--top", "0"}),
            "epilogue table: --top: expected a whole number of 1 or more, got '0' (see epilogue "
            "table --help)");
  EXPECT_EQ(line({"table", "a", "--top"}),
            "epilogue table: --top: expected a value, got none (see epilogue table --help)");
  EXPECT_EQ(line({"table", "a", "--top", "1", "--top", "2"}),
            "epilogue table: --top: expected one value, got 2 (see epilogue table --help)");
  EXPECT_EQ(line({"table", "a", "--fast=no-idea"}),
            "epilogue table: --fast: expected no value, got 'no-idea' (see epilogue table --help)");
  EXPECT_EQ(line({"table", "a", "--fast", "--slow"}),
            "epilogue table: expected --fast or --slow, got both (see epilogue table --help)");
}

TEST_F(Usage, ErrorsOfTheLibraryGetTheCommandAndTheFlagsName) {
  ASSERT_EQ(line({"profile", "mlp"}), "");
  EXPECT_EQ(error_line(app_, "[--batch] expected less"),
            "epilogue profile mlp: --batch: expected less");
  EXPECT_EQ(error_line(app_, "[batch] expected less"),
            "epilogue profile mlp: --batch: expected less");
  EXPECT_EQ(error_line(app_, "[mlp] expected less"), "epilogue profile mlp: expected less");
  EXPECT_EQ(error_line(app_, "[mm] expected less"), "epilogue profile mlp: mm: expected less");
  EXPECT_EQ(error_line(app_, "x.json: none"), "epilogue profile mlp: x.json: none");
  EXPECT_EQ(error_line(app_, "[open"), "epilogue profile mlp: [open");
}

}  // namespace epilogue::tool::usage_test
