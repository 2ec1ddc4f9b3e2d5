// SPDX-License-Identifier: Apache-2.0
// epilogue ops: the table of ops, from the index.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"
#include "ops/ops.h"
#include "explain/render/document.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

std::string_view kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::compute: return "compute";
    case OpKind::view: return "view";
    case OpKind::composite: return "composite";
    case OpKind::inplace: return "in-place";
  }
  return "";
}

/// The kernels that may run `op`, in their order. Kernels of one name (gelu has one for each of its
/// forms) are named once.
std::string kernel_names(const OpDef& op) {
  if (op.kind == OpKind::view || op.kind == OpKind::composite) return "";
  std::vector<std::string_view> names;
  for (const Kernel& k : cpu_backend().kernels(op))
    if (std::ranges::find(names, k.name) == names.end()) names.push_back(k.name);
  names.push_back("reference");
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string gradient(const OpDef& op) {
  if (op.vjp != nullptr) return "yes";
  return op.kind == OpKind::composite ? "by parts" : "no";
}

trace::Document ops_document() {
  trace::Table table{.key = "ops", .has_text_header = true};
  table.columns = {{.key = "name", .header = "op", .width = 35},
                   {.key = "schema", .is_for_people = false},
                   {.key = "kind", .header = "kind", .width = 10},
                   {.key = "pointwise", .is_for_people = false},
                   {.key = "gradient", .header = "gradient", .width = 9},
                   {.key = "cpu_kernels", .header = "CPU kernels", .width = 22},
                   {.key = "doc", .header = "meaning"}};
  const auto same = [](std::string_view text) {
    return trace::Table::Cell{std::string(text), std::string(text)};
  };
  for (const OpDef* op : kOps)
    table.rows.push_back({{std::string(op->name), std::string(op->name),
                           fmt::format("`{}{}`", op->name, op->schema)},
                          same(op->schema),
                          same(kind_name(op->kind)),
                          {"", op->pointwise},
                          same(gradient(*op)),
                          same(kernel_names(*op)),
                          same(op->doc)});
  trace::Document document = {std::move(table)};
  document.sorts_keys = true;
  return document;
}

}  // namespace

void add_ops_command(CLI::App& app, Body& run) {
  CLI::App* ops = app.add_subcommand("ops", "Prints the table of ops");
  auto format = std::make_shared<Format>(Format::text);
  add_table_format(*ops, *format);
  ops->footer("Example: epilogue ops --format markdown > ops.md");
  ops->callback([format, &run] {
    run = [format] {
      print(ops_document(), *format);
      return kExitFine;
    };
  });
}

}  // namespace epilogue::tool
