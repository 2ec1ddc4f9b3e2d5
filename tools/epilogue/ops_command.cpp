// SPDX-License-Identifier: Apache-2.0
// epilogue ops: the table of ops, from the index.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"
#include "ops/ops.h"
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

std::string ops_output() {
  auto list = nlohmann::json::array();
  for (const OpDef* op : kOps)
    list.push_back({{"name", op->name},
                    {"schema", op->schema},
                    {"kind", kind_name(op->kind)},
                    {"pointwise", op->pointwise},
                    {"gradient", gradient(*op)},
                    {"cpu_kernels", kernel_names(*op)},
                    {"doc", op->doc}});
  return nlohmann::json{{"schema_version", kSchemaVersion}, {"ops", list}}.dump(2) + "\n";
}

int run_ops_command(Format format) {
  if (format == Format::json) {
    print(ops_output());
    return kExitFine;
  }
  if (format == Format::markdown) {
    print("| op | kind | gradient | CPU kernels | meaning |\n|---|---|---|---|---|\n");
    for (const OpDef* op : kOps)
      print(fmt::format("| `{}{}` | {} | {} | {} | {} |\n", op->name, op->schema,
                        kind_name(op->kind), gradient(*op), kernel_names(*op), op->doc));
    return kExitFine;
  }
  print(fmt::format("{:<35} {:<10} {:<9} {:<22} {}\n", "op", "kind", "gradient", "CPU kernels",
                    "meaning"));
  for (const OpDef* op : kOps)
    print(fmt::format("{:<35} {:<10} {:<9} {:<22} {}\n", op->name, kind_name(op->kind),
                      gradient(*op), kernel_names(*op), op->doc));
  return kExitFine;
}

}  // namespace

void add_ops_command(CLI::App& app, Body& run) {
  CLI::App* ops = app.add_subcommand("ops", "Prints the table of ops");
  auto format = std::make_shared<Format>(Format::text);
  add_format(*ops, *format);
  ops->footer("Example: epilogue ops --format markdown > ops.md");
  ops->callback([format, &run] { run = [format] { return run_ops_command(*format); }; });
}

}  // namespace epilogue::tool
